"""Several sessions in one forward pass: each is what it is alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from confkv.engine import Engine
from confkv.errors import ConfkvError
from confkv.session import Session
from confkv.step import score

_SIZES = "n_high=12,n_low=20,protect=4,sinks=2,tau=0.5"
POLICIES = [
    "full",
    "window:14",
    f"confkv:{_SIZES}",
    f"confkv:{_SIZES},int8=1,w=6",
    f"confkv-l:{_SIZES},floor=8",
    "h2o:16",
    "snapkv:n=18,w=4",
    f"confkv-recall:{_SIZES},page=2",
    f"confkv-look:{_SIZES},page=2,scope=head",
    f"confkv:{_SIZES},guard=0.4",
    f"confkv-mean:{_SIZES},values=1,guard=0.3,heads=ada",
]


def _sessions(model: Any, ids: Any) -> list[Session]:
    """One session a policy, of different lengths and texts, over one set of weights."""
    out = []
    for i, policy in enumerate(POLICIES):
        session = Engine(model, None, policy, chunk=8).session()
        session.extend(ids(20 + 3 * i, i))
        out.append(session)
    return out


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3", "gpt-oss", "gpt2"])
def test_sessions_scored_together_are_as_scored_alone(tiny: Any, ids: Any, family: str) -> None:
    model = tiny(family, max_position_embeddings=200)
    texts = [ids(30, 100 + i) for i in range(len(POLICIES))]
    alone, together = _sessions(model, ids), _sessions(model, ids)
    expected = [session.score(text) for session, text in zip(alone, texts, strict=True)]
    got = score(together, texts)
    for one, other, want, have in zip(alone, together, expected, got, strict=True):
        name = one.engine.policy.spec
        assert have == pytest.approx(want, abs=2e-4), name
        assert other.tokens == one.tokens and other.seen == one.seen
        a, b = one.stats, other.stats
        told = ("evictions", "recalls", "recalled", "looks", "bytes", "peak_bytes", "mean_bytes", "host_bytes")
        assert {k: getattr(b, k) for k in told} == {k: getattr(a, k) for k in told}, name
        for layer in range(one.cache.store.lanes // one.cache.per_layer if one.cache.store else 0):
            assert torch.equal(other.original_positions(layer), one.original_positions(layer)), name
    looked = next(s for s in together if s.engine.policy.looks).stats
    assert looked.looks > 0, "the looks of this test never happened"


def test_only_rows_that_are_uncertain_are_run_again(tiny: Any, ids: Any) -> None:
    """Of two sessions one always looks and one never does: the other's logits must be those of its only pass."""
    model = tiny("llama", max_position_embeddings=200)
    never = Engine(model, None, f"confkv-look:{_SIZES.replace('tau=0.5', 'tau=-1')},page=2", chunk=8)
    always = Engine(model, None, f"confkv-look:{_SIZES},page=2,gate=always", chunk=8)
    pair, alone = [never.session(), always.session()], [never.session(), always.session()]
    for session in (*pair, *alone):
        session.extend(ids(40, 3))
    texts = [ids(12, 5), ids(12, 6)]
    got = score(pair, texts)
    assert [s.stats.looks for s in pair] == [0, 12]
    for have, session, text in zip(got, alone, texts, strict=True):
        assert have == pytest.approx(session.score(text), abs=2e-4)


def test_what_cannot_be_scored_together_is_refused_before_anything_is_fed(tiny: Any, ids: Any) -> None:
    model = tiny("llama")
    engine = Engine(model, None, "full", chunk=8)
    one, other = engine.session(), engine.session()
    for session in (one, other):
        session.extend(ids(6))
    with pytest.raises(ConfkvError, match="as many tokens"):
        score([one, other], [[1, 2], [1]])
    with pytest.raises(ConfkvError, match="different sessions"):
        score([one, one], [[1], [1]])
    stranger = Engine(tiny("llama"), None, "full", chunk=8).session()
    stranger.extend(ids(6))
    with pytest.raises(ConfkvError, match="one model"):
        score([one, stranger], [[1], [1]])
    with pytest.raises(ConfkvError, match="extended"):
        score([one, engine.session()], [[1], [1]])
    assert one.seen == other.seen == 6


def test_a_full_cache_stops_all_before_any_is_fed(tiny: Any, ids: Any) -> None:
    model = tiny("llama", max_position_embeddings=20)
    engine = Engine(model, None, "full", chunk=8)
    short, long = engine.session(), engine.session()
    short.extend(ids(6))
    long.extend(ids(20))
    with pytest.raises(ConfkvError, match="do not fit"):
        score([short, long], [[3], [4]])
    assert (short.seen, long.seen) == (6, 20) and (short.pending, long.pending) == (3, 4)
    assert short.retract() == 3 and short.tokens == ids(6)
    assert len(score([short], [[5]])[0]) == 1
