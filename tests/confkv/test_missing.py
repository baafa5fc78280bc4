"""The gate of a layer's exchange: what opens it, how often, and that it goes on where it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from confkv import step
from confkv.engine import Engine
from confkv.errors import PolicyError
from confkv.missing import missing
from confkv.policies import parse_policy
from confkv.session import Session
from confkv.store import ORIGIN

POLICY = "confkv-recall:n_high=20,n_low=20,protect=4,sinks=2,page=2,opening=0,rate=0.3,missing=0.75,gate="


def _engine(tiny: Any, gate: str) -> Engine:
    return Engine(tiny("llama", max_position_embeddings=400), None, POLICY + gate, chunk=8)


def _session(tiny: Any, ids: Any, gate: str) -> Session:
    session = _engine(tiny, gate).session()
    session.extend(ids(70, 2))
    return session


def test_a_page_that_is_asked_for_opens_and_none_closes(tiny: Any, ids: Any) -> None:
    session = _session(tiny, ids, "missing")
    store, manager = session.cache.store, session._manager
    assert store is not None and manager is not None and manager.archive is not None
    archive, n = manager.archive, store.lengths[0]
    held = set(store.meta[0, :, :n, ORIGIN].long().flatten().tolist())
    page = next(p for p in range(archive.pages) if not held & {2 * p, 2 * p + 1})
    direction = torch.nn.functional.normalize(archive.centre[0, 0, page].float(), dim=0)
    archive.centre[0, :, page] = (100 * direction).half()
    q = direction.expand(1, 4, 1, -1)
    assert missing(store, archive, 0, q, 1.0) > 0.99
    archive.centre[0] = 0
    store.k[0, :, 0] = 100 * direction
    assert missing(store, archive, 0, q, 1.0) < 0.01
    # All logits equal: the share of positions that are absent.
    for head in range(store.heads):
        origins = store.meta[0, head, :n, ORIGIN]
        assert origins.unique().numel() == n
    inside = int((store.meta[0, 0, :n, ORIGIN] < archive.end).sum())
    absent = archive.end - inside
    zero = torch.zeros(1, 4, 1, store.dim)
    assert missing(store, archive, 0, zero, 1.0) == pytest.approx(absent / (absent + n), abs=1e-5)


@pytest.mark.parametrize(("threshold", "opens"), [(0.0, True), (1.0, False)])
def test_the_threshold_decides(threshold: float, opens: bool, tiny: Any, ids: Any) -> None:
    engine = Engine(
        tiny("llama"),
        None,
        f"confkv-recall:n_high=20,n_low=20,opening=0,protect=4,gate=missing,missing={threshold}",
        chunk=8,
    )
    session = engine.session()
    session.extend(ids(70, 2))
    session.score(ids(20, 4))
    assert session.stats.due > 0 and session.stats.exchanged == opens * session.stats.due


def test_the_control_reaches_its_rate(tiny: Any, ids: Any) -> None:
    session = _session(tiny, ids, "layers")
    session.score(ids(300, 4))
    assert session.stats.due >= 600 and session.stats.exchanged / session.stats.due == pytest.approx(0.3, abs=0.06)


@pytest.mark.parametrize("gate", ["missing", "layers"])
def test_it_goes_on_where_it_stopped(gate: str, tiny: Any, ids: Any, tmp_path: Path) -> None:
    whole, more = _session(tiny, ids, gate), ids(40, 4)
    whole.score(more[:20])
    fork, mark = whole.fork(), whole.checkpoint()
    whole.save(tmp_path / "s")
    loaded = Session.load(tmp_path / "s", whole.engine)
    rest = whole.score(more[20:])
    stats = whole.stats
    assert 0 < stats.exchanged < stats.due
    assert fork.score(more[20:]) == loaded.score(more[20:]) == rest
    assert fork.stats.exchanged == loaded.stats.exchanged == stats.exchanged
    whole.rewind(mark)
    assert whole.score(more[20:]) == rest


@pytest.mark.parametrize("gate", ["missing", "layers"])
def test_several_at_once_are_as_alone(gate: str, tiny: Any, ids: Any) -> None:
    engine = _engine(tiny, gate)
    alone, batch = ([engine.session() for _ in range(2)] for _ in range(2))
    for sessions in (alone, batch):
        for i, session in enumerate(sessions):
            session.extend(ids(70, i))
    texts = [ids(30, 8), ids(30, 9)]
    both = step.score(batch, texts)
    for one, other, text, scores in zip(alone, batch, texts, both, strict=True):
        assert one.score(text) == pytest.approx(scores, abs=1e-4)
        assert one.stats.exchanged == other.stats.exchanged


def test_an_int8_history_is_refused() -> None:
    with pytest.raises(PolicyError, match="int8=0"):
        parse_policy("confkv-recall:gate=missing,int8=1")


@pytest.mark.parametrize("value", ["-0.1", "1.5"])
def test_a_share_lies_between_0_and_1(value: str) -> None:
    with pytest.raises(PolicyError, match="missing"):
        parse_policy(f"confkv-recall:gate=missing,missing={value}")
