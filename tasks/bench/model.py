"""A loaded model as the benches use it: one set of weights under every policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confkv.policies import Policy


@dataclass(frozen=True)
class Model:
    """Weights, tokenizer, and how they were asked for. ``dtype`` is the one in use, e.g. ``bfloat16``."""

    net: Any
    tokenizer: Any
    name: str
    fingerprint: str
    dtype: str
    device: str
    chunk: int = 512

    @property
    def parameters(self) -> dict[str, str | int]:
        """What of this changes figures beside the weights."""
        return {"dtype": self.dtype, "device": self.device.partition(":")[0], "chunk": self.chunk}

    def engine(self, policy: Policy) -> Any:
        """An engine over these weights. The weights are shared: engines take turns."""
        from confkv.engine import Engine

        return Engine(self.net, self.tokenizer, policy, self.name, chunk=self.chunk, fingerprint=self.fingerprint)


def load(name: str, *, dtype: str = "auto", device: str = "cpu", chunk: int = 512) -> Model:
    """Load a model by alias, hub id, folder or GGUF file.

    Raises:
        ModelError: it cannot be found, fetched or loaded.
    """
    from confkv import models
    from tasks.live import fetch_progress

    loaded = models.load(name, dtype=dtype, device=device, progress=fetch_progress())
    kind = str(loaded.model.dtype).removeprefix("torch.")
    return Model(loaded.model, loaded.tokenizer, name, loaded.fingerprint, kind, str(loaded.model.device), chunk)
