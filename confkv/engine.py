"""Engine: a model bound to the store, with a tokenizer and a policy. It opens sessions."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from confkv import bridge
from confkv.batch import Batch
from confkv.errors import ModelError
from confkv.policies import Policy, parse_policy
from confkv.ragged import RaggedStore
from confkv.rarity import Lexicon
from confkv.rope import inverse_frequencies, require_movable
from confkv.session import Session
from confkv.store import Store


class Engine:
    """A causal language model whose KV cache is managed by a policy.

    Args:
        model: a transformers causal LM; its attention is replaced, so it must not be used elsewhere afterwards.
        tokenizer: its tokenizer; may be None when only token ids are used.
        policy: a :class:`Policy` or its command-line form.
        name: shown in messages and records.
        chunk: positions prefilled at a time; evictions happen between chunks.
        fingerprint: identity of the weights, checked by :meth:`Session.load`; computed when empty.

    Raises:
        PolicyError, ModelError
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        policy: str | Policy = "confkv",
        name: str = "",
        *,
        chunk: int = 512,
        fingerprint: str = "",
    ) -> None:
        if chunk < 1:
            raise ModelError(f"chunk={chunk} must be at least 1")
        self.policy = parse_policy(policy) if isinstance(policy, str) else policy
        self.model, self.tokenizer, self.name, self.chunk = model.eval(), tokenizer, name, chunk
        config = model.config.get_text_config()
        self.config = config
        self.windows = _layer_windows(config)
        self.layer_types = list(getattr(config, "layer_types", None) or ["full_attention"] * len(self.windows))
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._lanes_per_layer = heads if self.policy.shares is not None else 1
        self._token_layer_bytes = 2 * heads * dim * model.dtype.itemsize
        if self.policy.cache_positions:
            require_movable(model, self.policy.name)
        bridge.bind(model)
        names = inspect.signature(model.forward).parameters
        # transformers 5.24 renamed the argument.
        self._cache_argument = "cache" if "cache" in names else "past_key_values"
        self._keeps_logits = "logits_to_keep" in names
        self.lexicon = Lexicon(tokenizer, config.vocab_size) if self.policy.guard else None
        limit = getattr(config, "max_position_embeddings", None)
        self.max_positions: int | None = int(limit) if limit else None
        self.fingerprint = fingerprint or _fingerprint(model)

    @classmethod
    def load(
        cls,
        model: str | None = None,
        policy: str | Policy = "confkv",
        device: str = "cpu",
        dtype: str = "auto",
        chunk: int = 512,
    ) -> Engine:
        """Load a model by alias, hub id, folder or GGUF file (see :func:`confkv.models.load`)."""
        from confkv import models

        # A wrong policy must be told before the minutes that loading can take.
        parsed = parse_policy(policy) if isinstance(policy, str) else policy
        loaded = models.load(model or models.DEFAULT_ALIAS, dtype=dtype, device=device)
        return cls(loaded.model, loaded.tokenizer, parsed, loaded.name, chunk=chunk, fingerprint=loaded.fingerprint)

    @property
    def bytes_per_token(self) -> int:
        """Bytes that full KV holds per position, over all layers without a sliding window."""
        return self._token_layer_bytes * sum(window is None for window in self.windows)

    def full_bytes(self, seen: int) -> int:
        """Bytes that full KV would hold after ``seen`` positions, sliding-window layers at their window."""
        ring = sum(min(seen, window - 1) for window in self.windows if window is not None)
        return self.bytes_per_token * seen + self._token_layer_bytes * ring

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end a reply: the tokenizer's and the generation config's."""
        ids: set[int] = set()
        config = getattr(self.model, "generation_config", None)
        for source in (getattr(config, "eos_token_id", None), getattr(self.tokenizer, "eos_token_id", None)):
            if isinstance(source, int):
                ids.add(source)
            elif source:
                ids.update(int(x) for x in source)
        return frozenset(ids)

    def session(self) -> Session:
        """A new, empty session."""
        return Session(self)

    def decode(self, sessions: Iterable[Session] = (), **options: Any) -> Batch:
        """A batch that decodes several sessions together, each with its own length.

        Args:
            sessions: those that take part from the start.
            options: for all of them, as for :meth:`Batch.add`.

        Raises:
            ConfkvError: as :meth:`Batch.add`.
        """
        batch = Batch(self)
        for session in sessions:
            batch.add(session, **options)
        return batch

    def new_cache(self) -> bridge.SessionCache:
        """An empty cache for one session."""
        recalls = self.policy.recall is not None
        each = self._lanes_per_layer
        lanes = each * sum(window is None for window in self.windows)
        storage = self.policy.storage
        make = partial(
            _make_store,
            RaggedStore if self.policy.uneven else Store,
            lanes,
            int8=storage.int8,
            window=storage.window,
            sinks=max(self.policy.sinks, 4) if storage.int8 else self.policy.sinks,
            evicts=self.policy.evicts,
            columns=self.policy.ranker.columns,
            origins=recalls or self.policy.guard > 0,
            norms=self.policy.ranker.norms,
            per_layer=each,
        )
        # A recall needs the newest query at least.
        rows = max(self.policy.ranker.rows, int(recalls)) if self.policy.evicts and lanes else 0
        frequencies = self.lane_frequencies()[0] if self.policy.cache_positions else []
        return bridge.SessionCache(self.windows, make, rows, frequencies, each)

    def lane_frequencies(self) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """RoPE inverse frequencies of the lanes and of the rings."""
        freqs = inverse_frequencies(self.model, self.layer_types)
        pairs = list(zip(freqs, self.windows, strict=True))
        each = range(self._lanes_per_layer)
        return [f for f, w in pairs if w is None for _ in each], [f for f, w in pairs if w is not None]

    @torch.no_grad()
    def forward(self, ids: Tensor, positions: Tensor, cache: bridge.SessionCache | bridge.Together) -> Tensor:
        """Raw logits after the last of ``ids`` ``[B, S]`` at ``positions`` ``[B, S]``: ``[V]``, or ``[B, V]`` from the
        caches of several sessions."""
        arguments: dict[str, Any] = {self._cache_argument: cache, "position_ids": positions, "use_cache": True}
        if self._keeps_logits:
            arguments["logits_to_keep"] = 1
        logits: Tensor = self.model(input_ids=ids, **arguments).logits
        return logits[:, -1] if isinstance(cache, bridge.Together) else logits[0, -1]


def _make_store(
    layout: type[Store],
    lanes: int,
    heads: int,
    dim: int,
    dtype: torch.dtype,
    device: torch.device,
    **options: Any,
) -> Store:
    return layout(lanes, heads, dim, dtype, device, **options)


def _layer_windows(config: Any) -> list[int | None]:
    """Sliding window of each layer, None for layers that see everything."""
    layers = int(config.num_hidden_layers)
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        kinds = ["sliding_attention" if window is not None else "full_attention"] * layers
    unknown = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if unknown:
        kinds_text = ", ".join(unknown)
        raise ModelError(f"layers of type {kinds_text} are not supported; use a model with full or sliding attention")
    return [int(window) if kind == "sliding_attention" and window else None for kind in kinds]


def _fingerprint(model: Any) -> str:
    """Identity of a model: its configuration and a sample of its weights."""
    config = model.config.to_dict()
    for key in ("_name_or_path", "transformers_version", "dtype", "torch_dtype"):
        config.pop(key, None)
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for parameter in list(model.parameters())[:4]:
        digest.update(parameter.detach().flatten()[:1024].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:32]
