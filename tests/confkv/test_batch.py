"""Sessions decoded in a batch: each yields the tokens, and ends in the state, that it has alone."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from confkv.engine import Engine
from confkv.errors import ConfkvError
from confkv.session import Session

_SIZES = "n_high=12,n_low=20,protect=4,sinks=2,tau=0.5"
POLICIES = [
    "full",
    "window:14",
    f"confkv:{_SIZES}",
    f"confkv:{_SIZES},int8=1,w=6",
    f"confkv-l:{_SIZES},floor=8",
    f"confkv-recall:{_SIZES},page=2",
    f"confkv-look:{_SIZES},page=2",
    "h2o:16",
]
ROWS, LONGEST = 8, 40
#: tokens of each row: one ends early, the last one joins late
LIMITS = [40, 33, 5, 28, 40, 21, 17, 30]
JOINS_AT = 6


def _sessions(engine: Engine, ids: Any) -> list[Session]:
    """Eight sessions of different lengths and texts."""
    out = [engine.session() for _ in range(ROWS)]
    for i, session in enumerate(out):
        session.extend(ids(9 + 5 * i, i), segment="observation")
    return out


def _equal_state(one: Session, other: Session) -> None:
    """Both sessions hold the same and have counted the same."""
    told = ("tokens_seen", "kept_per_layer", "bytes_by_kind", "peak_bytes", "mean_bytes", "evictions", "rebases")
    told += ("decode_steps", "host_bytes", "recalls", "recalled", "looks", "fetched")
    a, b = one.stats, other.stats
    assert {k: getattr(b, k) for k in told} == {k: getattr(a, k) for k in told}
    assert other.tokens == one.tokens and other.pending == one.pending and other._uncertain == one._uncertain
    assert one._logits is not None and other._logits is not None
    torch.testing.assert_close(other._logits, one._logits, atol=1e-4, rtol=0)
    for layer in range(one.cache.store.lanes // one.cache.per_layer if one.cache.store else 0):
        assert torch.equal(other.original_positions(layer), one.original_positions(layer))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("family", "temperature"), [("llama", 0.0), ("llama", 0.8), ("gpt-oss", 0.0)])
def test_eight_ragged_rows_equal_eight_singles(
    tiny: Any, ids: Any, recorder: Any, policy: str, family: str, temperature: float
) -> None:
    engine = Engine(tiny(family, max_position_embeddings=200), None, policy, chunk=8)
    alone, together = _sessions(engine, ids), _sessions(engine, ids)
    options: dict[str, Any] = {"temperature": temperature, "stop_ids": [], "segment": "reply"}
    expected, logits = [], []
    for i, session in enumerate(alone):
        own = []
        rows = []
        for token in session.generate(LIMITS[i], seed=i, **options):
            own.append(token)
            assert session._logits is not None
            rows.append(session._logits.clone())
        expected.append(own)
        logits.append(rows)
    spy = recorder(engine)
    batch = engine.decode()
    for i, session in enumerate(together[:-1]):
        batch.add(session, LIMITS[i], seed=i, **options)
    got: dict[Session, list[Any]] = {session: [] for session in together}
    for count, tokens in enumerate(batch, 1):
        for session, token in tokens.items():
            row = together.index(session)
            assert session._logits is not None
            torch.testing.assert_close(session._logits, logits[row][len(got[session])], atol=1e-4, rtol=0)
            got[session].append(token)
        if count == JOINS_AT:
            batch.add(together[-1], LIMITS[-1], seed=ROWS - 1, **options)
    assert not batch and not batch.errors
    for session, one, want in zip(together, alone, expected, strict=True):
        have = got[session]
        assert [t.id for t in have] == [t.id for t in want]
        assert [(t.budget, t.kept, t.text) for t in have] == [(t.budget, t.kept, t.text) for t in want]
        assert [t.confidence for t in have] == pytest.approx([t.confidence for t in want], abs=1e-4)
        _equal_state(one, session)
    if not engine.policy.looks:
        # A pass a step: the first token of each row needs none.
        assert len(spy.logits) == LONGEST - 1
        assert max(x.shape[0] for x in spy.logits if x.dim() == 2) == ROWS - 1


def test_rows_go_on_as_sessions_of_their_own(tiny: Any, ids: Any) -> None:
    """After a batch a session is extended while others wait, and joins again; its waiting token is fed once."""
    engine = Engine(tiny("llama", max_position_embeddings=200), None, f"confkv:{_SIZES}", chunk=8)
    alone, together = _sessions(engine, ids)[:2], _sessions(engine, ids)[:2]
    for session in alone:
        list(session.generate(6, stop_ids=[]))
    alone[0].extend(ids(11, 50), segment="observation")
    list(alone[0].generate(7, stop_ids=[]))
    list(alone[1].generate(7, stop_ids=[]))
    batch = engine.decode(together, max_new_tokens=20, stop_ids=[])
    for _ in range(6):
        assert set(batch.step()) == set(together)
    batch.remove(together[0])
    together[0].extend(ids(11, 50), segment="observation")
    batch.add(together[0], 7, stop_ids=[])
    for _ in range(7):
        batch.step()
    assert together[0] not in batch and together[1] in batch
    for one, other in zip(alone, together, strict=True):
        _equal_state(one, other)


def test_a_stop_token_ends_its_row_only(tiny: Any, ids: Any) -> None:
    engine = Engine(tiny("llama"), None, "full", chunk=8)
    sessions = _sessions(engine, ids)[:3]
    ends = [token.id for token in sessions[0].fork().generate(4, stop_ids=[])][-1]
    first = [token.id for token in sessions[0].fork().generate(10, stop_ids=[ends])]
    batch = engine.decode()
    batch.add(sessions[0], 10, stop_ids=[ends])
    for session in sessions[1:]:
        batch.add(session, 10, stop_ids=[])
    steps = list(batch)
    assert len(steps) == 10 and [steps[i][sessions[0]].id for i in range(len(first))] == first
    assert [len(tokens) for tokens in steps] == [3] * len(first) + [2] * (10 - len(first))
    assert sessions[0].pending == ends


def test_a_full_cache_at_the_position_limit_leaves_alone(tiny: Any, ids: Any) -> None:
    engine = Engine(tiny("llama", max_position_embeddings=24), None, "full", chunk=8)
    short, long = engine.session(), engine.session()
    short.extend(ids(6))
    long.extend(ids(22, 1))
    batch = engine.decode([short, long], max_new_tokens=8, stop_ids=[])
    counts = [len(tokens) for tokens in batch]
    assert counts == [2, 2, 2, 1, 1, 1, 1, 1]
    assert set(batch.errors) == {long} and "do not fit" in str(batch.errors[long])
    assert long.seen == 24 and long.pending == long.tokens[-1]


def test_what_cannot_take_part_is_refused(tiny: Any, ids: Any) -> None:
    model = tiny("llama")
    engine, other = Engine(model, None, "full"), Engine(model, None, "window:8")
    one, two = engine.session(), other.session()
    with pytest.raises(ConfkvError, match="extend"):
        engine.decode([one])
    for session in (one, two):
        session.extend(ids(12))
    batch = engine.decode([one, two], max_new_tokens=3, stop_ids=[])
    with pytest.raises(ConfkvError, match="already"):
        batch.add(one)
    with pytest.raises(ConfkvError, match="unknown segment"):
        engine.decode([one], segment="page")
    stranger = Engine(tiny("llama"), None, "full").session()
    stranger.extend(ids(4))
    with pytest.raises(ConfkvError, match="one model"):
        batch.add(stranger)
    assert len(list(batch)) == 3 and two.stats.kept_per_layer == [8, 8]
    assert engine.decode([one], max_new_tokens=0).step() == {}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["full", "confkv:n_high=24,n_low=40,protect=8", "confkv:int8=1"])
def test_a_real_model_says_in_a_batch_what_it_says_alone(policy: str) -> None:
    engine = Engine.load("smollm2", policy, dtype="float32")
    texts = [
        "The capital of France is",
        "def add(a, b):\n    return",
        "Once upon a time there was",
        "1 2 3 4 5",
    ]
    prompts = [engine.tokenizer(text)["input_ids"] for text in texts]
    alone, together = ([engine.session() for _ in prompts] for _ in range(2))
    for session, prompt in itertools.chain(zip(alone, prompts, strict=True), zip(together, prompts, strict=True)):
        session.extend(prompt)
    expected = [[token.id for token in session.generate(48, stop_ids=[])] for session in alone]
    list(engine.decode(together, max_new_tokens=48, stop_ids=[]))
    assert [session.tokens[-48:] for session in together] == expected
    for one, other in zip(alone, together, strict=True):
        _equal_state(one, other)
