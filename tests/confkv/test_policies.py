"""The command-line form of policies, their budgets, and that they carry no state."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from confkv.engine import Engine
from confkv.errors import PolicyError
from confkv.manager import Manager
from confkv.policies import list_policies, parse_policy
from confkv.policies.budget import ByConfidence, Fixed, Pyramid, Unlimited
from confkv.policies.ranker import Composite
from confkv.policies.recall import Recall
from confkv.policies.slow import SlowMass
from confkv.store import MASS


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("confkw", "confkv"),
        ("", "known: full"),
        ("h3o:3", "h2o"),
        ("zzz", "known: full"),
        ("confkv:n_hihg=3", "n_high"),
        ("confkv:128", "key=value"),
        ("confkv:n_high=many", "whole number"),
        ("confkv:n_high=1.5", "whole number"),
        ("confkv:n_high=", "whole number"),
        ("confkv:tau=high", "a number"),
        ("confkv:n_high=300", "n_low=256"),
        ("confkv:scope=row", "scope=head"),
        ("confkv:int8=2", "0 or 1"),
        ("confkv:alpha=1.5", "between 0 and 1"),
        ("confkv:alpha=nan", "between 0 and 1"),
        ("confkv:decay=-0.1", "between 0 and 1"),
        ("confkv:protect=0", "at least 1"),
        ("confkv:sinks=-1", "negative"),
        ("confkv:w=0", "at least 1"),
        ("confkv:n_high=30", "protect"),
        ("confkv:n_high=34", "sinks"),
        ("confkv-l:floor=8", "protect"),
        ("confkv-l:ratio=2", "between 0 and 1"),
        ("window:0", "protect"),
        ("window:-5", "protect"),
        ("window:4,sinks=4", "sinks"),
        ("window:n=x", "whole number"),
        ("full:n=3", "no parameter"),
        ("confkv:adaptive=2", "between 0 and 1"),
        ("confkv:shuffle=-1", "at least 0"),
        ("confkv:block=0", "at least 1"),
        ("confkv:block=16,scope=head", "scope=layer"),
        ("confkv:n_high=50,block=16", "block"),
        ("h2o:heavy=1.5", "between 0 and 1"),
        ("h2o:1", "at least 2"),
        ("h2o:n=8,sinks=8", "sinks"),
        ("streaming:4", "sinks"),
        ("streaming-rel:64,int8=1", "no parameter"),
        ("snapkv:pool=4", "odd"),
        ("snapkv:pooling=sum", "pooling=avg"),
        ("snapkv:30", "protect"),
        ("pyramidkv:32", "exceed"),
        ("pyramidkv:64,overshoot=2", "0 or 1"),
        ("zigzag:hold=1", "excluded"),
        ("zigzag:64,floor=0.1", "protect"),
        ("adakv:30", "protect"),
        ("adakv:floor=1.2", "between 0 and 1"),
        ("adakv:scope=layer", "no parameter"),
        ("confkv:heads=ada", "scope=head"),
        ("confkv:heads=own,scope=head", "heads=ada"),
        ("confkv-mean:heads=ada,head_floor=-1", "between 0 and 1"),
        ("confkv-mean:heads=ada,scope=layer", "scope=head"),
        ("confkv-l:heads=ada,scope=head,block=16", "scope=layer"),
        ("confkv-recall:heads=ada", "no parameter"),
        ("tova:n=0", "protect"),
        ("random:seed=-1", "at least 0"),
        ("mass:scope=row", "scope=head"),
        ("confkv-mean:n_high=60", "protect"),
        ("confkv-mean:values=2", "0 or 1"),
        ("confkv-slow:horizon=0", "above 0"),
        ("confkv-slow:recent=1.2", "between 0 and 1"),
        ("confkv:guard=1.5", "between 0 and 1"),
        ("confkv:guard=0.75", "guard=0.75 leaves 32"),
        ("confkv-look:n_high=60,block=16,guard=0.2", "block"),
        ("confkv-l:curve=line", "curve=pyramidkv"),
        ("confkv-l:curve=pyramidkv,n_high=30", "protect"),
        ("confkv-look:gate=never", "gate=random"),
        ("confkv-look:rate=2", "between 0 and 1"),
        ("confkv-look:page=0", "at least 1"),
        ("confkv-look:question=-1", "not be negative"),
        ("confkv-recall:opening=-1", "not be negative"),
        ("confkv-look:share=1.5", "between 0 and 1"),
        ("confkv-recall:horizon=-1", "negative"),
        ("confkv-look:page=33", "protect=32"),
        ("confkv-look:archive=zip", "archive=fp"),
        ("confkv-recall:reads=2", "reads=2 must be 0 or 1"),
        ("confkv-look:looks=0.5", "no parameter 'looks'"),
        ("confkv-look:look_gate=random", "no parameter 'look_gate'"),
        ("confkv-recall:archive_mb=-1", "megabytes"),
        ("confkv-recall:archive_mb=nan", "megabytes"),
        ("confkv-recall:index=disk", "index=device"),
    ],
)
def test_a_wrong_policy_is_one_line_that_names_the_cause(text: str, named: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 280
    assert named in message
    assert caught.value.user_facing


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("full", "full"),
        (" confkv ", "confkv"),
        ("confkv:", "confkv"),
        ("confkv:n_high=128", "confkv"),
        ("confkv: n_high=64 , int8=1", "confkv:n_high=64,int8=1"),
        ("window", "window:512"),
        ("window:64", "window:64"),
        ("window:n=64,sinks=4", "window:64,sinks=4"),
        ("confkv-l:floor=48,scope=head", "confkv-l:scope=head,floor=48"),
    ],
)
def test_spec_is_canonical_and_parses_to_itself(text: str, spec: str) -> None:
    policy = parse_policy(text)
    assert policy.spec == spec
    assert parse_policy(spec) == policy


def test_defaults_are_the_papers() -> None:
    policy = parse_policy("confkv")
    assert policy.budget == ByConfidence(n_high=128, n_low=256, tau=0.7)
    assert policy.ranker == Composite(alpha=0.65, decay=0.9)
    assert (policy.protect, policy.sinks, policy.scope) == (32, 4, "layer")
    assert (policy.storage.int8, policy.storage.window) == (False, 128)
    assert parse_policy("confkv-l").budget == Pyramid(ByConfidence(), floor=96, ratio=0.5)
    assert parse_policy("window:64").budget == Fixed(64)
    assert parse_policy("full").budget == Unlimited()
    assert not parse_policy("full").evicts and parse_policy("window:64").evicts


def test_a_look_is_all_that_sets_the_two_policies_with_recall_apart() -> None:
    recall, look = (parse_policy(name) for name in ("confkv-recall", "confkv-look"))
    assert recall.budget == look.budget == ByConfidence(n_high=192, n_low=192, tau=0.7)
    assert recall.recall == Recall(look=False) and look.recall == Recall(look=True)
    assert look.looks and not recall.looks and not parse_policy("confkv").looks
    assert replace(look, name=recall.name, spec=recall.spec, recall=recall.recall) == recall
    params = {info.name: info.params for info in list_policies()}
    assert params["confkv-recall"] == params["confkv-look"]


def test_every_listed_policy_parses_with_its_own_defaults() -> None:
    infos = list_policies()
    assert [info.name for info in infos] == sorted({i.name for i in infos}, key=[i.name for i in infos].index)
    assert {"full", "window", "confkv", "confkv-l", "confkv-recall", "confkv-look"} <= {info.name for info in infos}
    for info in infos:
        spelled = ",".join(f"{key}={value}" for key, value in info.params.items())
        assert parse_policy(f"{info.name}:{spelled}") == parse_policy(info.name)
        assert info.summary and "\n" not in info.summary
        if info.name != "full":
            assert info.paper is not None and info.paper.startswith("https://")


@pytest.mark.parametrize(
    "code",
    [
        "from confkv.policies.registry import list_policies, parse_policy as p; list_policies(); p('confkv:int8=1')",
        "from tasks.cli.app import invoke; assert invoke(['policies']) == 0",
    ],
)
def test_naming_and_listing_policies_does_not_import_torch(code: str) -> None:
    heavy = "import sys; print(sorted({'torch', 'numpy', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{heavy}"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_budget_at_the_threshold() -> None:
    budget = ByConfidence(n_high=10, n_low=20, tau=0.7)
    below = float(torch.nextafter(torch.tensor(0.7, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)))
    assert budget.at(0.7) == 10
    assert budget.at(below) == 20
    assert (budget.at(1.0), budget.at(0.0), budget.at(None)) == (10, 20, 20)
    assert ByConfidence(10, 20, tau=1.1).at(1.0) == 20
    assert ByConfidence(10, 20, tau=-0.1).at(0.0) == 10


def test_pyramid_per_layer() -> None:
    pyramid = Pyramid(ByConfidence(128, 256, 0.7), floor=96, ratio=0.5)
    assert pyramid.per_layer(256, 4) == [256, 215, 181, 152]
    assert pyramid.per_layer(128, 4) == [128, 108, 96, 96]
    assert pyramid.per_layer(64, 4) == [64] * 4, "a floor never raises the nominal budget"
    assert pyramid.per_layer(256, 1) == [256]
    assert Pyramid(ByConfidence(), floor=96, ratio=1.0).per_layer(128, 3) == [128] * 3
    values = pyramid.per_layer(256, 30)
    assert values == sorted(values, reverse=True) and min(values) >= 96
    assert pyramid.at(0.9) == 128 and pyramid.at(0.1) == 256


def test_layers_of_a_session_follow_the_pyramid(tiny: Any, ids: Any) -> None:
    policy = "confkv-l:n_high=40,n_low=40,protect=4,sinks=2,floor=8,ratio=0.1"
    engine = Engine(tiny("llama", num_hidden_layers=3), None, policy, chunk=16)
    session = engine.session()
    session.extend(ids(64))
    assert session.stats.kept_per_layer == engine.policy.budget.per_layer(40, 3) == [40, 19, 9]


def test_composite_score() -> None:
    ranker = Composite(alpha=0.5, decay=0.9)
    mass = torch.tensor([[[9.0, 2.0, 1.0, 0.0]]])
    position = torch.tensor([[[0.0, 1.0, 2.0, 3.0]]])
    free = torch.tensor([[[False, True, True, True]]])
    # Relative to the largest competing mass (2, not the sink's 9); recency is (position + 1) / seen up to a constant.
    score = ranker.score(mass, position, free, 4)
    torch.testing.assert_close(score[..., 1:], torch.tensor([[[0.625, 0.5, 0.375]]]))
    updated = ranker.update(torch.ones(1, 1, 4), torch.zeros(1, 1, 4), 1)
    torch.testing.assert_close(updated, torch.full((1, 1, 4), 0.1))
    again = ranker.update(torch.ones(1, 1, 4), torch.zeros(1, 1, 4), 3)
    torch.testing.assert_close(again, torch.full((1, 1, 4), 1 - 0.9**3))


SMALL = "confkv:n_high=12,n_low=20,protect=4,sinks=2,tau=0.5"


def test_budgets_of_a_real_generate_follow_confidence(tiny: Any, ids: Any) -> None:
    engine = Engine(tiny("qwen3", max_position_embeddings=400), None, SMALL, chunk=16)
    session = engine.session()
    session.extend(ids(40))
    confidences, budgets, last = [], [], 20
    for token in session.generate(60, temperature=1.0, seed=3, stop_ids=[]):
        if confidences:  # the first distribution came from the prefill, which keeps n_low
            assert token.budget == (12 if token.confidence >= 0.5 else 20)
        assert token.kept <= token.budget
        assert token.kept == min(token.budget, last + 1)
        last = int(token.kept)
        confidences.append(token.confidence)
        budgets.append(token.budget)
    assert set(budgets) == {12, 20}
    assert [step.confidence for step in session.steps] == confidences
    assert [step.budget for step in session.steps] == budgets


def test_one_policy_object_serves_two_sessions_without_a_trace(tiny: Any, ids: Any) -> None:
    policy = parse_policy(SMALL + ",scope=head,int8=1,w=8")
    before = copy.deepcopy(policy)

    def run(session: Any, length: int, seed: int) -> list[tuple[int, float, float]]:
        session.extend(ids(length, seed), "observation")
        return [(t.id, t.confidence, t.kept) for t in session.generate(25, stop_ids=[])]

    def fresh() -> Engine:
        return Engine(tiny("llama", max_position_embeddings=400), None, policy, chunk=16)

    alone = [run(fresh().session(), 50, 1), run(fresh().session(), 21, 2)]
    engine = fresh()
    assert [run(engine.session(), 50, 1), run(engine.session(), 21, 2)] == alone
    # Interleaved, token by token.
    first, second = engine.session(), engine.session()
    first.extend(ids(50, 1), "observation")
    second.extend(ids(21, 2), "observation")
    pairs = zip(first.generate(25, stop_ids=[]), second.generate(25, stop_ids=[]), strict=True)
    mixed = [[(t.id, t.confidence, t.kept) for t in pair] for pair in pairs]
    assert [[a for a, _ in mixed], [b for _, b in mixed]] == alone
    assert policy == before


@pytest.mark.parametrize(
    ("segment", "lengths"),
    [
        # Protected, so that nothing is due: the chunks that hold the newest 32 rows.
        ("observation", [120, 140]),
        # The first chunk fits the budget of 20, each later one is over it.
        ("text", [40] * 6),
    ],
)
def test_mass_is_recorded_where_it_is_read(
    segment: str, lengths: list[int], tiny: Any, ids: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    record = Manager.record

    def spy(self: Manager, *args: Any) -> None:
        seen.append(max(self.store.lengths))
        record(self, *args)

    monkeypatch.setattr(Manager, "record", spy)
    session = Engine(tiny("llama", max_position_embeddings=400), None, SMALL, chunk=20).session()
    session.extend(ids(140), segment)
    assert seen == lengths
    store = session.cache.store
    assert store is not None
    if segment == "observation":
        # Two chunks of 20 rows: the average has forgotten 0.9^40 of its start at 0.
        total = store.meta[:, :, :140, MASS].sum(-1)
        torch.testing.assert_close(total, torch.full_like(total, 1 - 0.9**40), atol=1e-5, rtol=0)
    for _ in session.generate(5, stop_ids=[]):
        pass
    assert len(seen) == len(lengths) + 4, "every decoded token that was fed"


def test_the_newest_of_confkv_slow_are_a_share_of_the_budget() -> None:
    policy = parse_policy("confkv-slow:n_high=300,n_low=310,recent=0.4,sinks=10")
    assert (policy.protect, policy.sinks, policy.budget.smallest) == (110, 10, 300)
    assert parse_policy("confkv-slow:n_high=300,n_low=310,horizon=3").ranker == SlowMass(900.0)
