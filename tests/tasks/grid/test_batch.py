"""Episodes that decode together: the same replies, fewer passes, and each its own errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from confkv import step
from confkv.errors import ConfkvError
from confkv.policies import parse_policy
from tasks.bench.model import Model, load
from tasks.grid.shared import Meter, SharedModel
from tasks.records import read_steps

PROMPTS = [list(range(5, 5 + n)) for n in (40, 17, 90)]
POLICIES = ["full", "confkv:n_high=24,n_low=32,protect=4", "window:32"]


@pytest.fixture(scope="module")
def model(bench_model: Path) -> Model:
    return load(str(bench_model), dtype="fp32", device="cpu")


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sessions each decode pass had."""
    sizes: list[int] = []
    feed = step.feed

    def counted(sessions: Any, ids: Any, held: Any, phase: Any, left: int = 0) -> None:
        if phase == "decode":
            sizes.append(len(sessions))
        feed(sessions, ids, held, phase, left)

    monkeypatch.setattr(step, "feed", counted)
    return sizes


def together(*jobs: Callable[[], Any]) -> list[Any]:
    """What the jobs return, each run in a thread of its own; they begin at once."""
    found: list[Any] = [None] * len(jobs)
    barrier = threading.Barrier(len(jobs))

    def run(number: int) -> None:
        barrier.wait()
        try:
            found[number] = jobs[number]()
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return found


def replies(shared: SharedModel, lengths: list[int]) -> list[Any]:
    """Each prompt's reply of so many tokens under a policy of its own, and the session's end."""
    stop = threading.Event()

    def job(number: int) -> Callable[[], Any]:
        session = shared.session(POLICIES[number], Meter(), stop)
        session.extend(PROMPTS[number], segment="observation")

        def play() -> Any:
            tokens = list(session.generate(max_new_tokens=lengths[number], stop_ids=[]))
            kept = [session._session.cache.store.positions(lane).tolist() for lane in range(2)]
            return [t.id for t in tokens], [t.confidence for t in tokens], kept

        return play

    return together(*[job(number) for number in range(len(PROMPTS))])


def test_replies_are_those_of_each_alone(model: Model, passes: list[int]) -> None:
    lengths = [60, 25, 40]  # rows leave one after the other
    batched = replies(SharedModel(model, batch=True), lengths)
    sizes, passes[:] = list(passes), []
    alone = replies(SharedModel(model), lengths)
    assert set(passes) == {1} and sum(sizes) == len(passes) == sum(lengths) - 3
    assert max(sizes) == 3 and len(sizes) < 0.8 * sum(sizes)
    for (ids, confidences, kept), (own, sure, held) in zip(batched, alone, strict=True):
        assert ids == own and kept == held
        assert confidences == pytest.approx(sure, abs=1e-5)


def test_a_row_joins_while_another_decodes(model: Model, passes: list[int]) -> None:
    shared, stop = SharedModel(model, batch=True), threading.Event()
    alone = SharedModel(model).session("full", Meter(), stop)
    alone.extend(PROMPTS[1])
    expected = [token.id for token in alone.generate(max_new_tokens=20, stop_ids=[])]
    passes.clear()
    first, late = shared.session("full", Meter(), stop), shared.session("full", Meter(), stop)
    first.extend(PROMPTS[0])
    begun = threading.Event()

    def long() -> int:
        count = 0
        for count, _ in enumerate(first.generate(max_new_tokens=150, stop_ids=[]), 1):
            if count == 10:
                begun.set()
        return count

    def joins() -> list[int]:
        assert begun.wait(60)
        late.extend(PROMPTS[1])  # its prefill is its own; the other waits meanwhile
        return [token.id for token in late.generate(max_new_tokens=20, stop_ids=[])]

    assert together(long, joins) == [150, expected]
    assert passes[:8] == [1] * 8 and 2 in passes and passes[-1] == 1


def test_an_error_belongs_to_its_own_row(model: Model) -> None:
    shared, stop = SharedModel(model, batch=True), threading.Event()
    shared.engine("full").max_positions = len(PROMPTS[0]) + 10
    fits, full = shared.session("window:32", Meter(), stop), shared.session("full", Meter(), stop)
    meter = full._meter
    fits.extend(PROMPTS[1])
    full.extend(PROMPTS[0])
    done, broke = together(
        lambda: len(list(fits.generate(max_new_tokens=40, stop_ids=[]))),
        lambda: len(list(full.generate(max_new_tokens=40, stop_ids=[]))),
    )
    assert done == 40 and isinstance(broke, ConfkvError) and meter.failed and not fits._meter.failed
    assert full._session.pending is not None and full.seen == len(PROMPTS[0]) + 10


def test_any_other_failure_of_a_pass_is_told_to_all_its_rows(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, stop = SharedModel(model, batch=True), threading.Event()
    pair = [shared.session("full", Meter(), stop) for _ in range(2)]
    for session in pair:
        session.extend(PROMPTS[1])
    feed = step.feed

    def lost(sessions: Any, ids: Any, held: Any, phase: Any, left: int = 0) -> None:
        if len(sessions) > 1:
            raise RuntimeError("device lost")
        feed(sessions, ids, held, phase, left)

    monkeypatch.setattr(step, "feed", lost)
    broke = together(*[lambda s=s: len(list(s.generate(max_new_tokens=200, stop_ids=[]))) for s in pair])
    assert [str(error) for error in broke] == ["device lost"] * 2
    # Nobody is left to wait for: the next session plays alone.
    other = shared.session("full", Meter(), stop)
    other.extend(PROMPTS[1])
    assert len(list(other.generate(max_new_tokens=5, stop_ids=[]))) == 5


def test_a_grid_that_batches_plays_the_same_episodes(
    play: Any, bench_model: Path, tmp_path: Path, passes: list[int]
) -> None:
    options = {
        "agent": "model",
        "models": [str(bench_model)],
        "tasks": "fake/ok-*",
        "dtype": "fp32",
        "max_turns": 2,
        "max_new_tokens": 24,
        "policies": ["full confkv-recall"],
    }
    _, alone = play("alone", **options)
    assert set(passes) == {1}
    passes.clear()
    summary, batched = play("together", workers=3, batch=True, **options)
    assert summary.settings.batch and max(passes) > 1
    assert alone.keys() == batched.keys() and len(alone) == 6
    for key, line in batched.items():
        mine, theirs = (read_steps(tmp_path / f / x[key].trace) for f, x in (("together", batched), ("alone", alone)))
        assert [s.reply for s in mine] == [s.reply for s in theirs] and any(s.reply for s in mine)
        assert line.kv.peak_bytes == alone[key].kv.peak_bytes


def test_policies_of_the_tests_evict() -> None:
    assert [parse_policy(spec).evicts for spec in POLICIES] == [False, True, True]
