"""The parts of the benches that need no model: solver, statistics, log, haystacks."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest

from confkv.errors import PolicyError
from tasks.bench import haystack
from tasks.bench.matching import candidate, fill, parameters, solve
from tasks.bench.results import Identity, Row, open_log
from tasks.bench.statistics import bootstrap, pearson, ranks, spearman, wilson
from tasks.errors import TaskError

# -- matching -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [7_000.0, 123_456.0, 5e6])
@pytest.mark.parametrize("guess", [4, 300, 20_000])
def test_a_smooth_function_is_met_within_two_percent(target: float, guess: int) -> None:
    found = solve(lambda n: 40.0 * n + 3 * n**1.1, target, guess, probes=40)
    assert found.matched and abs(found.value / target - 1) <= 0.02
    assert found.value <= target * 1.001, "never more than the reference by more than rounding"


def test_on_a_staircase_the_largest_size_of_the_stair_is_taken() -> None:
    """Blocks of 64: everything from 129 to 192 costs the same, and only 192 gets what it pays for."""
    found = solve(lambda n: math.ceil(n / 64) * 1000.0, 3000.0, 140)
    assert found.size in (191, 192) and found.ratio == 1.0
    assert solve(lambda n: math.ceil(n / 64) * 1000.0, 3000.0, 140, accept=0.001).size == 140


def test_a_match_that_is_out_of_reach_is_said_and_the_closest_is_given() -> None:
    found = solve(lambda n: 1000.0 if n < 10 else 2000.0, 1500.0, 5)
    assert not found.matched and found.size == 9 and found.ratio == pytest.approx(2 / 3)
    found = solve(lambda n: min(n, 50) * 1.0, 80.0, 30)
    assert not found.matched and found.value == 50


def test_sizes_that_cannot_be_built_count_as_too_small() -> None:
    def measure(n: int) -> float:
        if n < 36:
            raise PolicyError("too small")
        return 10.0 * n

    assert solve(measure, 400.0, 2).size == 40
    with pytest.raises(TaskError, match="no size"):
        solve(measure, 100.0, 2, largest=20)


def test_a_candidate_keeps_its_parameters_and_its_ratio_at_every_size() -> None:
    chosen = candidate("confkv:tau=0.5,n_low=512")
    assert chosen.size == 128 and chosen.at is not None
    assert parameters(chosen.at(60).spec) == {**parameters("confkv"), "tau": 0.5, "n_high": 60, "n_low": 240}
    window = candidate("window:192")
    assert window.size == 192 and window.at is not None and window.at(77).spec == "window:77"
    assert candidate("full").size is None


@pytest.mark.parametrize("slots", [60, 193, 2000])
@pytest.mark.parametrize("extra", [1, 23])
@pytest.mark.parametrize("guess", [5, 192, 4000])
def test_an_allocation_is_filled_and_not_outgrown(slots: int, extra: int, guess: int) -> None:
    """Use is the size and what an uncertain stretch adds; a longer stretch for larger sizes."""
    tried = []

    def measure(size: int) -> tuple[int, bool]:
        tried.append(size)
        used = size + extra + size // 50
        return used, used > slots

    found = fill(measure, slots, guess)
    assert found is not None
    used, grown = measure(found)
    assert not grown and used >= 0.98 * slots and len(tried) <= 7


def test_nothing_fits_where_the_policy_cannot_be_that_small() -> None:
    def measure(size: int) -> tuple[int, bool]:
        if size < 36:
            raise PolicyError("too small")
        return size + 1, size + 1 > 30

    assert fill(measure, 30, 29) is None
    # A text too short to fill the allocation: some size that fits, without end.
    assert fill(lambda size: (min(size, 20), False), 50, 10) is not None


# -- statistics ---------------------------------------------------------------------------------------------------


def test_the_interval_of_a_mean_is_that_of_theory() -> None:
    values = np.random.default_rng(1).normal(10.0, 2.0, 400)
    found = bootstrap(lambda table: float(table.mean()), values, draws=4000)
    assert found is not None and found.value == pytest.approx(values.mean())
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert found.low == pytest.approx(values.mean() - half, abs=0.02)
    assert found.high == pytest.approx(values.mean() + half, abs=0.02)


def test_a_proportion_has_an_interval_at_its_ends_too() -> None:
    found = wilson(8, 10)
    assert (found.value, found.low, found.high) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-4)
    assert wilson(3, 3).low == pytest.approx(0.4385, abs=1e-4) and wilson(3, 3).high == pytest.approx(1.0)
    assert wilson(0, 3).low == pytest.approx(0.0, abs=1e-9) and wilson(0, 3).high == pytest.approx(0.5615, abs=1e-4)


def test_columns_are_resampled_together() -> None:
    """A difference that is the same in every pair has an interval of no width, however much the pairs vary."""
    a = np.random.default_rng(2).normal(0, 100, 50)
    found = bootstrap(lambda table: float((table[:, 0] - table[:, 1]).mean()), a + 3.0, a)
    assert found is not None and found.low == pytest.approx(3.0) and found.high == pytest.approx(3.0)
    assert bootstrap(lambda table: 0.0, np.array([1.0])) is None


def test_correlations_of_known_data() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert pearson(x, 2 * x + 1) == pytest.approx(1.0)
    assert pearson(x, np.array([2.0, 1.0, 4.0, 3.0, 5.0])) == pytest.approx(0.8)
    assert spearman(x, np.exp(x)) == pytest.approx(1.0) and pearson(x, np.exp(x)) < 0.95
    assert spearman(x, -(x**3)) == pytest.approx(-1.0)
    assert ranks(np.array([10, 20, 20, 5])).tolist() == [2.0, 3.5, 3.5, 1.0]
    # ranks 1 2.5 2.5 4 against 1 3 2 4: 4.5 / sqrt(4.5 * 5)
    assert spearman(np.array([1, 2, 2, 3]), np.array([1, 3, 2, 4])) == pytest.approx(4.5 / math.sqrt(22.5))
    assert math.isnan(pearson(x, np.ones(5)))


# -- results.jsonl ------------------------------------------------------------------------------------------------


class Noted(Row):
    value: float


def identity(policy: str = "full", **changed: int) -> Identity:
    return Identity(
        bench="t", model="m", fingerprint="f", policy=policy, text="", parameters={"start": 0, "tokens": 8, **changed}
    )


def test_a_row_is_measured_once_and_a_torn_line_again(tmp_path: Path) -> None:
    calls = []

    def measure(name: str) -> Noted:
        calls.append(name)
        return Noted(identity=identity(name), seconds=0.0, value=len(calls))

    with open_log(tmp_path, Noted) as log:
        for name in ("a", "b", "a"):
            log.measured(identity(name), lambda name=name: measure(name))
    file = tmp_path / "results.jsonl"
    before = file.read_bytes()
    file.write_bytes(before + b'{"identity": {"bench": "t", "mod')  # killed in the middle of a line
    with open_log(tmp_path, Noted) as log:
        assert file.read_bytes() == before
        values = [log.measured(identity(n), lambda n=n: measure(n)).value for n in ("b", "a", "c")]
    assert calls == ["a", "b", "c"] and values == [2, 1, 3]
    assert file.read_bytes().startswith(before) and file.read_bytes().count(b"\n") == 3


def test_what_changes_a_figure_changes_the_key() -> None:
    base = identity()
    others = [identity("window:512"), identity(start=1), identity(chunk=512)]
    others += [base.model_copy(update=change) for change in ({"fingerprint": "g"}, {"text": "x"}, {"bench": "u"})]
    assert len({row.key for row in [base, *others]}) == 7
    assert base.model_copy(update={"model": "another name"}).key == base.key


def test_a_folder_of_another_bench_and_one_in_use_are_told(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"something": "else"}\n')
    with pytest.raises(TaskError, match="line 1 is not a row of this bench"), open_log(tmp_path, Noted):
        pass
    in_use = pytest.raises(TaskError, match="another bench is writing")
    with open_log(tmp_path / "new", Noted), in_use, open_log(tmp_path / "new", Noted):
        pass


# -- haystacks ----------------------------------------------------------------------------------------------------

WORDS = " ".join(f"Sentence {i} talks about {random.Random(i).choice(['rain', 'bread', 'gold'])}." for i in range(900))


def count(piece: str) -> int:
    return len(piece.split())


@pytest.mark.parametrize("kind", haystack.KINDS)
@pytest.mark.parametrize("depth", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_the_needle_lies_at_the_depth_asked_for(kind: str, depth: float) -> None:
    stacks = haystack.Haystacks(WORDS, count)
    case = stacks.case(kind, 1000, depth, seed=3)
    tokens = count(case.haystack)
    assert 980 <= tokens <= 1000
    needle = case.haystack[case.key_start :]
    assert needle.startswith("Let " if kind == "tracking" else "The number kept at the ")
    if kind != "tracking":
        assert case.expected[0] in needle[:70]
    # A sentence of the text has five tokens, and other needles may stand before this one.
    slack = {"single": 5, "multikey": 5 + 3 * 9, "multiquery": 5, "tracking": 5 + 12}[kind]
    assert abs(count(case.haystack[: case.key_start]) - depth * tokens) <= slack + 0.02 * tokens
    assert case == stacks.case(kind, 1000, depth, seed=3) != stacks.case(kind, 1000, depth, seed=4)


def test_the_text_around_the_needle_is_untouched() -> None:
    case = haystack.Haystacks(WORDS, count).case("single", 400, 0.5, seed=1)
    end = case.haystack.index(". ", case.key_start) + 2
    rest = case.haystack[: case.key_start] + case.haystack[end:]
    assert WORDS.startswith(rest) and rest.endswith(".")


def test_all_needles_are_there_and_the_chain_is_in_order() -> None:
    stacks = haystack.Haystacks(WORDS, count)
    case = stacks.case("multikey", 600, 0.5, seed=8)
    assert len(set(case.expected + case.forbidden)) == 1 + haystack.OTHERS
    assert all(case.haystack.count(key) == 1 for key in case.expected + case.forbidden)
    case = stacks.case("tracking", 600, 0.2, seed=8)
    firsts = [case.haystack.index(f"Let {name} be") for name in case.expected]
    assert firsts == sorted(firsts) and len(case.expected) == haystack.LINKS
    assert f"Let {case.expected[1]} be the value of {case.expected[0]}." in case.haystack


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("1234567", True),
        ("It is 1234567.", True),
        ("No. 1234567, as the text says", True),
        ("12345678", False),
        ("01234567", False),
        ("1,234,567", False),
        ("123456", False),
        ("1234567 or 7654321", False),
        ("", False),
    ],
)
def test_the_grader_is_exact(answer: str, right: bool) -> None:
    case = haystack.Case("", "", ("1234567",), ("7654321",), 0)
    assert haystack.correct(case, answer) is right


def test_a_chain_needs_every_name_and_no_other() -> None:
    case = haystack.Case("", "", ("A12", "B3"), ("C4",), 0)
    assert haystack.correct(case, "A12 and B3") and haystack.correct(case, "B3, A12")
    assert not haystack.correct(case, "A12") and not haystack.correct(case, "A12, B3, C4")
    assert not haystack.correct(case, "A123 and B3")


def test_a_text_too_short_for_the_haystack_is_told() -> None:
    with pytest.raises(TaskError, match="give a longer text"):
        haystack.Haystacks("One. Two. Three.", count).case("single", 100, 0.5, 0)
