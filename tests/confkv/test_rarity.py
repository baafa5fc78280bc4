"""How rare tokens are, against the definition worked out anew in float64, and what a guard keeps because of it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from confkv.engine import Engine
from confkv.rarity import Lexicon, Piece, Rarity
from confkv.session import Session
from confkv.store import SINK
from tests.confkv.test_detokenise import TEXTS, TOKENIZERS
from tests.confkv.test_store import HEADS, LANES, STEP, Driver, _run

SMALL = "n_high=14,n_low=20,protect=4,sinks=2,tau=0.5"
GUARDED = [
    f"confkv:{SMALL},guard=0.4",
    f"confkv:{SMALL},guard=0.4,scope=head",
    f"confkv-mean:{SMALL},guard=0.4,values=1",
    f"confkv-l:{SMALL},guard=0.3,floor=10",
    f"confkv-l:{SMALL},guard=0.2,curve=pyramidkv,scope=head",
    f"confkv-recall:{SMALL},guard=0.4,page=3,gate=always",
    f"confkv-look:{SMALL},guard=0.4,page=3,scope=head",
    f"confkv-recall:{SMALL},guard=0.4,page=3,reads=0,scope=head",
    f"confkv:{SMALL},guard=0.4,scope=head,heads=ada",
    f"confkv-mean:{SMALL},guard=0.3,values=1,heads=ada",
    f"confkv-l:{SMALL},guard=0.2,curve=pyramidkv,scope=head,heads=ada",
]


def nats(token: int, vocabulary: int) -> float:
    return -math.log(1 / (token + 2.7) / sum(1 / (i + 2.7) for i in range(vocabulary)))


def levels(tokenizer: Any, ids: list[int], vocabulary: int) -> list[float]:
    """Rarity of each of ``ids``: words first, then what they say, then how often they were said."""
    words: list[list[int]] = []
    word_of, whole = [], True
    for token in ids:
        text, raw = tokenizer.decode([token]), tokenizer.convert_ids_to_tokens(token)
        first, last = (x.isalnum() or x == "\ufffd" for x in (text[:1], text[-1:]))
        if token in tokenizer.all_special_ids:
            first = last = False
        if not whole and first and raw[0] not in "Ġ▁" and len(words[-1]) < 16:
            words[-1].append(token)
        else:
            words.append([token])
        word_of.append(len(words) - 1)
        whole = not last

    def said(word: list[int]) -> float:
        out = 0.0
        for token in word:
            text = tokenizer.decode([token])
            if token not in tokenizer.all_special_ids and any(x.isalnum() or x == "\ufffd" for x in text):
                out += nats(token, vocabulary)
        return out

    out = []
    for i in word_of:
        own, before = words[i], words[i - 1] if i else []
        counted = own
        if len(own) == 1 and len(before) > 1:  # it tells where the word before it ends
            then = words[: i + 1]
            if said(before) / then.count(before) > said(own) / then.count(own):
                counted = before
        out.append(said(counted) / words.count(counted))
    return out


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(
    texts=st.lists(st.one_of(st.sampled_from([*TEXTS, "<|end|>", "</s>", "x" * 40]), st.text(max_size=12)), max_size=6),
    cuts=st.lists(st.integers(0, 200), max_size=4),
)
@settings(max_examples=40, deadline=None)
def test_rarity_is_its_definition_however_it_was_read(kind: str, texts: list[str], cuts: list[int]) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(" ".join(texts), add_special_tokens=False)
    rarity = Rarity(Lexicon(tokenizer, len(tokenizer)))
    for cut in sorted(min(cut, len(ids)) for cut in cuts):
        rarity.read(ids, cut)
        got = rarity.levels()
        torch.testing.assert_close(got.double(), _float64(levels(tokenizer, ids[:cut], len(tokenizer))))
    rarity.read(ids, len(ids))
    got = rarity.levels()
    assert got.dtype == torch.float32 and got.shape == (len(ids),)
    torch.testing.assert_close(got.double(), _float64(levels(tokenizer, ids, len(tokenizer))))
    assert rarity.nbytes == 8 * (len(ids) + len(rarity._nats))


def _float64(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_numbers_and_names_are_rarer_than_what_every_page_says() -> None:
    tokenizer = TOKENIZERS["byte-level"]
    text = "the price is 12 € the cat sat on the mat, click the button. Order 7421 by Quetzal. the cat the cat"
    ids = tokenizer.encode(text, add_special_tokens=False)
    rarity = Rarity(Lexicon(tokenizer, len(tokenizer)))
    rarity.read(ids, len(ids))
    pieces = [tokenizer.decode([i]).strip() for i in ids]
    by_piece = dict(zip(pieces, rarity.levels().tolist(), strict=True))
    assert all(rarity.lexicon.piece(ids[pieces.index(mark)]).nats == 0.0 for mark in ".,€")
    assert by_piece["7"] == by_piece["4"] == by_piece["2"] > 4 * by_piece["the"]
    start = pieces.index("Q")
    assert len(set(rarity.levels()[start : start + 4].tolist())) == 1, "a name is rare as a whole"
    one = pieces.index("1", pieces.index("7"))
    assert rarity.levels()[one + 1] == by_piece["7"], "and so is what tells where a number ends"
    assert by_piece["Q"] > by_piece["7"] > by_piece["price"] > by_piece["cat"] > by_piece["the"]


def test_without_a_tokenizer_every_id_is_a_word() -> None:
    lexicon = Lexicon(None, 50)
    assert lexicon.piece(7) == Piece(pytest.approx(nats(7, 50)), False, False)
    assert sum(math.exp(-lexicon.piece(i).nats) for i in range(50)) == pytest.approx(1.0)
    rarity = Rarity(lexicon)
    rarity.read([9, 9, 40, 9], 4)
    assert rarity.levels().tolist() == pytest.approx([nats(9, 50) / 3] * 2 + [nats(40, 50), nats(9, 50) / 3])


@given(
    tokens=st.lists(st.integers(0, 12), min_size=1, max_size=30),
    counts=st.lists(st.integers(0, 12), min_size=LANES, max_size=LANES),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_the_rarest_are_chosen_the_newest_among_equals(tokens: list[int], counts: list[int], seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    rarity = Rarity(Lexicon(None, 50))
    rarity.read(tokens, len(tokens))
    rare, n = rarity.levels().tolist(), len(tokens)
    origin = torch.stack([torch.randperm(n, generator=g) for _ in range(LANES * HEADS)]).view(LANES, HEADS, n)
    free = torch.rand(origin.shape, generator=g) < 0.7
    got = rarity.rarest(origin.float(), free, counts)
    for lane, head in itertools.product(range(LANES), range(HEADS)):
        compete = [int(x) for x in origin[lane, head][free[lane, head]]]
        best = sorted(compete, key=lambda j: (rare[j], j), reverse=True)[: counts[lane]]
        assert sorted(int(x) for x in origin[lane, head][got[lane, head]]) == sorted(best)


# -- stores -------------------------------------------------------------------------------------------------------


class Watched(Driver):
    """Tells what a guard must keep of what an eviction starts from, and that it keeps no more out of it."""

    guarded = 0

    def _evict(self, confidence: float | None) -> None:
        manager, store, end = self.manager, self.store, self.seen
        nominal = self.policy.budget.at(confidence, manager.past)
        assert nominal is not None
        manager._allocate(nominal, confidence, end)  # as the eviction is about to do
        competes, evictable = manager.competes(end), manager.evictable(end, nominal)
        held = [store.slot_positions(lane) for lane in range(store.lanes)]
        norm = [nats(i, 100) for i in range(100)]
        super()._evict(confidence)
        for lane, budget in enumerate(manager.layer_budgets(nominal)):
            # Of a head's own budget, where heads have one; never what it must hold besides.
            share = min(int(self.policy.guard * budget), budget - self.policy.protect - self.policy.sinks)
            for head in range(competes.shape[1]):
                free = [int(x) for x in held[lane][head] if not self.hold[x] and x < end - self.policy.protect]
                exempt = int((competes[lane, head] & ~evictable[lane, head]).sum())
                assert exempt == min(share, len(free))
                rarity = {j: norm[self.tokens[j]] / self.tokens.count(self.tokens[j]) for j in free}
                rarest = sorted(free, key=lambda j: (rarity[j], j), reverse=True)[:share]
                assert set(rarest) <= set(store.positions(lane)[head].tolist())
                self.guarded += len(rarest)


@pytest.mark.parametrize("policy", [policy for policy in GUARDED if "page" not in policy])
@given(steps=st.lists(STEP, min_size=1, max_size=8), seed=st.integers(0, 1000))
@settings(max_examples=8, deadline=None)
def test_the_guards_share_is_kept_and_the_budget_holds(
    policy: str, steps: list[tuple[str, int, int]], seed: int
) -> None:
    driver = Watched(policy, seed)
    _run(driver, steps, 0.0)
    driver.feed(40)
    driver.check()
    assert driver.guarded > 0 and driver.hold[0] & SINK


# -- sessions -----------------------------------------------------------------------------------------------------

PLANT, AT = 60, 25


def _planted(tiny: Any, ids: Any, policy: str, family: str = "llama") -> Session:
    """A session in which one token of a few that are fed again and again occurs nowhere else."""
    session = Engine(tiny(family), None, policy, chunk=8).session()
    tokens = [3 + token % 20 for token in ids(60, 3)]
    tokens[AT] = PLANT
    session.extend(tokens[:6], "system")
    session.extend(tokens[6:])
    session.score([3 + token % 20 for token in ids(60, 4)])
    return session


def _holds(session: Session) -> list[bool]:
    store = session.cache.store
    assert store is not None
    layers = store.lanes // store.per_layer
    return [AT in row.tolist() for layer in range(layers) for row in session.original_positions(layer)]


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("policy", GUARDED)
def test_a_planted_token_stays_because_of_the_guard(policy: str, family: str, tiny: Any, ids: Any) -> None:
    session = _planted(tiny, ids, policy, family)
    assert all(_holds(session)) and session.stats.rebases > 0
    guard = next(part for part in policy.split(",") if part.startswith("guard="))
    if session.engine.policy.recall is None:  # else it may be back
        assert not all(_holds(_planted(tiny, ids, policy.replace("," + guard, ""), family)))
    meta = session.stats.bytes_by_kind["meta"]
    assert session.cache.store is not None
    assert meta == session.cache.store.meta.nbytes + 8 * (session.seen + len(set(session.tokens)))


def test_what_becomes_common_is_let_go_and_a_fork_does_not_tell_the_other(tiny: Any, ids: Any) -> None:
    session = _planted(tiny, ids, GUARDED[0])
    twin, mark = session.fork(), session.checkpoint()
    twin.score([PLANT] * 30)
    session.score([3 + token % 20 for token in ids(30, 5)])
    assert all(_holds(session)) and not any(_holds(twin))
    tokens = list(session.tokens)
    twin.rewind(mark)
    twin.score([3 + token % 20 for token in ids(30, 5)])
    assert all(_holds(twin)) and twin.tokens == tokens
    for lane in range(2):
        assert torch.equal(twin.original_positions(lane), session.original_positions(lane))


def test_a_sampled_token_counts_once_it_is_fed(tiny: Any, ids: Any) -> None:
    session = _planted(tiny, ids, GUARDED[6])
    for i, _ in enumerate(session.generate(20, temperature=1.0, seed=2, stop_ids=[])):
        if i == 9:
            break
    rarity = session._manager.rarity if session._manager is not None else None
    assert rarity is not None and rarity.seen == session.seen == len(session.tokens) - 1
    session.retract()
    session.extend(ids(5, 6), "observation")
    assert rarity.seen == session.seen == len(session.tokens)
    fresh = Rarity(Lexicon(None, 61))
    fresh.read(session.tokens, session.seen)
    assert torch.equal(fresh.levels(), rarity.levels())
