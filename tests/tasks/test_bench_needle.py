"""The needle bench: one prefill for many questions, sizes by share of full's bytes, and what is reported of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from confkv.errors import PolicyError
from confkv.policies import parse_policy
from tasks.bench import needle
from tasks.bench.asking import ask, read
from tasks.bench.haystack import PLACES, Haystacks
from tasks.bench.needle_rows import table
from tasks.bench.results import RESULTS_FILE
from tasks.bench.share import largest
from tasks.bench.text import encode
from tasks.errors import TaskError


def stacks(loaded: Any, text: Path) -> Haystacks:
    return Haystacks(text.read_text(), lambda piece: len(encode(loaded.tokenizer, piece)))


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_every_depth_of_a_haystack_has_a_key_of_its_own(loaded: Any, bench_text: Path) -> None:
    depths = [0.0, 0.3, 0.6, 1.0]
    cases = stacks(loaded, bench_text).cases(depths, 1500, seed=4)
    assert len({case.haystack for case in cases}) == 1 and len({case.question for case in cases}) == 4
    keys = [case.expected[0] for case in cases]
    assert len(set(keys)) == 4
    for depth, case in zip(depths, cases, strict=True):
        assert case.haystack.count(case.expected[0]) == 1 and set(case.forbidden) == set(keys) - set(case.expected)
        needle = case.haystack[case.key_start :]
        place = needle.removeprefix("The number kept at the ").partition(" is ")[0]
        assert place in PLACES and f"kept at the {place}?" in case.question and case.expected[0] in needle[:60]
        # A sentence has some 40 bytes, which are the tokens here; needles before this one count too.
        assert abs(case.key_start - depth * len(case.haystack)) <= 240
    assert cases == stacks(loaded, bench_text).cases(depths, 1500, seed=4)
    with pytest.raises(TaskError, match="16 at most"):
        stacks(loaded, bench_text).cases([i / 20 for i in range(17)], 1500, seed=4)


@pytest.mark.parametrize(
    "spec",
    [
        "full",
        "confkv:protect=4,n_high=40,n_low=60",
        "confkv-recall:protect=8,n_high=40,n_low=40",
        "confkv-look:protect=8,n_high=40,n_low=40,scope=head",
        "snapkv:n=60",
    ],
)
def test_a_question_in_a_fork_is_answered_as_if_asked_alone(spec: str, loaded: Any, bench_text: Path) -> None:
    policy = parse_policy(spec)
    cases = stacks(loaded, bench_text).cases([0.1, 0.5, 0.9], 700, seed=1)
    once = read(loaded, policy, cases[0], "text")
    for case in cases:
        answer, tokens, stats = ask(loaded, once, case, "goal", 6, again=True)
        own = read(loaded, policy, case, "text")
        alone = ask(loaded, own, case, "goal", 6, again=False)
        assert (answer, tokens) == alone[:2] and answer
        same = ("tokens_seen", "kept_per_layer", "evictions", "recalls", "recalled", "fetched", "looks")
        assert [getattr(stats, name) for name in same] == [getattr(alone[2], name) for name in same]
    assert once.session.seen == once.tokens, "what the questions were about is as it was"


def options(model: Path, text: Path, out: Path, **changes: Any) -> needle.Options:
    fixed: dict[str, Any] = {"lengths": "700", "depths": "0 0.5 1", "kinds": "multiquery", "needles": 1}
    fixed |= {"new_tokens": 4, "dtype": "fp32", "chunk": 16}
    return needle.Options(str(model), [text], out, **(fixed | changes))


def test_every_policy_gets_its_share_of_fulls_bytes(
    loaded: Any, bench_model: Path, bench_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = "window confkv:protect=4 h2o confkv-recall:protect=8"
    chosen = options(bench_model, bench_text, tmp_path, policies=specs, share=2.0, lengths="900 1200")
    summary = needle.run(chosen)
    assert [row.policy for row in summary.rows] == ["full", *specs.split()], "full comes first, named or not"
    full, *others = summary.rows
    assert [part.of_full for row in summary.rows for part in row.lengths] == [None] * 10, "full found nothing"
    assert all((part.mean_ratio, part.peak_ratio) == (1.0, 1.0) for part in full.lengths)
    files = [tmp_path / RESULTS_FILE, tmp_path / "sizes" / RESULTS_FILE]
    tokens = {line["length"]: line["tokens"] for line in lines(files[0]) if line["identity"]["policy"] == "full"}
    for row in others:
        sizes = []
        for part, whole in zip(row.lengths, full.lengths, strict=True):
            # Questions differ by some tokens, which are pinned.
            held = loaded.engine(parse_policy("full")).full_bytes(tokens[part.length])
            assert held < whole.peak_bytes and 0.9 < part.peak_bytes / (held / 2) <= 1.03, (part.spec, part.peak_bytes)
            assert part.mean_bytes <= part.peak_bytes and part.mean_ratio == part.mean_bytes / whole.mean_bytes
            assert part.peak_ratio == part.peak_bytes / whole.peak_bytes <= 0.5
            sizes.append(part.spec)
        assert sizes[0] != sizes[1] and all(spec.startswith(row.policy.partition(":")[0]) for spec in sizes)
    shown = table(summary.rows)
    assert all(f"`{part.spec}`" in shown for row in summary.rows for part in row.lengths)
    assert [len(lines(file)) for file in files] == [5 * 2 * 3, 4 * 2]
    before = [file.read_bytes() for file in files]

    def never(*_: object, **__: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr("tasks.bench.needle.read", never)
    monkeypatch.setattr("tasks.bench.needle.peak", never)
    assert needle.run(chosen).rows == summary.rows and [file.read_bytes() for file in files] == before


def test_a_haystack_is_read_once_for_all_of_its_questions(
    bench_model: Path, bench_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def counted(model: Any, policy: Any, case: Any, segment: str) -> Any:
        reads.append(policy.spec)
        return read(model, policy, case, segment)

    monkeypatch.setattr("tasks.bench.needle.read", counted)
    chosen = options(bench_model, bench_text, tmp_path, policies="full window:60", needles=2)
    summary = needle.run(chosen)
    assert reads == ["full", "full", "window:60", "window:60"] and [row.asked for row in summary.rows] == [6, 6]
    # A kill in between: the cells that are missing are asked, with one more prefill.
    file = tmp_path / RESULTS_FILE
    whole = file.read_text()
    file.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    again = needle.run(chosen)
    assert reads[4:] == ["window:60"]
    for old, new in zip(whole.splitlines(), file.read_text().splitlines(), strict=True):
        assert {**json.loads(old), "seconds": 0} == {**json.loads(new), "seconds": 0}
    assert [row.accuracy for row in again.rows] == [row.accuracy for row in summary.rows]


def test_a_share_that_a_chunk_alone_exceeds_is_told(bench_model: Path, bench_text: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"window.*lower --chunk"):
        needle.run(options(bench_model, bench_text, tmp_path, policies="window", share=16.0, chunk=512))


def test_the_largest_size_within_a_target() -> None:
    probes: list[int] = []

    def line(size: int) -> int:
        probes.append(size)
        if size < 10:
            raise PolicyError("too small")
        return 5000 + 130 * size

    assert largest(line, 50_000, 100) == 346 and len(probes) <= 3
    # On a staircase (a store that grows in blocks) what was tried and fits is taken.
    found = largest(lambda size: 4096 * -(-size // 32), 50_000, 100)
    assert 4096 * -(-found // 32) <= 50_000 < 4096 * (-(-found // 32) + 1)
    with pytest.raises(TaskError, match="exceed the share of 1,000"):
        largest(lambda size: 5000 + size, 1000, 100)
    with pytest.raises(PolicyError):
        largest(line, 50_000, 5)
