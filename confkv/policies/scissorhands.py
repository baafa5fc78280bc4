"""Scissorhands (arXiv 2305.17118): how often a position was among those that a query attended to most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confkv.policies.base import Policy
from confkv.policies.params import STORAGE, Entry, PolicyInfo, Value, fixed
from confkv.policies.ranker import Ranker, by_rank

if TYPE_CHECKING:
    from torch import Tensor

    from confkv.observe import View

#: The published code's history of query rows.
ROWS = 100
#: Rows per metadata column: so few bits that the float32 they lie in is never a NaN, whose bits a copy might change.
_BITS = 25


@dataclass(frozen=True)
class Persistence(Ranker):
    """``count_j = #{t among the newest 100 rows : A[t, j] > the 90th percentile of row t}``.

    The percentile is over the positions that row t sees, interpolated linearly. Where query heads share a KV head (the
    paper has none), A is their sum. The published simulation drops every position whose count is 0, a rate without a
    budget; here positions are ranked by their count to a fixed budget, newer first among equals, so that comparisons
    can be made at equal bytes. The rows of a slot are a shift register of 100 bits in four metadata columns.
    """

    @property
    def rows(self) -> int:
        return ROWS

    @property
    def every_chunk(self) -> bool:
        return True

    @property
    def columns(self) -> int:
        return ROWS // _BITS

    def fold(self, probabilities: Tensor, columns: Tensor) -> None:
        import torch

        g, hq, w, n = probabilities.shape
        heads = columns.shape[1]
        mass = probabilities.view(g, heads, hq // heads, w, n).sum(2)
        row = torch.arange(w, device=mass.device)
        seen = n - w + 1 + row
        hidden = torch.arange(n, device=mass.device) >= seen.unsqueeze(-1)
        # Ascending, what a row does not see first.
        ascending = mass.masked_fill(hidden, -1.0).sort(-1).values
        place = (w - 1 - row).double() + 0.9 * (seen - 1).double()
        low = place.floor().long()
        weight = (place - low).float().view(1, 1, w, 1)
        at = [i.clamp(max=n - 1).view(1, 1, w, 1).expand(g, heads, w, 1) for i in (low, low + 1)]
        threshold = ascending.gather(-1, at[0]).lerp(ascending.gather(-1, at[1]), weight)
        _shift_in(columns.view(torch.int32), mass > threshold)

    def signal(self, view: View) -> Tensor | None:
        return _count(view.columns(self.columns))

    def score(self, mass: Tensor, position: Tensor, free: Tensor, seen: int) -> Tensor:
        return by_rank(mass, position)


def _shift_in(register: Tensor, hits: Tensor) -> None:
    """Shift rows into the registers of every slot, newest in bit 0 of column 0.

    Args:
        register: ``[G, H, n, c]`` int32, changed in place.
        hits: bool ``[G, H, w, n]``, oldest row first.
    """
    import torch

    if hits.shape[2] == 1:
        carry = register >> (_BITS - 1)
        carry[..., 1:] = carry[..., :-1].clone()
        carry[..., 0] = hits[:, :, 0]
        register.copy_(((register << 1) & ((1 << _BITS) - 1)) | carry)
        return
    bit = torch.arange(_BITS, device=register.device, dtype=torch.int32)
    old = ((register.unsqueeze(-1) >> bit) & 1).flatten(-2)
    newest_first = hits.flip(2).transpose(2, 3).to(torch.int32)
    rows = torch.cat([newest_first, old], -1)[..., : old.shape[-1]]
    register.copy_((rows.unflatten(-1, (-1, _BITS)) << bit).sum(-1))


def _count(columns: Tensor) -> Tensor:
    """Bits set in each slot's columns ``[G, H, n, c]`` float32 -> ``[G, H, n]`` float32."""
    import torch

    x = columns.contiguous().view(torch.int32)
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    x = (x + (x >> 8) + (x >> 16) + (x >> 24)) & 0x3F
    return x.sum(-1).float()


def _build(name: str, spec: str, p: dict[str, Value]) -> Policy:
    return fixed(Persistence(), name, spec, p)


ENTRY = Entry(
    PolicyInfo(
        "scissorhands",
        "keep what was in the top tenth of most of the newest 100 rows of attention, and the newest `protect`",
        {"n": 256, "protect": 10, "sinks": 0, "scope": "head", **STORAGE},
        "https://arxiv.org/abs/2305.17118",
        positional="n",
    ),
    _build,
)
