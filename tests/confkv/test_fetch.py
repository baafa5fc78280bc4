"""When a pass comes with pages for its own queries, which ones those are, and what a second look is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from confkv.confidence import confidence
from confkv.engine import Engine
from confkv.policies.recall import Recall
from confkv.session import Session
from confkv.store import MASS, ORIGIN, POS
from confkv_kernels import page_scores

SMALL = "n_high=12,n_low=20,protect=4,sinks=2,tau=0.6,page=4"
WHOLE = {"max_position_embeddings": 400}


@dataclass(frozen=True)
class Pass:
    """One forward pass.

    Attributes:
        fetched: whether it came with pages for its own queries.
        lanes: those that asked for pages, in order.
        token, position: its newest.
        count: tokens.
    """

    fetched: bool
    lanes: list[int]
    token: int
    position: int
    logits: Tensor
    count: int


class Spy:
    """Keeps every pass of an engine, and compares what a lane exchanges with what its queries ask for."""

    def __init__(self, session: Session) -> None:
        self.session, self.passes = session, list[Pass]()
        self._plain = session.engine.forward
        session.engine.forward = self._forward  # type: ignore[method-assign]

    def _forward(self, tokens: Tensor, at: Tensor, cache: Any) -> Tensor:
        lanes: list[int] = []
        fetch = cache.fetch

        def checked(lane: int, q: Tensor, scale: float, softcap: float | None) -> None:
            lanes.append(lane)
            self._exchange(fetch, lane, q, scale, softcap)

        cache.fetch = checked if fetch is not None else None
        logits = self._plain(tokens, at, cache)
        self.passes.append(
            Pass(fetch is not None, lanes, int(tokens[0, -1]), int(at[0, -1]), logits.clone(), tokens.shape[1])
        )
        return logits

    def _exchange(self, fetch: Any, lane: int, q: Tensor, scale: float, softcap: float | None) -> None:
        """A lane holds what does not compete and the best pages, in order; what else it held only where those end."""
        session = self.session
        store, manager = session.cache.store, session._manager
        assert store is not None and manager is not None and manager.archive is not None
        archive = manager.archive
        centre = archive.centre[lane : lane + 1, :, : archive.pages]
        score = page_scores(q.to(centre.device), centre, scale=torch.tensor([scale]), softcap=softcap)[0]
        score = score.mean(0, keepdim=True) if session.engine.policy.scope == "layer" else score
        n = store.lengths[lane]
        free = manager.exchangeable(session.cache.seen, session._budget or 0)[lane, :, :n]
        held = store.meta[lane, :, :n, ORIGIN].long()
        brought = fetch.brought
        fetch(lane, q, scale, softcap)
        now = store.meta[lane, :, :n, ORIGIN].long()
        assert store.lengths[lane] == n, "a lane keeps its length"
        new = 0
        for head in range(store.heads):
            mine = head if score.shape[0] > 1 else 0
            stays = set(held[head][~free[mine]].tolist())
            pages = archive.page_starts()[score[mine].argsort(descending=True)]
            order = (pages.unsqueeze(-1) + torch.arange(archive.page)).flatten().tolist()
            best = set([origin for origin in order if origin not in stays][: n - len(stays)])
            found = set(now[head].tolist())
            assert stays | best <= found and len(found) == n
            assert found - stays - best <= set(held[head].tolist()), "where the archive has no more"
            assert len(found) == len(stays | best) or archive.first > 0, "it has everything that was dropped"
            new += len(found - set(held[head].tolist()))
        assert fetch.brought - brought == -(-new // store.heads), "as many as are new, of each head"


def _session(tiny: Any, ids: Any, policy: str, family: str = "llama") -> Session:
    session = Engine(tiny(family, **WHOLE), None, policy, name="tiny", chunk=8).session()
    session.extend(ids(5, 1), "system")
    session.extend(ids(70, 2), "text")
    return session


def _policy(session: Session) -> Recall:
    recall = session.engine.policy.recall
    assert recall is not None
    return recall


POLICIES = [
    *[f"confkv-{name}:{SMALL},gate={gate}" for name in ("recall", "look") for gate in ("confidence", "random")],
    f"confkv-recall:{SMALL},scope=head,gate=always",
    f"confkv-look:{SMALL},gate=always,index=device,archive=fp",
    f"confkv-look:{SMALL},scope=head,reads=0",
    f"confkv-look:{SMALL},scope=head,page=1,archive_mb=0.012",
    f"confkv-recall:{SMALL},page=3,archive_mb=0.006",
    "confkv-look:n_high=50,n_low=60,protect=4,sinks=2,tau=0.6,page=4,int8=1,w=8,scope=head",
]


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt-oss"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_step_fetches_after_an_uncertain_one_or_looks(policy: str, family: str, tiny: Any, ids: Any) -> None:
    session = _session(tiny, ids, policy, family)
    spy, recall, start = Spy(session), _policy(session), session.stats
    store, manager = session.cache.store, session._manager
    assert store is not None and manager is not None
    assert session._logits is not None
    lanes = list(range(store.lanes))
    uncertain = recall.fires(confidence(session._logits), session.seen - 1)
    first, fetches, recalled = list[float](), 0, list[int]()
    for token in ids(50, 4):
        before, seen = len(spy.passes), session.seen
        session.score([token])
        step, (one, *again) = session.steps[-1], spy.passes[before:]
        assert one.fetched == uncertain and one.lanes == lanes * uncertain, "each layer asks once"
        first.append(confidence(one.logits))
        fetches += one.fetched
        due = recall.fires(first[-1], seen)
        assert step.looked == (recall.look and due and not one.fetched), "the archive has pages from the start"
        assert len(again) == step.looked
        for other in again:
            assert (other.fetched, other.lanes) == (True, lanes)
            assert (other.token, other.position) == (one.token, one.position) == (token, seen), "the same token"
        assert step.confidence == confidence(spy.passes[-1].logits), "that of the distribution to sample from"
        assert torch.equal(session._logits, spy.passes[-1].logits)
        assert step.recalled == 0 or one.fetched or step.looked
        recalled.append(step.recalled)
        assert session.seen == seen + 1 == len(session.tokens), "the token counts once"
        for lane in lanes:
            assert session.original_positions(lane)[:, -1].tolist() == [seen] * store.heads
        assert session._uncertain == due, "a look does not make the step before it a certain one"
        uncertain = due
    stats = session.stats
    looked = [step.looked for step in session.steps]
    assert manager.past.values == first, "a look does not change what was remembered"
    assert stats.looks == sum(looked) and stats.fetched == start.fetched
    assert stats.recalled - start.recalled == sum(recalled)
    assert stats.recalls - start.recalls == sum(x > 0 for x in recalled) > 5
    if recall.gate == "always":
        assert fetches == 50 and not any(looked)
    else:
        assert 5 < fetches < 50 and (sum(looked) > 2) == recall.look
        assert len(spy.passes) == 50 + sum(looked) < 90, "a stretch is looked at once"


@pytest.mark.parametrize("policy", [f"confkv-look:{SMALL}", f"confkv-look:{SMALL},scope=head,gate=random"])
def test_a_sampled_token_that_was_run_again_is_there_once(policy: str, tiny: Any, ids: Any) -> None:
    session = _session(tiny, ids, policy)
    seen, spy = session.seen, Spy(session)
    reply = [token.id for token in session.generate(40, temperature=1.0, seed=1, stop_ids=[])]
    looked = [step.looked for step in session.steps]
    assert session.tokens[seen:] == reply and session.seen == seen + 39 and not looked[0]
    # The pass that fed the token before tells of each one sampled.
    fed = [token for token, again in zip(reply[:-1], looked[1:], strict=True) for _ in range(1 + again)]
    assert [one.token for one in spy.passes] == fed and session.stats.looks == sum(looked) > 3


def test_only_a_first_token_of_which_nothing_is_known_is_looked_at_always(tiny: Any, ids: Any) -> None:
    """A mark from before the flag was kept: the step after it could not fetch in time."""
    session = _session(tiny, ids, f"confkv-look:{SMALL},gate=always")
    mark = session.checkpoint()
    del mark.state["counts"]["uncertain"]
    session.rewind(mark)
    spy = Spy(session)
    session.score(ids(12, 4))
    assert [one.fetched for one in spy.passes] == [False] + [True] * 12
    assert [step.looked for step in session.steps] == [True] + [False] * 11


def test_without_pages_nothing_is_fetched_or_looked_at_until_there_are(tiny: Any, ids: Any) -> None:
    session = Engine(tiny("llama", **WHOLE), None, f"confkv-look:{SMALL},gate=always", chunk=8).session()
    session.extend(ids(12, 2))
    spy = Spy(session)
    session.score(ids(20, 4))
    # The token with which the budget of 20 is full is the eighth, and the next one is too many.
    assert [one.fetched for one in spy.passes] == [False] * 9 + [True] * 11
    assert session.stats.looks == 0 < session.stats.recalls and session._uncertain


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize(
    "policy", [f"confkv-recall:{SMALL}", f"confkv-look:{SMALL},scope=head,index=device,archive=fp"]
)
def test_a_prefill_pass_gets_the_pages_of_its_own_queries(policy: str, family: str, tiny: Any, ids: Any) -> None:
    session = _session(tiny, ids, policy, family)
    spy, before = Spy(session), session.stats
    assert session.cache.store is not None
    lanes = list(range(session.cache.store.lanes))
    turn = session.extend(ids(16, 6), "text")
    stats = session.stats
    assert [one.lanes for one in spy.passes] == [lanes, lanes] and stats.fetched > before.fetched
    assert turn.recalled == 0 and (stats.recalls, stats.recalled) == (before.recalls, before.recalled)
    del spy.passes[:]
    turn = session.extend(ids(6, 7), "goal")
    assert [one.count for one in spy.passes] == [1] * 6, "the token that an answer starts from has its own pass"
    assert [one.lanes for one in spy.passes] == [lanes] * 6
    assert turn.recalled > 0 and session.stats.recalled == stats.recalled + turn.recalled
    assert session.stats.fetched == stats.fetched and session.stats.recalls == stats.recalls + 1


def test_the_end_of_what_asks_is_read_a_few_tokens_at_a_time(tiny: Any, ids: Any) -> None:
    def counts(policy: str, length: int, segment: str) -> list[int]:
        session = _session(tiny, ids, policy)
        spy = Spy(session)
        session.extend(ids(length, 6), segment)
        return [one.count for one in spy.passes]

    chunk = _session(tiny, ids, f"confkv-recall:{SMALL}").engine.chunk
    assert chunk == 8
    assert counts(f"confkv-recall:{SMALL},question=4", 11, "observation") == [2, 4, 2, 2, 1]
    assert counts(f"confkv-recall:{SMALL}", 5, "goal") == [1] * 5
    assert counts(f"confkv-recall:{SMALL},question=3", 9, "goal") == [2, 3, 3, 1]
    assert counts(f"confkv-recall:{SMALL},question=0", 11, "goal") == [8, 2, 1]
    assert counts(f"confkv-recall:{SMALL}", 11, "text") == [8, 3]
    # Of a page, its end alone: 32 tokens before the last.
    many = counts(f"confkv-recall:{SMALL}", 58, "observation")
    assert sum(many) == 58 and many[:3] == [8, 8, 8] and many[-32:] == [1] * 32 and many[3:-32] == [2]


@pytest.mark.parametrize("opening", [0, 3])
@pytest.mark.parametrize("segment", ["goal", "observation", "text"])
def test_an_answer_opens_with_recalls_however_confident(segment: str, opening: int, tiny: Any, ids: Any) -> None:
    never = f"confkv-look:{SMALL},gate=random,rate=0,opening={opening}"
    session = _session(tiny, ids, never)
    session.extend(ids(5, 6), segment)
    due = opening if segment != "text" else 0
    mark = session.checkpoint()
    spy = Spy(session)
    session.score(ids(6, 7))
    assert [one.fetched for one in spy.passes] == [i < due for i in range(6)] and session.stats.looks == 0
    session.rewind(mark)
    session.score(ids(1, 7))
    spy.session, half = session.fork(), len(spy.passes)
    spy.session.score(ids(6, 7)[1:])
    assert [one.fetched for one in spy.passes[half:]] == [i < due for i in range(1, 6)], "a fork is as far"


@pytest.mark.parametrize("policy", [f"confkv-recall:{SMALL}", f"confkv-look:{SMALL},gate=random,scope=head"])
def test_what_an_extension_ends_with_decides_about_the_next_pass(policy: str, tiny: Any, ids: Any) -> None:
    """The random gate draws once for each distribution, whatever led to it."""
    session = _session(tiny, ids, policy)
    spy, recall, due = Spy(session), _policy(session), list[bool]()
    for i in range(24):
        session.extend(ids(3, i), "text")
        assert session._logits is not None
        due.append(recall.fires(confidence(session._logits), session.seen - 1))
        assert session._uncertain == due[-1]
        before = len(spy.passes)
        session.score(ids(1, 50 + i))
        assert spy.passes[before].fetched == due[-1]
        if recall.gate == "random":
            assert session._uncertain == recall.fires(0.0, session.seen - 1)
    assert 4 < sum(due) < 20


@pytest.mark.parametrize("uncertain", [True, False])
@pytest.mark.parametrize(
    "policy", [f"confkv-recall:{SMALL}", f"confkv-look:{SMALL},scope=head", f"confkv-look:{SMALL},gate=random"]
)
def test_a_session_goes_on_as_certain_as_it_was(
    policy: str, uncertain: bool, tiny: Any, ids: Any, tmp_path: Path
) -> None:
    session = _session(tiny, ids, policy)
    for _ in session.generate(60, temperature=1.0, seed=3, stop_ids=[]):
        # In the middle of a stretch: the next pass is to be like the one just made.
        if len(session.steps) > 8 and session._uncertain is uncertain and session.pending is not None:
            break
    assert session._uncertain is uncertain
    mark, file = session.checkpoint(), tmp_path / "session"
    session.save(file)
    twin = session.fork()
    runs = []

    def go_on(each: Session) -> None:
        spy, before = Spy(each), len(each.steps)
        try:
            out = [token.id for token in each.generate(12, temperature=1.0, stop_ids=[])]
        finally:
            each.engine.forward = spy._plain  # type: ignore[method-assign]
        told = [(step.confidence, step.recalled, step.looked, step.kept) for step in each.steps[before:]]
        runs.append((out, told, [one.fetched for one in spy.passes], [one.logits for one in spy.passes]))

    go_on(session)
    go_on(twin)
    session.rewind(mark)
    go_on(session)
    go_on(Session.load(file, Engine(tiny("llama", **WHOLE), None, policy, name="tiny", chunk=8)))
    assert runs[0][2][0] is uncertain and len(set(runs[0][2])) == 2
    for run in runs[1:]:
        assert run[:3] == runs[0][:3]
        assert all(torch.equal(a, b) for a, b in zip(run[3], runs[0][3], strict=True))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("more", ["", ",scope=layer", ",horizon=0,guard=0.2"])
def test_what_a_recall_may_exchange_is_the_worst_by_the_ranker(share: float, more: str, tiny: Any, ids: Any) -> None:
    session = _session(tiny, ids, f"confkv-recall:{SMALL},share={share}{more}")
    session.score(ids(20, 4))
    manager, store = session._manager, session.cache.store
    assert manager is not None and store is not None and manager.policy.recall is not None
    end, nominal = session.cache.seen, 20
    competing, chosen = manager.evictable(end, nominal), manager.exchangeable(end, nominal)
    meta, ranker = store.meta[:, :, : max(store.lengths)], manager.policy.ranker
    mass = meta[..., MASS]
    layer = "layer" in more
    mass = mass.mean(1, keepdim=True) if layer else mass
    score = ranker.score(mass, meta[:, : mass.shape[1], :, POS], competing, end)
    for lane in range(store.lanes):
        for head in range(mass.shape[1]):
            free = competing[lane, head].nonzero().flatten().tolist()
            worst = sorted(free, key=lambda slot, at=(lane, head): (float(score[at][slot]), slot))
            may = set(chosen[lane, head].nonzero().flatten().tolist())
            assert may == set(worst[: math.ceil(share * len(free))]) and len(free) >= 4


def test_what_many_asked_for_outlives_a_recall(tiny: Any, ids: Any) -> None:
    """Of the same session, the larger share is exchanged for more."""
    brought = {}
    for share in (0.2, 1.0):
        session = _session(tiny, ids, f"confkv-recall:{SMALL},share={share},gate=always")
        session.score(ids(30, 4))
        brought[share] = session.stats.recalled
    assert 0 < brought[0.2] < 0.6 * brought[1.0]
