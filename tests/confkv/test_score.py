"""Teacher-forced decoding, and what a reply segment protects."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from confkv.engine import Engine
from confkv.errors import ConfkvError

SMALL = "confkv:n_high=12,n_low=20,protect=4,sinks=2,tau=0.5"


@pytest.mark.parametrize("policy", ["full", SMALL])
def test_scoring_a_greedy_reply_is_the_reply(tiny: Any, ids: Any, policy: str) -> None:
    engine = Engine(tiny("llama"), None, policy, chunk=8)
    sampled, forced = engine.session(), engine.session()
    for session in (sampled, forced):
        session.extend(ids(30), "text")
    tokens = [token.id for token in sampled.generate(9, stop_ids=[])]
    scores = forced.score(tokens[:-1])
    assert [s.confidence for s in forced.steps] == [s.confidence for s in sampled.steps[1:]]
    assert [s.kept for s in forced.steps] == [s.kept for s in sampled.steps[1:]]
    # Greedy: no token is likelier than the one that was taken.
    assert all(s >= -torch.log(torch.tensor(61.0)) for s in scores)
    assert forced.tokens == sampled.tokens[:-1]


def test_scores_are_those_of_one_pass_over_the_text(tiny: Any, ids: Any) -> None:
    model = tiny("llama")
    text = ids(24)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([text])).logits[0].log_softmax(-1)
    expected = [float(logits[i - 1, text[i]]) for i in range(10, 24)]
    session = Engine(model, None, "full", chunk=8).session()
    session.extend(text[:10])
    assert session.score(text[10:]) == pytest.approx(expected, abs=1e-5)


def test_score_needs_a_start_and_no_waiting_token(tiny: Any, ids: Any) -> None:
    session = Engine(tiny("llama"), None, "full", chunk=8).session()
    with pytest.raises(ConfkvError, match="extended"):
        session.score([1])
    session.extend(ids(5))
    next(iter(session.generate(1, stop_ids=[])))
    with pytest.raises(ConfkvError, match="waiting"):
        session.score([1])


def test_a_reply_stays_whole_while_the_next_one_is_written(tiny: Any, ids: Any) -> None:
    """Budget 12, replies of 15: unprotected, most of a reply would be gone before its end."""
    session = Engine(tiny("llama"), None, SMALL, chunk=8).session()
    session.extend(ids(6, 1), "system")
    spans = []
    for turn in range(3):
        session.extend(ids(10, 2 + turn), "observation")
        start = session.seen
        for _ in session.generate(15, stop_ids=[], segment="reply"):
            pass
        spans.append(set(range(start, session.seen)))
        for lane in range(session.cache.store.lanes):
            for row in session.original_positions(lane):
                kept = set(row.tolist())
                assert spans[turn] <= kept, "the reply under way"
                assert turn == 0 or spans[turn - 1] <= kept, "the one before"
                assert turn < 2 or not spans[0] <= kept, "an older one competes"


def test_text_that_is_generated_competes(tiny: Any, ids: Any) -> None:
    session = Engine(tiny("llama"), None, SMALL, chunk=8).session()
    session.extend(ids(30), "text")
    for _ in session.generate(40, stop_ids=[]):
        pass
    assert max(session.cache.store.lengths) <= 20


def test_an_unknown_segment_is_named(tiny: Any, ids: Any) -> None:
    session = Engine(tiny("llama"), None, SMALL, chunk=8).session()
    session.extend(ids(5))
    with pytest.raises(ConfkvError, match="unknown segment 'note'"):
        next(session.generate(1, segment="note"))
