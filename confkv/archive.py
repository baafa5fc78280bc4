"""The archive: keys and values of positions that a store may evict, in host memory, in pages with one centre each."""

from __future__ import annotations

import torch
from torch import Tensor

from confkv.policies.recall import Recall
from confkv.rope import rotate
from confkv.rows import read_rows, used
from confkv.store import ORIGIN, POS, Store
from confkv_kernels import calibrate, dequantise, quantise


class Archive:
    """Pages of consecutive tokens of every lane, each archived once, shortly before it can be evicted.

    A *row* is one token of one lane and head. Since all tokens up to :attr:`end` are here, whatever a lane or head
    evicts is, and what was recalled and is dropped again still is. Pages live in a ring: past the byte limit a new page
    takes the place of the oldest. Keys stay rotated to the position that they had when they were archived; ``now`` and
    ``turn`` are allocated at the first re-basing and tell the position that a row has by now, and by how much it moved.

    Attributes:
        first, end: origins (tokens fed before) of the oldest row and behind the newest, multiples of the page size.
    """

    def __init__(self, store: Store, recall: Recall) -> None:
        self.page, self.coded, self.dtype = recall.page, recall.storage == "int8", store.dtype
        self.shape = (store.lanes, store.heads, store.dim)
        self.on_device = recall.index == "device"
        index = store.device if self.on_device else torch.device("cpu")
        lanes, heads, dim = self.shape
        kind = torch.int8 if self.coded else store.dtype
        self.k = torch.zeros(lanes, heads, 0, dim, dtype=kind)
        self.v = torch.zeros_like(self.k)
        self.k_gain = torch.zeros(lanes, heads, 0)
        self.v_gain = torch.zeros_like(self.k_gain)
        self.k_scale = torch.ones(lanes, heads, 1, dim)
        self.v_scale = torch.ones_like(self.k_scale)
        #: mean key of each page
        self.centre = torch.zeros(lanes, heads, 0, dim, dtype=torch.float16, device=index)
        self.now: Tensor | None = None
        self.turn: Tensor | None = None
        self.end = 0
        #: RoPE inverse frequencies of each lane, needed once rows have moved
        self.inv_freq: list[Tensor | None] = [None] * lanes
        # The bytes of positions are counted from the start: a re-basing must not push the archive past its limit.
        row = 2 * dim * self.k.element_size() + (8 if self.coded else 0) + 8
        each = lanes * heads * (self.page * row + (0 if self.on_device else 2 * dim))
        fixed = self.k_scale.nbytes + self.v_scale.nbytes
        self.max_pages = max(0, int(recall.megabytes * 1e6) - fixed) // each

    # -- sizes --------------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        return max(0, self.end - self.max_pages * self.page)

    @property
    def pages(self) -> int:
        """Pages held."""
        return (self.end - self.first) // self.page

    @property
    def host_bytes(self) -> int:
        """Bytes allocated in host memory."""
        held = [self.k, self.v, self.k_gain, self.v_gain, self.k_scale, self.v_scale, self.now, self.turn]
        return sum(t.nbytes for t in held if t is not None) + (0 if self.on_device else self.centre.nbytes)

    @property
    def device_bytes(self) -> int:
        """Bytes allocated on the device of the store."""
        return self.centre.nbytes if self.on_device else 0

    def _resize(self, pages: int) -> None:
        rows = pages * self.page
        self.k, self.v = Store.resized(self.k, self.k.shape[2], rows), Store.resized(self.v, self.v.shape[2], rows)
        if self.coded:
            used = self.k_gain.shape[2]
            self.k_gain, self.v_gain = (Store.resized(x, used, rows) for x in (self.k_gain, self.v_gain))
        if self.now is not None and self.turn is not None:
            used = self.now.shape[2]
            self.now, self.turn = (Store.resized(x, used, rows) for x in (self.now, self.turn))
        self.centre = Store.resized(self.centre, self.centre.shape[2], pages)

    def page_starts(self) -> Tensor:
        """Origin of the first row of each page, ``[P]`` int64, in the order in which pages are stored."""
        pages = self.pages
        order = torch.arange(pages)
        if pages == self.max_pages:
            order += self.max_pages * ((self.end // self.page - 1 - order) // max(self.max_pages, 1))
        return order * self.page

    def rows_of(self, origin: Tensor) -> Tensor:
        """Row of each origin; meaningless where it is not between :attr:`first` and :attr:`end`."""
        page = torch.div(origin, self.page, rounding_mode="floor")
        return page % max(self.max_pages, 1) * self.page + origin % self.page

    # -- writing ------------------------------------------------------------------------------------------------

    def cover(self, store: Store, end: int) -> None:
        """Archive every token before origin ``end`` that is not here yet; the store must still hold them all."""
        end = -(-end // self.page) * self.page
        first = max(self.end, end - self.max_pages * self.page)
        if end <= self.end:
            return
        fresh, self.end = self.end == 0, end
        if first >= end:
            return
        need = min(end // self.page, self.max_pages)
        if need > self.centre.shape[2]:
            self._resize(min(self.max_pages, need + max(8, need // 8)))
        meta = store.meta[:, :, : max(store.lengths)]
        origin = meta[..., ORIGIN].long()
        new = (origin >= first) & (origin < end) & used(store.lengths, origin.shape[-1], store.device)
        lane, head, slot = new.nonzero(as_tuple=True)
        slots = torch.zeros(*self.shape[:2], end - first, dtype=torch.int64, device=store.device)
        slots[lane, head, origin[new] - first] = slot
        k, v = (x.to("cpu") for x in read_rows(store, slots))
        rows = self.rows_of(torch.arange(first, end))
        if self.coded:
            if fresh:
                self.k_scale, self.v_scale = calibrate(k), calibrate(v)
            self.k[:, :, rows], self.k_gain[:, :, rows] = quantise(k, self.k_scale)
            self.v[:, :, rows], self.v_gain[:, :, rows] = quantise(v, self.v_scale)
        else:
            self.k[:, :, rows], self.v[:, :, rows] = k, v
        if self.now is not None and self.turn is not None:
            self.now[:, :, rows] = meta[..., POS].gather(2, slots).to("cpu", torch.int32)
            self.turn[:, :, rows] = 0
        self._index(k, rows)

    def _index(self, k: Tensor, rows: Tensor) -> None:
        """Centres of whole pages from their keys ``[G, H, m, D]`` at ``rows`` ``[m]``."""
        pages = (rows[:: self.page] // self.page).to(self.centre.device)
        mean = k.float().unflatten(2, (-1, self.page)).mean(3)
        self.centre[:, :, pages] = mean.to(self.centre.device, self.centre.dtype)

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, lane: Tensor, head: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        """Keys, turned to where they belong by now, and values of N rows: two of ``[N, D]`` in the store's dtype."""
        # Flat indices: picking rows by three indices takes several times as long.
        which = lane * self.shape[1] + head
        flat = which * self.k.shape[2] + row
        k, v = (x.reshape(-1, self.shape[2]).index_select(0, flat) for x in (self.k, self.v))
        if self.coded:
            gains = [x.flatten().index_select(0, flat) for x in (self.k_gain, self.v_gain)]
            scales = [x.reshape(-1, self.shape[2]).index_select(0, which) for x in (self.k_scale, self.v_scale)]
            k = dequantise(k, gains[0], scales[0], self.dtype if self.turn is None else torch.float32)
            v = dequantise(v, gains[1], scales[1], self.dtype)
        if self.turn is not None:
            k = self._turned(k, lane, self.turn.flatten().index_select(0, flat)).to(self.dtype)
        return k, v

    def _turned(self, k: Tensor, lane: Tensor, turn: Tensor) -> Tensor:
        for each in lane.unique().tolist():
            freq, mine = self.inv_freq[each], lane == each
            if freq is not None:
                k[mine] = rotate(k[mine], turn[mine], freq.to(k.device))
        return k

    def positions(self, lane: Tensor, head: Tensor, row: Tensor, origin: Tensor) -> Tensor:
        """Position by now of N rows with the given origins."""
        return origin if self.now is None else self.now[lane, head, row].long()

    # -- re-basing ----------------------------------------------------------------------------------------------

    def rebase(self, survivors: list[Tensor], end: int, inv_freq: list[Tensor | None]) -> None:
        """Give every row the position of the newest survivor that is not newer than it, of the oldest to older ones.

        So rows keep their order, and no distance grows beyond what the model was trained on.

        Args:
            survivors: per lane ``[H, n]`` int64, sorted origins of what the store holds, now at ``end - n .. end - 1``.
            end: position of the next token.
            inv_freq: RoPE inverse frequencies of each lane; None leaves keys as they are.
        """
        self.inv_freq = inv_freq
        if not self.pages:
            return
        starts = self.page_starts()
        origin = (starts.unsqueeze(-1) + torch.arange(self.page)).flatten()
        if self.now is None or self.turn is None:
            self.now = torch.zeros(self.k.shape[:3], dtype=torch.int32)
            self.turn = torch.zeros_like(self.now)
            self.now[:, :, : origin.shape[0]] = origin
        rows = torch.arange(origin.shape[0])
        for lane, held in enumerate(survivors):
            known = held.to("cpu").contiguous()
            at = torch.searchsorted(known, origin.expand(known.shape[0], -1).contiguous(), right=True) - 1
            new = (at.clamp_(min=0) + end - known.shape[1]).int()
            self.turn[lane, :, rows] += new - self.now[lane, :, rows]
            self.now[lane, :, rows] = new
        lanes = torch.arange(self.shape[0]).repeat_interleave(self.shape[1] * rows.shape[0])
        heads = torch.arange(self.shape[1]).repeat_interleave(rows.shape[0]).repeat(self.shape[0])
        keys, _ = self.read(lanes, heads, rows.repeat(self.shape[0] * self.shape[1]))
        self._index(keys.view(*self.shape[:2], -1, self.shape[2]), rows)

    # -- copies -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Everything held, trimmed and cloned; :meth:`load_state` restores it exactly."""
        rows = self.pages * self.page
        out = {"end": torch.tensor(self.end), "k": self.k[:, :, :rows].clone(), "v": self.v[:, :, :rows].clone()}
        out["centre"] = self.centre[:, :, : self.pages].clone()
        if self.coded:
            out |= {"k_gain": self.k_gain[:, :, :rows].clone(), "v_gain": self.v_gain[:, :, :rows].clone()}
            out |= {"k_scale": self.k_scale.clone(), "v_scale": self.v_scale.clone()}
        if self.now is not None and self.turn is not None:
            out |= {"now": self.now[:, :, :rows].clone(), "turn": self.turn[:, :, :rows].clone()}
        return out

    def load_state(self, state: dict[str, Tensor], inv_freq: list[Tensor | None]) -> None:
        """Inverse of :meth:`state`; the tensors are copied."""
        self.end = int(state["end"])
        self.k, self.v = state["k"].clone(), state["v"].clone()
        self.centre = state["centre"].clone().to(self.centre.device)
        if self.coded:
            self.k_gain, self.v_gain = state["k_gain"].clone(), state["v_gain"].clone()
            self.k_scale, self.v_scale = state["k_scale"].clone(), state["v_scale"].clone()
        self.now, self.turn = (state[x].clone() if x in state else None for x in ("now", "turn"))
        self.inv_freq = inv_freq
