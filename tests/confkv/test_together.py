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
    f"confkv-look:{_SIZES},page=2,gate=random,index=device",
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
        told = (
            "evictions",
            "recalls",
            "recalled",
            "looks",
            "fetched",
            "bytes",
            "peak_bytes",
            "mean_bytes",
            "host_bytes",
        )
        assert {k: getattr(b, k) for k in told} == {k: getattr(a, k) for k in told}, name
        same = [[(s.looked, s.recalled, s.budget, s.kept) for s in each.steps] for each in (one, other)]
        assert same[0] == same[1] and one._uncertain == other._uncertain, name
        for layer in range(one.cache.store.lanes // one.cache.per_layer if one.cache.store else 0):
            assert torch.equal(other.original_positions(layer), one.original_positions(layer)), name
    looked = next(s for s in together if s.engine.policy.looks).stats
    assert looked.looks > 0, "the looks of this test never happened"


def test_only_rows_that_are_uncertain_are_run_again(tiny: Any, ids: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some rows look and others do not: each row's logits are those of its own last pass, alone or not."""
    model = tiny("gemma3", max_position_embeddings=200)
    never = Engine(model, None, f"confkv-look:{_SIZES.replace('tau=0.5', 'tau=-1')},page=2", chunk=8)
    always = Engine(model, None, f"confkv-look:{_SIZES},page=2,gate=always", chunk=8)
    some = Engine(model, None, f"confkv-look:{_SIZES},page=2,scope=head", chunk=8)
    recall = Engine(model, None, f"confkv-recall:{_SIZES},page=2,scope=head", chunk=8)
    engines = [never, some, always, some, recall]
    rows: dict[str, list[int]] = {"all": [], "again": []}

    def spied(engine: Engine, which: str) -> Any:
        plain = engine.forward

        def forward(tokens: torch.Tensor, at: torch.Tensor, cache: Any) -> torch.Tensor:
            rows[which].append(tokens.shape[0])
            return plain(tokens, at, cache)

        return forward

    together, alone = ([engine.session() for engine in engines] for _ in range(2))
    for own in (together, alone):
        for i, session in enumerate(own):
            session.extend(ids(40 + i, 3 + i))
    texts = [ids(40, 10 + i) for i in range(len(engines))]
    with monkeypatch.context() as patched:
        # The engine of the first session of a pass runs it for all.
        patched.setattr(never, "forward", spied(never, "all"))
        patched.setattr(some, "forward", spied(some, "again"))
        got = score(together, texts)
    for have, one, other, text in zip(got, alone, together, texts, strict=True):
        assert have == pytest.approx(one.score(text), abs=2e-4)
        same = [[(s.looked, s.recalled, s.budget, s.kept) for s in each.steps] for each in (one, other)]
        assert same[0] == same[1] and one._uncertain == other._uncertain
        assert [s.confidence for s in other.steps] == pytest.approx([s.confidence for s in one.steps], abs=2e-4)
    looks = [[step.looked for step in session.steps] for session in together]
    assert [any(own) for own in looks] == [False, True, False, True, False]
    assert looks[1] != looks[3] and any(a and b for a, b in zip(looks[1], looks[3], strict=True))
    assert rows["all"] == [5] * 40
    assert rows["again"] == [n for n in map(sum, zip(*looks, strict=True)) if n]


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
