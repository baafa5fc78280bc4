"""Checkpoints: everything a session holds, as tensors and plain values, and back."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from confkv.manager import Manager
from confkv.telemetry import StepRecord

if TYPE_CHECKING:
    from confkv.session import Session


@dataclass(frozen=True)
class Mark:
    """A point to :meth:`Session.rewind` to. Opaque."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]


def take(session: Session) -> Mark:
    """A copy of everything needed to come back to where the session is."""
    tensors: dict[str, Tensor] = {}
    if session.cache.store is not None:
        tensors.update({f"store.{key}": value for key, value in session.cache.store.state().items()})
    if (manager := session._manager) is not None:
        tensors.update({f"manager.{key}": value for key, value in manager.state().items()})
        if manager.archive is not None:
            tensors.update({f"archive.{key}": value for key, value in manager.archive.state().items()})
    for i, ring in enumerate(session.cache.rings):
        if ring.k is not None and ring.v is not None:
            tensors[f"ring.{i}.k"], tensors[f"ring.{i}.v"] = ring.k.clone(), ring.v.clone()
    tensors.update({f"origin.{i}": table.clone() for i, table in enumerate(session._origins)})
    if session._logits is not None:
        tensors["logits"] = session._logits.clone()
    tensors["rng"] = session._rng.get_state()
    state = {
        "tokens": list(session.tokens),
        "pending": session.pending,
        "position": session.cache.seen,
        "shift": session._shift,
        "confidence": session._confidence,
        "budget": session._budget,
        "counts": dict(session._counts),
        "bytes": dict(session._bytes),
        "seconds": dict(session._seconds),
        "steps": [vars(step) for step in session.steps],
    }
    return Mark(tensors, copy.deepcopy(state))


def restore(session: Session, mark: Mark) -> None:
    """Make the session what it was when the mark was taken; the mark can be used again."""
    tensors, state = mark.tensors, copy.deepcopy(mark.state)
    session.cache = session.engine.new_cache()
    session._manager = None
    if "store.k" in tensors:
        like = tensors["store.k"]
        store = session.cache.store_for(like[:, :, :0].to(session.engine.model.device))
        store.load_state({key[6:]: value for key, value in tensors.items() if key.startswith("store.")})
        store.shift = state["shift"]
        session._manager = Manager(session.engine.policy, store, session.engine.lexicon)
        session._manager.load_state({key[8:]: value for key, value in tensors.items() if key.startswith("manager.")})
        session._manager.read(state["tokens"], state["counts"]["seen"])
        if session._manager.archive is not None:
            archived = {key[8:]: value for key, value in tensors.items() if key.startswith("archive.")}
            session._manager.archive.load_state(archived, session.engine.lane_frequencies()[0])
    for i, ring in enumerate(session.cache.rings):
        if f"ring.{i}.k" in tensors:
            ring.k, ring.v = tensors[f"ring.{i}.k"].clone(), tensors[f"ring.{i}.v"].clone()
    count = sum(key.startswith("origin.") for key in tensors)
    session._origins = [tensors[f"origin.{i}"].clone() for i in range(count)]
    session._logits = tensors["logits"].clone() if "logits" in tensors else None
    session._rng.set_state(tensors["rng"].clone())
    session.tokens, session.pending = state["tokens"], state["pending"]
    session.cache.seen, session._shift = state["position"], state["shift"]
    session._confidence, session._budget = state["confidence"], state["budget"]
    # A file of an earlier version lacks the newer counts.
    session._counts = {**dict.fromkeys(session._counts, 0), **state["counts"]}
    session._bytes, session._seconds = state["bytes"], state["seconds"]
    session.steps = [StepRecord(**step) for step in state["steps"]]
