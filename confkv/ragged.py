"""The mixed store for uneven budgets: every lane owns buffers of its own size."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from confkv.history import trim_history
from confkv.store import Store
from confkv_kernels import History


class RaggedStore(Store):
    """A :class:`Store` whose memory follows the length of each lane, where budgets differ between layers,
    or between the heads of a layer: then each head is a lane.

    Each lane is a store of its own, ``[1, H, cap_g, D]``. Metadata is a few numbers a slot and stays stacked, so that
    ranking still runs once for the whole model; the lanes' metadata are views of it. What moves keys and values goes
    lane by lane, with the outcome, slot for slot, that the stacked layout has.

    Args:
        lanes, heads, dim, dtype, device, options: as for :class:`Store`.
    """

    def __init__(
        self,
        lanes: int,
        heads: int,
        dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
        *,
        per_layer: int = 1,
        **options: Any,
    ) -> None:
        self._parts = [Store(1, heads, dim, dtype, device, **options) for _ in range(lanes)]
        super().__init__(lanes, heads, dim, dtype, device, per_layer=per_layer, **options)
        self.by_lane = self.gives_back = True
        for part in self._parts:
            part.gives_back = True
        self._share_meta()

    def _share_meta(self) -> None:
        for lane, part in enumerate(self._parts):
            part.meta = self.meta[lane : lane + 1]

    # -- sizes --------------------------------------------------------------------------------------------------

    @property
    def parts(self) -> list[Store]:
        return self._parts

    @property
    def capacity(self) -> int:
        return max(part.capacity for part in self._parts)

    @property
    def n_fp(self) -> list[int]:
        """Full-precision slots of each lane, a copy."""
        return [part.n_fp[0] for part in self._parts]

    @n_fp.setter
    def n_fp(self, values: list[int]) -> None:
        for part, n in zip(self._parts, values, strict=True):
            part.n_fp = [n]

    @property
    def n_history(self) -> list[int]:
        """INT8 slots of each lane, a copy."""
        return [part.n_history[0] for part in self._parts]

    @n_history.setter
    def n_history(self, values: list[int]) -> None:
        for part, n in zip(self._parts, values, strict=True):
            part.n_history = [n]

    def bytes_by_kind(self) -> dict[str, int]:
        each = [part.bytes_by_kind() for part in self._parts]
        out = {kind: sum(one[kind] for one in each) for kind in each[0]}
        out["meta"] = self.meta.nbytes
        return out

    def reserve(self, extra: int, *, shrink: bool = False) -> None:
        for part in self._parts:
            part._reserve_fp(extra, shrink)
            if extra == 1:
                trim_history(part)
        self._reserve_meta(extra, shrink)

    def allocate(self, capacities: list[int]) -> None:
        """Give every lane room for so many slots; from now on it grows where a lane holds more, and nothing shrinks."""
        for part, n, capacity in zip(self._parts, self.n_fp, capacities, strict=True):
            part.gives_back = False
            part._resize_fp(max(n, capacity))
        self.gives_back = False
        self._resize_meta(max([*self.lengths, *capacities]))

    def _resize_meta(self, capacity: int) -> None:
        super()._resize_meta(capacity)
        self._share_meta()

    # -- writing and reading ------------------------------------------------------------------------------------

    def append(self, lane: int, k: Tensor, v: Tensor) -> None:
        self._parts[lane].append(0, k, v)

    def fp(self, lane: int) -> tuple[Tensor, Tensor]:
        return self._parts[lane].fp(0)

    def keys(self, part: slice, n: int) -> Tensor:
        (one,) = self._parts[part]
        return one.k[:, :, :n]

    def history(self, lane: int) -> History | None:
        return self._parts[lane].history(0)

    def all_history(self) -> History | None:
        raise NotImplementedError("lanes of different capacity have no common history; see by_lane")

    # -- evicting, quantising, re-basing ------------------------------------------------------------------------

    def _fill_holes(self, gone: Tensor, lengths: list[int], drops: list[int]) -> None:
        # Fewer launches than a lane's own method takes: metadata and indices of all lanes at once.
        shrinks = [g for g, drop in enumerate(drops) if drop]
        table = torch.tensor([(g, lengths[g] - 1, self._parts[g].capacity) for g in shrinks], device=self.device)
        lane, last, capacity = table.T.unsqueeze(-1)
        head = torch.arange(self.heads, device=self.device)
        gone = gone[shrinks].expand(-1, self.heads)
        self.meta[lane, head, gone] = self.meta[lane, head, last]
        base = head * capacity
        for g, to, source in zip(shrinks, base + gone, base + last, strict=True):
            part = self._parts[g]
            for buffer in (part.k, part.v):
                rows = buffer.view(-1, self.dim)
                rows.index_copy_(0, to, rows.index_select(0, source))
            part.n_fp = [part.n_fp[0] - 1]

    def _drop_one(self, gone: Tensor, lengths: list[int], drops: list[int]) -> None:
        if not self.int8:
            self._fill_holes(gone, lengths, drops)
            return
        for lane, part in enumerate(self._parts):
            if drops[lane]:
                part._drop_one(gone[lane : lane + 1], lengths[lane : lane + 1], [1])

    def _compact(self, score: Tensor, lengths: list[int], targets: list[int], *, mixed: bool) -> None:
        for lane, part in enumerate(self._parts):
            n, target = lengths[lane], targets[lane]
            part._compact(score[lane : lane + 1, :, :n], [n], [target], mixed=mixed)

    def age(self) -> None:
        for part in self._parts:
            part.age()

    def rebase(self, end: int, inv_freq: list[Tensor | None]) -> None:
        for part, freq in zip(self._parts, inv_freq, strict=True):
            part.rebase(end, [freq])

    # -- copies -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """As :meth:`Store.state`, with the slots of all lanes one behind the other: ``[1, H, sum of n, D]``.

        Scales are those of the lanes that have a history.
        """
        out = {
            "k": torch.cat([part.fp(0)[0] for part in self._parts], 2),
            "v": torch.cat([part.fp(0)[1] for part in self._parts], 2),
            "meta": self.meta[:, :, : max(self.lengths)].clone(),
            "n_fp": torch.tensor(self.n_fp, dtype=torch.int64),
            "n_history": torch.tensor(self.n_history, dtype=torch.int64),
            "held": torch.tensor(self.held, dtype=torch.int64),
        }
        coded = [h for part in self._parts if (h := part.history(0)) is not None]
        if coded:
            for name in ("k", "v", "k_gain", "v_gain"):
                out[f"h_{name}"] = torch.cat([getattr(h, name) for h in coded], 2)
            for name in ("k_scale", "v_scale"):
                out[f"h_{name}"] = torch.cat([getattr(h, name) for h in coded])
        return out

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.n_fp, self.n_history, self.held = ([int(x) for x in state[name]] for name in ("n_fp", "n_history", "held"))
        self.meta = state["meta"].clone().to(self.device)
        self._share_meta()
        for name in ("k", "v"):
            for part, rows in zip(self._parts, state[name].split(self.n_fp, 2), strict=True):
                setattr(part, name, self._owned(rows))
        coded = [part for part in self._parts if part.n_history[0]]
        for part in self._parts:
            part.codes = None
        if not coded:
            return
        lengths = [part.n_history[0] for part in coded]
        slots = [state[f"h_{name}"].split(lengths, 2) for name in ("k", "v", "k_gain", "v_gain")]
        scales = [state[f"h_{name}"].split(1) for name in ("k_scale", "v_scale")]
        for part, *rows in zip(coded, *slots, *scales, strict=True):
            part.codes = History(*(self._owned(x) for x in rows))

    def _owned(self, rows: Tensor) -> Tensor:
        """A copy with memory of its own, on the store's device."""
        return rows.to(self.device).clone(memory_format=torch.contiguous_format)
