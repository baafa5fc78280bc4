"""Attention over the mixed store and the probability mass each key receives.

The store holds a contiguous full-precision part and, optionally, an INT8 history. Positions do not enter here: RoPE is
already in the keys, so only visibility (the mask) matters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_NEG = float("-inf")
_FEW_ROWS = 16
#: Numbers that :func:`attention_mass` holds at once on a CPU: scores, or keys taken from the history. They should stay
#: in the second-level cache.
_BLOCK = 1 << 20


@dataclass(frozen=True)
class History:
    """INT8 keys and values: codes ``[B, H, n, D]``, gains ``[B, H, n]``, channel scales ``[B, H, 1, D]``."""

    k: Tensor
    v: Tensor
    k_gain: Tensor
    v_gain: Tensor
    k_scale: Tensor
    v_scale: Tensor

    @property
    def length(self) -> int:
        """Number of positions."""
        return self.k.shape[-2]

    def batch(self, part: slice) -> History:
        """The same of some rows of the batch."""
        return History(
            self.k[part],
            self.v[part],
            self.k_gain[part],
            self.v_gain[part],
            self.k_scale[part],
            self.v_scale[part],
        )


def _group(q: Tensor, heads: int) -> Tensor:
    """``[B, Hq, S, D]`` -> ``[B, H, G*S, D]``: the query heads that share a KV head become rows of one matrix."""
    b, hq, s, d = q.shape
    return q.reshape(b, heads, (hq // heads) * s, d)


def _scores(q: Tensor, k: Tensor, history: History | None, scale: float, softcap: float | None) -> Tensor:
    """fp32 scores ``[B, H, G*S, n_history + n]`` of grouped queries against the whole store."""
    parts = []
    if history is not None and history.length:
        # The channel scale folds into the query and the token's gain into the score: no key is dequantised.
        scaled = (q.float() * history.k_scale).to(q.dtype)
        s = torch.matmul(scaled, history.k.to(q.dtype).transpose(-1, -2)).float()
        parts.append(s * history.k_gain.unsqueeze(-2))
    if q.shape[-2] < _FEW_ROWS:
        # Few queries against many keys: the tall operand first is twice as quick on a CPU.
        parts.append(torch.matmul(k, q.transpose(-1, -2)).transpose(-1, -2).float().contiguous())
    else:
        parts.append(torch.matmul(q, k.transpose(-1, -2)).float())
    s = (parts[0] if len(parts) == 1 else torch.cat(parts, -1)).mul_(scale)
    return s.div_(softcap).tanh_().mul_(softcap) if softcap is not None else s


def _probabilities(s: Tensor, sinks: Tensor | None, heads: int, steps: int) -> Tensor:
    """Softmax of ``s`` with the learned sink logit of each query head in the denominator (gpt-oss)."""
    if sinks is None:
        return torch.softmax(s, -1)
    rows = sinks.float().view(-1, heads, sinks.shape[-1] // heads, 1)
    rows = rows.expand(-1, -1, -1, steps).reshape(rows.shape[0], heads, -1, 1).expand(s.shape[0], -1, -1, -1)
    return torch.softmax(torch.cat([s, rows], -1), -1)[..., :-1]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    history: History | None = None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Attention of S queries over the store.

    Args:
        q: ``[B, Hq, S, D]``.
        k, v: ``[B, H, n, D]``, the full-precision part, with Hq a multiple of H.
        mask: bool ``[S, n_history + n]``, True where the query may look; None: everywhere.
        history: the INT8 part, placed before the full-precision part.
        sinks: ``[Hq]`` logits that join the softmax denominator (gpt-oss).
        softcap: tanh cap on the scores (Gemma 2).

    Returns:
        ``[B, Hq, S, D]`` in q's dtype.
    """
    b, hq, steps, d = q.shape
    heads = k.shape[1]
    if (history is None or not history.length) and sinks is None and softcap is None:
        if mask is None:
            out = F.scaled_dot_product_attention(_group(q, heads), k, v, scale=scale)
            return out.reshape(b, hq, steps, d)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=hq != heads)
    s = _scores(_group(q, heads), k, history, scale, softcap)
    if mask is not None:
        s = s.masked_fill(~mask.repeat(hq // heads, 1), _NEG)
    p = _probabilities(s, sinks, heads, steps).to(q.dtype)
    n = history.length if history is not None else 0
    out = torch.matmul(p[..., n:], v)
    if history is not None and n:
        weighted = (p[..., :n].float() * history.v_gain.unsqueeze(-2)).to(q.dtype)
        out = out + (torch.matmul(weighted, history.v.to(q.dtype)).float() * history.v_scale).to(q.dtype)
    return out.reshape(b, hq, steps, d)


def attention_mass(
    q: Tensor,
    k: Tensor,
    *,
    scale: float,
    visible: Tensor | None = None,
    history: History | None = None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Mean attention probability that each key receives, per KV head.

    The mean runs over the query rows and over the query heads that share the KV head.

    Args:
        q: ``[B, Hq, w, D]``, the last w query rows; B may be every layer of the model at once.
        k: ``[B, H, n, D]``.
        visible: bool ``[B or 1, 1, w, m]`` over the last m of all keys; the keys before them, and with None every
            key, are visible.
        history, sinks, softcap: as in :func:`attend`; sinks may be ``[B, Hq]``.

    Returns:
        ``[B, H, n_history + n]`` float32; sums to 1 over keys (less with sinks).
    """
    b, hq, w, d = q.shape
    past = history.length if history is not None else 0
    n = past + k.shape[2]
    size = max(1, _BLOCK // max(hq * w * n, k.shape[1] * past * d, 1)) if q.device.type == "cpu" else b
    if b <= size:
        return _mass(q, k, scale, visible, history, sinks, softcap)
    out = torch.empty(b, k.shape[1], n, device=q.device)
    for first in range(0, b, size):
        part = slice(first, first + size)
        out[part] = _mass(
            q[part],
            k[part],
            scale,
            visible if visible is None or visible.shape[0] == 1 else visible[part],
            history.batch(part) if history is not None else None,
            sinks if sinks is None or sinks.dim() == 1 else sinks[part],
            softcap,
        )
    return out


def attention_probabilities(
    q: Tensor,
    k: Tensor,
    *,
    scale: float,
    visible: Tensor | None = None,
    history: History | None = None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Attention probability of every query row and head over every key.

    Args:
        q, k, history, sinks, softcap: as in :func:`attention_mass`.
        visible: as in :func:`attention_mass`; may also differ by KV head, ``[B or 1, H or 1, w, m]``.

    Returns:
        ``[B, Hq, w, n_history + n]`` float32; a row sums to 1 over keys (less with sinks).
    """
    b, hq, w, _ = q.shape
    return _rows(q, k, scale, visible, history, sinks, softcap).reshape(b, hq, w, -1)


def _mass(
    q: Tensor,
    k: Tensor,
    scale: float,
    visible: Tensor | None,
    history: History | None,
    sinks: Tensor | None,
    softcap: float | None,
) -> Tensor:
    """:func:`attention_mass` of one block."""
    return _rows(q, k, scale, visible, history, sinks, softcap).mean(-2)


def _rows(
    q: Tensor,
    k: Tensor,
    scale: float,
    visible: Tensor | None,
    history: History | None,
    sinks: Tensor | None,
    softcap: float | None,
) -> Tensor:
    """Probabilities ``[B, H, G*w, n_history + n]``, the query heads of a KV head one after the other."""
    hq, w = q.shape[1:3]
    heads = k.shape[1]
    s = _scores(_group(q, heads), k, history, scale, softcap)
    if visible is not None:
        rows = visible.expand(-1, -1, w, -1).repeat(1, 1, hq // heads, 1)
        s[..., s.shape[-1] - visible.shape[-1] :].masked_fill_(~rows, _NEG)
    return _probabilities(s, sinks, heads, w)
