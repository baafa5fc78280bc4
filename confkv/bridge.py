"""The bridge to transformers: an attention function and a cache whose layers attend inside the session's store.

``CacheLayer.update`` hands keys and values back with the layer attached, and the attention function lets that layer
append and attend. Nothing is concatenated, and the session never travels through model keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import AttentionMaskInterface

from confkv.errors import ConfkvError, ModelError
from confkv.rope import rotate
from confkv.store import POS, Store
from confkv_kernels import attend

NAME = "confkv"
_TAG = "_confkv_layer"
#: Causal masks of a forward pass that are kept for the layers to come.
_MASKS = 8


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    layer = getattr(key, _TAG, None)
    if layer is None:
        raise ConfkvError("this model is bound to a confkv engine; call it through Engine.session()")
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    out: Tensor = layer.attend(query, key, value, scale, softcap, s_aux)
    return out.transpose(1, 2), None


def _mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    return attention_mask


def bind(model: nn.Module) -> None:
    """Route the attention of a transformers model through the layers of a :class:`SessionCache`.

    Raises:
        ModelError: the architecture does not use transformers' attention interface.
    """
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _mask)
    try:
        model.set_attn_implementation(NAME)  # type: ignore[operator]
    except (ValueError, AttributeError) as error:
        raise ModelError(
            f"{type(model).__name__} does not let its attention be replaced ({str(error).splitlines()[0]}); "
            "use a decoder-only model whose class supports transformers' attention interface"
        ) from error


class _Layer(CacheLayerMixin):
    """What both kinds of layer share: identity update, logical length."""

    is_sliding = False

    def __init__(self, cache: SessionCache | Together) -> None:
        super().__init__()
        self.cache = cache

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, scale: float, softcap: float | None, sinks: Tensor | None
    ) -> Tensor:
        """Append k, v ``[B, H, S, D]`` and attend with q ``[B, Hq, S, D]``; returns ``[B, Hq, S, D]``."""
        raise NotImplementedError

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        setattr(key_states, _TAG, self)
        return key_states, value_states

    def get_seq_length(self) -> int:
        return self.cache.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.seen + query_length, 0

    def get_max_length(self) -> int:
        return -1


class StoreLayer(_Layer):
    """A layer whose keys and values live in one lane of the store."""

    def __init__(self, cache: SessionCache, lane: int) -> None:
        super().__init__(cache)
        self.lane = lane

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, scale: float, softcap: float | None, sinks: Tensor | None
    ) -> Tensor:
        """Append k, v ``[1, H, S, D]`` and attend with q ``[1, Hq, S, D]``; returns ``[1, Hq, S, D]``."""
        cache, store, lane = self.cache, self.cache.store_for(k), self.lane
        steps = q.shape[2]
        if cache.fetch is not None:
            cache.fetch(lane, q, scale, softcap)
        store.append(lane, k[0], v[0])
        keys, values = store.fp(lane)
        history = store.history(lane)
        if cache.turns is not None and (freq := cache.lane_frequencies[lane]) is not None:
            slots, delta = cache.turns
            keys = keys.clone()
            keys[:, :, slots] = rotate(keys[:, :, slots], delta, freq)
        mask = cache.causal_mask(store.n_fp[lane] + store.n_history[lane], steps, q.device) if steps > 1 else None
        if cache.records_queries:
            # Of a long chunk a copy: a view would keep all of its queries.
            cache.queries.append(q if steps <= cache.rows else q[:, :, -cache.rows :].clone())
            cache.scales.append(scale)
            cache.softcaps.append(softcap)
            cache.sink_logits.append(sinks)
        return attend(q, keys, values, scale=scale, mask=mask, history=history, sinks=sinks, softcap=softcap)


class HeadLayer(_Layer):
    """A layer whose KV heads live in lanes of their own, so that each holds as many positions as it is given."""

    def __init__(self, cache: SessionCache, lanes: range) -> None:
        super().__init__(cache)
        self.heads = [StoreLayer(cache, lane) for lane in lanes]

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, scale: float, softcap: float | None, sinks: Tensor | None
    ) -> Tensor:
        """As :meth:`StoreLayer.attend`, head by head."""
        groups = q.shape[1] // len(self.heads)
        learned = [None] * len(self.heads) if sinks is None else sinks.split(groups)
        parts = zip(self.heads, q.split(groups, 1), k.split(1, 1), v.split(1, 1), learned, strict=True)
        return torch.cat([head.attend(x, y, z, scale, softcap, sink) for head, x, y, z, sink in parts], 1)


class RingLayer(_Layer):
    """A sliding-window layer: the newest ``window - 1`` positions, never ranked, never evicted by score."""

    is_sliding = True

    def __init__(self, cache: SessionCache, window: int) -> None:
        super().__init__(cache)
        self.window = window
        self.k: Tensor | None = None
        self.v: Tensor | None = None

    @property
    def length(self) -> int:
        """Positions held."""
        return 0 if self.k is None else self.k.shape[2]

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, scale: float, softcap: float | None, sinks: Tensor | None
    ) -> Tensor:
        """As :meth:`StoreLayer.attend`, within the window."""
        steps = q.shape[2]
        keys = k if self.k is None else torch.cat([self.k, k], 2)
        values = v if self.v is None else torch.cat([self.v, v], 2)
        n = keys.shape[2]
        mask = None
        if steps > 1:
            row = torch.arange(n - steps, n, device=q.device).unsqueeze(1)
            col = torch.arange(n, device=q.device)
            mask = (col <= row) & (col > row - self.window)
        keep = min(n, self.window - 1)
        self.k, self.v = keys[:, :, n - keep :].clone(), values[:, :, n - keep :].clone()
        return attend(q, keys, values, scale=scale, mask=mask, sinks=sinks, softcap=softcap)


class SessionCache(Cache):
    """The cache object a transformers model sees: one session's store and rings.

    Attributes:
        seen: logical length as the model sees it (the position of the next token).
        rows: newest query rows of a forward pass that are recorded; 0: none.
        per_layer: lanes of one layer: one, or one for each KV head.
        queries, scales, softcaps, sink_logits: per lane, what the manager needs to compute attention mass.
        lane_frequencies: RoPE inverse frequencies of the lanes, where attention is to see keys at their index in the
            cache (StreamingLLM); else empty.
        fetch: called by each lane with its queries ``[1, Hq, S, D]``, scale and softcap before it attends with them; it
            may exchange what the lane holds, not how much. None: nothing is to be done.
        turns: for this forward pass, slots whose keys do not sit at their index, and by how much; None: all do.
    """

    def __init__(
        self,
        windows: list[int | None],
        make_store: Any,
        rows: int,
        lane_frequencies: Sequence[Tensor | None] = (),
        per_layer: int = 1,
    ) -> None:
        self.per_layer = per_layer
        self.seen = 0
        self.rows = rows
        self.records_queries = rows > 0
        self.lane_frequencies = lane_frequencies
        self.turns: tuple[Tensor, Tensor] | None = None
        self.fetch: Callable[[int, Tensor, float, float | None], None] | None = None
        self._make_store = make_store
        self.store: Store | None = None
        self.queries: list[Tensor] = []
        self.scales: list[float] = []
        self.softcaps: list[float | None] = []
        self.sink_logits: list[Tensor | None] = []
        self._masks: dict[tuple[int, int], Tensor] = {}
        layers: list[CacheLayerMixin] = []
        lane = 0
        for window in windows:
            if window is None:
                heads = range(lane, lane + per_layer)
                layers.append(StoreLayer(self, lane) if per_layer == 1 else HeadLayer(self, heads))
                lane += per_layer
            else:
                layers.append(RingLayer(self, window))
        super().__init__(layers=layers)

    @property
    def rings(self) -> list[RingLayer]:
        """Sliding-window layers, first layer first."""
        return [layer for layer in self.layers if isinstance(layer, RingLayer)]

    def begin(self, steps: int) -> None:
        """Forget the previous forward and make room for ``steps`` positions."""
        for items in (self.queries, self.scales, self.softcaps, self.sink_logits):
            items.clear()  # type: ignore[attr-defined]
        self._masks.clear()
        if self.store is not None:
            self.store.reserve(steps)
            self.turns = self._cache_positions(self.store) if self.lane_frequencies else None

    def _cache_positions(self, store: Store) -> tuple[Tensor, Tensor] | None:
        """Positions counted back from the new tokens, so that only keys before a gap move, towards them.

        Every lane and head holds the same positions: the ranking is by age, the budget the same for all.
        """
        position = store.meta[0, 0, : store.lengths[0], POS]
        delta = position.argsort().argsort() + (self.seen - position.shape[0]) - position
        slots = delta.nonzero().flatten()
        return (slots, delta[slots]) if slots.numel() else None

    def store_for(self, k: Tensor) -> Store:
        """The store, created at the first key with its shape, dtype and device."""
        if self.store is None:
            store: Store = self._make_store(k.shape[1], k.shape[3], k.dtype, k.device)
            store.reserve(k.shape[2])
            self.store = store
        return self.store

    def causal_mask(self, n: int, steps: int, device: torch.device) -> Tensor:
        """bool ``[steps, n]``: the last ``steps`` of n slots are the queries' own."""
        key = (n, steps)
        if key not in self._masks:
            if len(self._masks) == _MASKS:  # lanes of unequal lengths have little use for each other's
                self._masks.clear()
            row = torch.arange(n - steps, n, device=device).unsqueeze(1)
            self._masks[key] = torch.arange(n, device=device) <= row
        return self._masks[key]


class _Rows(_Layer):
    """One layer of several sessions: each row of the batch attends in its own session's layer."""

    def __init__(self, cache: Together, rows: list[_Layer]) -> None:
        super().__init__(cache)
        self.rows = rows
        self.is_sliding = rows[0].is_sliding

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, scale: float, softcap: float | None, sinks: Tensor | None
    ) -> Tensor:
        each = [
            row.attend(q[i : i + 1], k[i : i + 1], v[i : i + 1], scale, softcap, sinks)
            for i, row in enumerate(self.rows)
        ]
        return torch.cat(each)


class Together(Cache):
    """The caches of several sessions, one a row of the batch, as a model sees them in a forward pass for all."""

    def __init__(self, caches: Sequence[SessionCache]) -> None:
        self.seen = max(cache.seen for cache in caches)
        super().__init__(layers=[_Rows(self, list(rows)) for rows in zip(*(c.layers for c in caches), strict=True)])
