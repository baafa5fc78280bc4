"""The mixed store: keys and values of every evictable layer, a full-precision part and an optional INT8 history.

A *lane* is one layer of one session, or one KV head of it where heads have budgets of their own. All lanes share
stacked buffers, so that ranking, compaction and quantising run once for the whole model, and each has its own length;
:class:`confkv.ragged.RaggedStore` gives each buffers of its own. Slots of a lane are contiguous: in INT8 mode
``[history (INT8)] [sinks (fp)] [window (fp)]``, else all in the full-precision part. Slot order is not position order:
attention does not depend on it, and every slot carries its position.
"""

from __future__ import annotations

import torch
from torch import Tensor

from confkv.history import SLACK, compact_mixed, drop_one_mixed, move_to_history, roomy, too_roomy, turn_history
from confkv.rope import rotate
from confkv.rows import note_norms, resized, worst
from confkv_kernels import History, dequantise, keep_indices, take_rows

#: Columns of the metadata. ORIGIN, the number of tokens fed before this one, is kept where positions come back from an
#: archive: after a re-basing those share positions with survivors.
MASS, HOLD, POS, ORIGIN = 0, 1, 2, 3
#: Values of HOLD, added up: why a slot does not compete. All but SINK do not count against the budget either. A release
#: turns FRESH into PROTECTED, and what was PROTECTED before competes.
SINK, PROTECTED, FRESH, PINNED = 1, 2, 4, 8
#: Positions leave the window for the history in blocks, so that quantising is not paid at every token.
_BLOCK = 32


class Store:
    """Keys and values of ``lanes`` layers.

    Args:
        lanes: number of evictable layers, G; times the KV heads where each of them is a lane.
        heads, dim: KV heads of a lane and head dimension.
        dtype, device: of the full-precision part.
        int8: keep positions older than ``window`` as INT8.
        window: newest positions that stay in full precision.
        sinks: first positions that stay in full precision.
        evicts: whether metadata is kept at all (full KV needs none).
        columns: columns of metadata that the ranker fills itself; they are the last ones.
        origins: whether metadata has the column ORIGIN.
        norms: whether it has a column for the L1 norm of the slot's value, as it was before INT8.
        per_layer: lanes of one layer; they follow each other.
    """

    def __init__(
        self,
        lanes: int,
        heads: int,
        dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
        *,
        int8: bool = False,
        window: int = 128,
        sinks: int = 4,
        evicts: bool = True,
        columns: int = 0,
        origins: bool = False,
        norms: bool = False,
        per_layer: int = 1,
    ) -> None:
        self.per_layer = per_layer
        self.lanes, self.heads, self.dim = lanes, heads, dim
        self.dtype, self.device = dtype, torch.device(device)
        self.int8, self.window, self.sinks, self.evicts = int8, window, sinks, evicts
        self.n_fp = [0] * lanes
        self.n_history = [0] * lanes
        #: slots per lane that are PROTECTED, FRESH or PINNED, and so do not count against the budget
        self.held = [0] * lanes
        self.k = torch.empty(lanes, heads, 0, dim, dtype=dtype, device=self.device)
        self.v = torch.empty_like(self.k)
        self.meta = torch.zeros(lanes, heads, 0, 3 + origins + norms + columns, device=self.device)
        self.origins = origins
        #: the column of norms
        self.norms = 3 + origins if norms else None
        #: whether what reads the keys of all lanes goes through them one by one
        self.by_lane = False
        #: whether decoding gives back the room that a prefill needed
        self.gives_back = False
        #: origin less position of the tokens that are appended now
        self.shift = 0
        #: the INT8 part of every lane
        self.codes: History | None = None

    # -- sizes --------------------------------------------------------------------------------------------------

    @property
    def lengths(self) -> list[int]:
        """Slots held by each lane."""
        return [a + b for a, b in zip(self.n_fp, self.n_history, strict=True)]

    @property
    def parts(self) -> list[Store]:
        """Stores that between them hold the lanes, first lane first, each in stacked buffers."""
        return [self]

    @property
    def capacity(self) -> int:
        """Full-precision slots allocated for the lane that has most."""
        return self.k.shape[2]

    def bytes_by_kind(self) -> dict[str, int]:
        """Bytes allocated, by kind."""
        out = {"fp": self.k.nbytes + self.v.nbytes, "int8": 0, "scales": 0, "meta": self.meta.nbytes}
        if self.codes is not None:
            h = self.codes
            out["int8"] = h.k.nbytes + h.v.nbytes
            out["scales"] = h.k_gain.nbytes + h.v_gain.nbytes + h.k_scale.nbytes + h.v_scale.nbytes
        return out

    resized = staticmethod(resized)

    def _resize_fp(self, capacity: int) -> None:
        used = max(self.n_fp, default=0)
        self.k = self.resized(self.k, used, capacity)
        self.v = self.resized(self.v, used, capacity)

    def _resize_meta(self, capacity: int) -> None:
        if not self.evicts:
            return
        meta = torch.zeros(self.lanes, self.heads, capacity, self.meta.shape[-1], device=self.device)
        used = min(max(self.lengths, default=0), self.meta.shape[2])
        meta[:, :, :used] = self.meta[:, :, :used]
        self.meta = meta

    def reserve(self, extra: int, *, shrink: bool = False) -> None:
        """Make room for ``extra`` more positions in every lane; with ``shrink`` also give back what is far too large.

        Growth is by at least an eighth, so that a growing session copies each position a bounded number of times.
        """
        self._reserve_fp(extra, shrink)
        self._reserve_meta(extra, shrink)

    def _reserve_fp(self, extra: int, shrink: bool) -> None:
        fp = max(self.n_fp, default=0) + extra
        if (capacity := self._fitting(fp, self.k.shape[2], extra, shrink)) is not None:
            self._resize_fp(capacity)

    def _reserve_meta(self, extra: int, shrink: bool) -> None:
        total = max(self.lengths, default=0) + extra
        if self.evicts and (capacity := self._fitting(total, self.meta.shape[2], extra, shrink)) is not None:
            self._resize_meta(capacity)

    def _fitting(self, need: int, capacity: int, extra: int, shrink: bool) -> int | None:
        """New capacity for ``need`` slots; None: leave it."""
        if need > capacity:
            # A known large request is met exactly; token by token, an eighth is added.
            return need if extra > 1 else roomy(need)
        if self.gives_back and extra == 1 and too_roomy(need, capacity):
            return roomy(need)
        if shrink and capacity > need + max(2 * SLACK, need // 4):
            return need
        return None

    # -- writing ------------------------------------------------------------------------------------------------

    def append(self, lane: int, k: Tensor, v: Tensor) -> None:
        """Append ``[H, S, D]`` keys and values to one lane. :meth:`commit` must follow once every lane has its own."""
        n, steps = self.n_fp[lane], k.shape[1]
        self.k[lane, :, n : n + steps] = k
        self.v[lane, :, n : n + steps] = v
        self.n_fp[lane] = n + steps

    def commit(self, first: int, hold: list[int], steps: int) -> None:
        """Metadata of the ``steps`` positions just appended to every lane.

        Args:
            first: position of the first of them.
            hold: for each, a sum of SINK, PROTECTED, FRESH and PINNED, or 0 where it competes; empty: all compete.
        """
        if not self.evicts or not self.lanes:
            return
        lengths = self.lengths
        held = sum(h >= PROTECTED for h in hold)
        self.held = [h + held for h in self.held]
        if steps == 1 and min(lengths) == max(lengths):
            row = self.meta[:, :, lengths[0] - 1]
            row.zero_()
            row[..., POS] = first
            if self.origins:
                row[..., ORIGIN] = first + self.shift
            if hold:
                row[..., HOLD] = hold[0]
        else:
            rows = torch.zeros(steps, self.meta.shape[-1], device=self.device)
            rows[:, POS] = torch.arange(first, first + steps, device=self.device, dtype=torch.float32)
            if self.origins:
                rows[:, ORIGIN] = rows[:, POS] + self.shift
            if hold:
                rows[:, HOLD] = torch.tensor(hold, device=self.device, dtype=torch.float32)
            for lane, n in enumerate(lengths):
                self.meta[lane, :, n - steps : n] = rows
        if self.norms is not None:
            note_norms(self, steps)

    def release(self) -> None:
        """Let PROTECTED positions compete from now on; FRESH ones are PROTECTED until the next release."""
        if not self.evicts or not self.lanes:
            return
        hold = self.meta[:, :, : max(self.lengths), HOLD]
        sink, why = hold % 2, hold - hold % 2
        why = torch.where(why == FRESH, float(PROTECTED), torch.where(why == PROTECTED, 0.0, why))
        hold.copy_(why + sink)
        self.held = [int((hold[lane, 0, :n] >= PROTECTED).sum()) for lane, n in enumerate(self.lengths)]

    def held_after_release(self) -> list[int]:
        """What :attr:`held` becomes with :meth:`release`."""
        return [int((self.meta[lane, 0, :n, HOLD] >= FRESH).sum()) for lane, n in enumerate(self.lengths)]

    # -- reading ------------------------------------------------------------------------------------------------

    def fp(self, lane: int) -> tuple[Tensor, Tensor]:
        """Full-precision keys and values of a lane, views ``[1, H, n, D]``."""
        n = self.n_fp[lane]
        return self.k[lane : lane + 1, :, :n], self.v[lane : lane + 1, :, :n]

    def keys(self, part: slice, n: int) -> Tensor:
        """First ``n`` full-precision keys of some lanes (one where :attr:`by_lane`), a view ``[g, H, n, D]``."""
        return self.k[part, :, :n]

    def history(self, lane: int) -> History | None:
        """INT8 part of a lane, views with B = 1; None when empty."""
        n = self.n_history[lane]
        if self.codes is None or not n:
            return None
        h, s = self.codes, slice(lane, lane + 1)
        return History(h.k[s, :, :n], h.v[s, :, :n], h.k_gain[s, :, :n], h.v_gain[s, :, :n], h.k_scale[s], h.v_scale[s])

    def all_history(self) -> History | None:
        """INT8 part of every lane up to the longest, B = G; slots past a lane's own length are meaningless."""
        n = max(self.n_history, default=0)
        if self.codes is None or not n:
            return None
        h = self.codes
        return History(h.k[:, :, :n], h.v[:, :, :n], h.k_gain[:, :, :n], h.v_gain[:, :, :n], h.k_scale, h.v_scale)

    def dequantised(self, lane: int) -> tuple[Tensor, Tensor, Tensor]:
        """Everything a lane holds, in slot order: keys and values ``[H, n, D]`` and :meth:`slot_positions`."""
        k, v = self.fp(lane)
        history = self.history(lane)
        if history is not None:
            k = torch.cat([dequantise(history.k, history.k_gain, history.k_scale, self.dtype), k], 2)
            v = torch.cat([dequantise(history.v, history.v_gain, history.v_scale, self.dtype), v], 2)
        return k[0], v[0], self.slot_positions(lane)

    def positions(self, lane: int) -> Tensor:
        """Positions that a lane holds, ``[H, n]`` int64: increasing in each row, strictly where nothing came back."""
        if not self.evicts:
            return torch.arange(self.lengths[lane], device=self.device).expand(self.heads, -1)
        return self.slot_positions(lane).sort(-1).values

    def slot_positions(self, lane: int) -> Tensor:
        """Position of each slot of a lane, ``[H, n]`` int64. Slot order is no order: a drop may fill its hole with the
        newest slot, and the history precedes the sinks."""
        n = self.lengths[lane]
        if not self.evicts:
            nh, order = self.n_history[lane], torch.arange(n, device=self.device)
            if nh:
                # Slot order is history, sinks, window.
                order[:nh], order[nh : nh + self.sinks] = order[:nh] + self.sinks, order[: self.sinks].clone()
            return order.expand(self.heads, n)
        return self.meta[lane, :, :n, POS].long()

    # -- evicting -----------------------------------------------------------------------------------------------

    def evict(self, score: Tensor, targets: list[int]) -> int:
        """Keep the ``targets[g]`` best-scored slots of every lane.

        Args:
            score: ``[G, H or 1, n]`` float32 over slots, n the longest lane; ``+inf`` stays.
            targets: slots to keep per lane.

        Returns:
            Number of (lane, position) pairs dropped.
        """
        lengths = self.lengths
        targets = [min(t, n) for t, n in zip(targets, lengths, strict=True)]
        dropped = sum(lengths) - sum(targets)
        if not dropped:
            return 0
        drops = [n - t for n, t in zip(lengths, targets, strict=True)]
        if max(drops) == 1:
            self._drop_one(worst(score, lengths), lengths, drops)
        else:
            self._compact(score, lengths, targets, mixed=any(self.n_history))
        return dropped

    def _drop_one(self, gone: Tensor, lengths: list[int], drops: list[int]) -> None:
        """The steady state of decoding: slot ``gone`` ``[G, h]`` leaves each lane that drops one."""
        if self.int8:
            drop_one_mixed(self, gone, drops)
        else:
            self._fill_holes(gone, lengths, drops)

    def _fill_holes(self, gone: Tensor, lengths: list[int], drops: list[int]) -> None:
        """The newest slot of a lane takes the place of the one that leaves.

        One row moves per head, however many are kept. Slots are out of position order until the next compaction.
        """
        last = torch.tensor(lengths, device=self.device).view(-1, 1) - 1
        drop = torch.tensor(drops, device=self.device).view(-1, 1)
        # A lane that drops nothing moves its last slot onto itself.
        gone = torch.where(drop > 0, gone, last).expand(-1, self.heads)
        lane_head = torch.arange(self.lanes * self.heads, device=self.device).view(self.lanes, self.heads)
        for buffer in (self.k, self.v, self.meta):
            rows = buffer.view(-1, buffer.shape[-1])
            to, source = lane_head * buffer.shape[2] + gone, lane_head * buffer.shape[2] + last
            rows.index_copy_(0, to.reshape(-1), rows.index_select(0, source.reshape(-1)))
        self.n_fp = [n - d for n, d in zip(lengths, drops, strict=True)]

    def _compact(self, score: Tensor, lengths: list[int], targets: list[int], *, mixed: bool) -> None:
        """Any number of drops; survivors end up in position order (where there is a history, ``mixed``: in slot order,
        in which the window is sorted anyway)."""
        index = keep_indices(score, lengths, targets)
        widest = index.shape[-1]
        if any(self.n_history):
            index = compact_mixed(self, index, targets)
        else:
            if not mixed:
                heads = index.shape[1]
                position = self.meta[:, :heads, : score.shape[-1], POS].gather(2, index)
                target = torch.tensor(targets, device=self.device).view(-1, 1, 1)
                padding = torch.arange(widest, device=self.device) >= target
                index = index.gather(2, position.masked_fill(padding, float("inf")).argsort(dim=-1, stable=True))
            take_rows(self.k, index, widest)
            take_rows(self.v, index, widest)
            self.n_fp = targets
        take_rows(self.meta, index, widest)

    # -- quantising ---------------------------------------------------------------------------------------------

    def age(self) -> None:
        """Move positions that left the window to the INT8 history, in blocks. No-op unless ``int8``."""
        if not self.int8:
            return
        moves = [max(0, n - self.sinks - self.window) for n in self.n_fp]
        if max(moves, default=0) < _BLOCK:
            return
        for lane, count in enumerate(moves):
            if count >= _BLOCK:
                move_to_history(self, lane, count)
        used, capacity = max(self.n_fp), self.k.shape[2]
        if capacity > used + 4 * _BLOCK:
            self._resize_fp(used + 2 * _BLOCK)

    # -- re-basing ----------------------------------------------------------------------------------------------

    def rebase(self, end: int, inv_freq: list[Tensor | None]) -> None:
        """Give the survivors of every lane compact positions that end at ``end - 1``, and re-rotate their keys.

        Args:
            end: position of the next token.
            inv_freq: RoPE inverse frequencies ``[r / 2]`` of each lane; None leaves keys as they are (learned
                absolute positions cannot be moved).
        """
        for lane in range(self.lanes):
            n, nh = self.lengths[lane], self.n_history[lane]
            old = self.meta[lane, :, :n, POS]
            # Rank of each slot's position: slot order is not position order when there is a history.
            order = self.meta[lane, :, :n, ORIGIN] if self.origins else old
            rank = order.argsort(-1).argsort(-1).float()
            new = rank + (end - n)
            delta = new - old
            freq = inv_freq[lane]
            if freq is not None:
                self.k[lane, :, : n - nh] = rotate(self.k[lane, :, : n - nh], delta[:, nh:], freq)
                turn_history(self, lane, delta[:, :nh], freq)
            self.meta[lane, :, :n, POS] = new

    # -- copies -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Everything stored, trimmed and cloned; :meth:`load_state` restores it exactly."""
        fp, n = max(self.n_fp, default=0), max(self.lengths, default=0)
        out = {
            "k": self.k[:, :, :fp].clone(),
            "v": self.v[:, :, :fp].clone(),
            "meta": self.meta[:, :, :n].clone(),
            "n_fp": torch.tensor(self.n_fp, dtype=torch.int64),
            "n_history": torch.tensor(self.n_history, dtype=torch.int64),
            "held": torch.tensor(self.held, dtype=torch.int64),
        }
        if self.codes is not None:
            nh = max(self.n_history)
            h = self.codes
            for name in ("k", "v", "k_gain", "v_gain"):
                out[f"h_{name}"] = getattr(h, name)[:, :, :nh].clone()
            out["h_k_scale"], out["h_v_scale"] = h.k_scale.clone(), h.v_scale.clone()
        return out

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Inverse of :meth:`state`; the tensors are copied."""
        self.k, self.v, self.meta = (state[x].clone().to(self.device) for x in ("k", "v", "meta"))
        self.n_fp, self.n_history, self.held = ([int(x) for x in state[name]] for name in ("n_fp", "n_history", "held"))
        self.codes = None
        if "h_k" in state:
            names = ("k", "v", "k_gain", "v_gain", "k_scale", "v_scale")
            self.codes = History(*(state[f"h_{name}"].clone().to(self.device) for name in names))
