"""The benches with a tiny random model: figures against a plain forward pass, matching, resuming, bad input."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.bench import asking, kl, needle, quant
from tasks.bench.comparison import Bench, compare, gap_closed
from tasks.bench.decode import Job, Run, decode, slots_for
from tasks.bench.haystack import Haystacks
from tasks.bench.matching import candidate
from tasks.bench.progress import Progress
from tasks.bench.results import RESULTS_FILE, open_log
from tasks.bench.text import cut, encode, read_texts
from tasks.cli import app

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench(loaded: Any, bench_text: Path, tmp_path: Path) -> Any:
    """A bench of two segments of 24 + 200 tokens."""
    segments = cut(read_texts([bench_text]), loaded.tokenizer, 224, 2)
    with open_log(tmp_path / "bench", Run) as log, Progress() as progress:
        yield Bench(loaded, segments, prefix=24, tokens=200, calibrate=160, log=log, progress=progress)


def plain_nll(model: Any, ids: list[int], first: int) -> list[float]:
    """Negative log-likelihood of ids[first:] by one forward pass of the model on transformers' own attention."""
    model.net.set_attn_implementation("eager")
    with torch.no_grad():
        logits = model.net(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    return [-float(logits[i - 1, ids[i]]) for i in range(first, len(ids))]


def test_perplexity_of_full_is_that_of_one_forward_pass(bench: Any) -> None:
    rows, _ = compare(bench, [], candidate("window:40"))
    losses = [loss for segment in bench.segments for loss in plain_nll(bench.model, segment.ids, 24)]
    full, window = rows
    assert full.spec == "full" and full.tokens == len(losses) == 400
    assert full.perplexity == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-5)
    assert window.perplexity != pytest.approx(full.perplexity, rel=1e-3)
    assert full.full_bytes == 2 * 2 * 2 * 8 * 4 * 224  # layers, K and V, heads, dimension, float32, positions
    assert full.evictions == 0 < window.evictions and window.kept == pytest.approx(39.5, abs=1)


def test_gap_closed_is_one_for_full_and_none_for_the_window() -> None:
    assert gap_closed(10.0, 30.0, 10.0) == 1.0 and gap_closed(10.0, 30.0, 30.0) == 0.0
    assert gap_closed(10.0, 30.0, 15.0) == 0.75 and gap_closed(10.0, 30.0, 40.0) == -0.5
    assert gap_closed(10.0, 10.0, 10.0) is None  # a window that loses nothing leaves nothing to close


def test_every_policy_is_brought_to_the_bytes_of_the_match(bench: Any) -> None:
    specs = ["confkv", "confkv:tau=0.3,n_low=512", "confkv-l"]
    smaller = [spec + (",protect=4" if ":" in spec else ":protect=4") for spec in specs]
    smaller += ["adakv:w=4"]
    match = candidate("window:60")
    rows, pairs = compare(bench, [candidate(spec) for spec in smaller], match)
    target = next(row for row in rows if row.policy == "window").mean_bytes
    assert [row.policy for row in rows] == ["full", "window", *smaller]
    for row in rows[1:]:
        assert row.matched and abs(row.mean_bytes / target - 1) <= 0.02, (row.spec, row.bytes_ratio)
        assert row.bytes_ratio == pytest.approx(row.mean_bytes / target)
        assert row.spec.partition(":")[0] == row.policy.partition(":")[0]
    assert "n_low=" in rows[3].spec and "tau=0.3" in rows[3].spec
    assert bench.notes == [] and len(pairs) == 15 and {(p.a, p.b) for p in pairs} >= {("full", "window")}
    between = next(p for p in pairs if (p.a, p.b) == ("full", "window")).difference
    assert between.value == pytest.approx(rows[0].perplexity - rows[1].perplexity)
    assert rows[1].above_full is not None and rows[1].above_full.value == pytest.approx(-between.value)


def test_an_int8_history_that_cannot_be_matched_is_said(bench: Any) -> None:
    """Its second part grows in blocks of 64 and more positions, which is much where 60 are kept."""
    rows, _ = compare(bench, [candidate("confkv:int8=1,w=16,protect=4")], candidate("window:60"))
    assert rows[-1].matched is False and abs(rows[-1].bytes_ratio - 1) > 0.02
    (note,) = bench.notes
    assert rows[-1].spec in note and f"{rows[-1].bytes_ratio:.3f} of its bytes" in note


def test_a_match_by_confidence_is_met_too(bench: Any) -> None:
    rows, _ = compare(bench, [candidate("confkv:tau=0.3,protect=4")], candidate("confkv:n_high=50,n_low=70,protect=4"))
    assert [row.policy for row in rows] == ["full", "window", "confkv:tau=0.3,protect=4"]
    assert all(row.matched for row in rows[1:]), [(row.spec, row.bytes_ratio) for row in rows]


def test_a_second_comparison_runs_nothing(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    match, chosen = candidate("window:60"), [candidate("confkv:protect=4")]
    first = compare(bench, chosen, match)

    def never(*_: object) -> Run:
        raise AssertionError("measured again")

    monkeypatch.setattr("tasks.bench.comparison.decode", never)
    assert compare(bench, chosen, match) == first


def test_sizes_as_written_where_nothing_is_matched(bench: Any) -> None:
    rows, _ = compare(bench, [candidate("window:50"), candidate("confkv:n_high=44,n_low=48,protect=4")], None)
    assert [row.spec for row in rows] == ["full", "window:50", "confkv:n_high=44,n_low=48,protect=4"]
    assert [row.matched for row in rows] == [None, None, None]
    rows, _ = compare(bench, [candidate("confkv:n_high=44,n_low=48,protect=4")], None)
    assert [row.gap_closed for row in rows] == [None, None]


def test_confidence_and_bytes_of_a_run_are_the_sessions(loaded: Any, bench: Any) -> None:
    policy = candidate("confkv:n_high=40,n_low=60,protect=4,tau=0.5").policy
    (run,) = decode(loaded, [Job(policy, bench.segments[0])], 24, 100, lambda n: None)
    session = loaded.engine(policy).session()
    session.extend(bench.segments[0].ids[:24])
    scores = session.score(bench.segments[0].ids[24:124])
    assert run.used == max(max(session.cache.store.lengths), math.ceil(max(s.kept for s in session.steps))) + 1
    assert (run.slots, run.grown) == (0, False)
    assert run.nll == pytest.approx(-sum(scores)) and run.mean_bytes == session.stats.mean_bytes
    assert run.confident == sum(step.confidence >= 0.5 for step in session.steps) and 0 < run.confident < 100
    assert (run.host_bytes, run.recalls, run.looks) == (0, 0, 0)


@pytest.mark.parametrize("gate", ["confidence", "random"])
def test_a_step_is_as_confident_as_it_was_before_a_second_look(gate: str, loaded: Any, bench: Any) -> None:
    policy = candidate(f"confkv-look:n_high=40,n_low=40,protect=4,tau=0.5,gate={gate}").policy
    (run,) = decode(loaded, [Job(policy, bench.segments[0])], 24, 100, lambda n: None)
    session = loaded.engine(policy).session()
    session.extend(bench.segments[0].ids[:24])
    session.score(bench.segments[0].ids[24:124])
    steps = session.steps
    assert run.looks == session.stats.looks == sum(step.looked for step in steps) > 5
    assert any(step.looked and step.confidence >= 0.5 for step in steps), "a look can make sure"
    if gate == "random":  # what made it look is not its confidence
        assert run.confident == sum(step.confidence >= 0.5 for step in steps)
    else:
        assert run.confident == sum(c >= 0.5 for c in session._manager.past.values)


def test_an_allocation_holds_what_it_was_made_for(loaded: Any, bench: Any) -> None:
    segment, policy = bench.segments[0], candidate("window:40").policy
    (exact,) = decode(loaded, [Job(policy, segment, 41)], 24, 100, lambda n: None)
    # layers x heads x (K and V of 8 float32, and three of metadata)
    a_slot = 2 * 2 * (2 * 8 * 4 + 3 * 4)
    assert not exact.grown and exact.used == exact.slots == 41 and exact.peak_bytes == 41 * a_slot
    for slots in (41.4, 41, 40.6):
        assert slots_for(loaded, policy, segment, 24, slots * a_slot) == 41
    (short,) = decode(loaded, [Job(policy, segment, 40)], 24, 100, lambda n: None)
    assert short.grown and short.peak_bytes > exact.peak_bytes and short.nll == exact.nll
    assert slots_for(loaded, candidate("confkv:int8=1").policy, segment, 24, 1e6) == 0


def test_an_allocation_follows_the_layers_budgets(loaded: Any, bench: Any) -> None:
    segment, policy = bench.segments[0], candidate("confkv-l:n_high=40,n_low=40,floor=10,ratio=0.25,protect=4").policy
    (exact,) = decode(loaded, [Job(policy, segment, 41)], 24, 100, lambda n: None)
    # Two layers of budgets 40 and 20: what the first holds at its largest, and half of it; metadata as the first.
    one = 2 * 2 * 8 * 4
    assert not exact.grown and exact.used == 41
    assert exact.mean_bytes == pytest.approx((41 + 21) * one + 41 * 2 * 2 * 3 * 4, rel=0.03)
    flat = candidate("confkv:n_high=40,n_low=40,protect=4").policy
    (even,) = decode(loaded, [Job(flat, segment, 41)], 24, 100, lambda n: None)
    assert exact.mean_bytes < 0.9 * even.mean_bytes
    assert decode(loaded, [Job(policy, segment, 40)], 24, 100, lambda n: None)[0].grown


def test_segments_decoded_together_are_as_decoded_alone(bench: Any, tmp_path: Path) -> None:
    policy = candidate("confkv:n_high=40,n_low=60,protect=4,tau=0.5").policy
    (together,) = bench.answers([lambda: bench.ask(policy, "x")])
    assert len(together) == len(bench.segments) > 1
    bench.log.rows.clear()
    bench.together = 1
    (single,) = bench.answers([lambda: bench.ask(policy, "x")])
    for one, alone in zip(together, single, strict=True):
        assert one.nll == pytest.approx(alone.nll, abs=1e-3)
        same = {"start", "mean_bytes", "peak_bytes", "kept", "evictions", "confident", "identity"}
        assert {k: getattr(one, k) for k in same} == {k: getattr(alone, k) for k in same}


@pytest.mark.parametrize(
    "spec", ["adakv:40,w=4,pool=3,floor=0", "confkv:n_high=40,n_low=40,protect=4,scope=head,heads=ada"]
)
def test_an_allocation_is_shared_among_heads(spec: str, loaded: Any, bench: Any) -> None:
    """Heads divide what their layer was given, and outgrow it no sooner than even ones would."""
    segment, policy = bench.segments[0], candidate(spec).policy
    (exact,) = decode(loaded, [Job(policy, segment, 41)], 24, 100, lambda n: None)
    assert not exact.grown and exact.used == exact.slots == 41
    session = loaded.engine(policy).session()
    session.extend(segment.ids[:24])
    scores = session.score(segment.ids[24:124])
    store, manager = session.cache.store, session._manager
    assert exact.nll == pytest.approx(-sum(scores)), "what is allocated changes nothing but bytes"
    lengths = store.lengths
    assert lengths == manager.layer_budgets(40) and len(set(lengths)) > 1 and sum(lengths) == 40 * 2 * 2
    # K and V of 8 float32; a slot more than it holds for every head, and what rounding up adds; queries of the window.
    spare = exact.peak_bytes - manager.nbytes - 4 * max(lengths) * 3 * 4 - sum(lengths) * 2 * 8 * 4
    assert 0 < spare <= 4 * 2 * (2 * 8 * 4 + 3 * 4)
    assert decode(loaded, [Job(policy, segment, 40)], 24, 100, lambda n: None)[0].grown


# -- resuming -----------------------------------------------------------------------------------------------------


def environment(tmp_path: Path) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    cache = str(tmp_path / "cache")
    return {**os.environ, "PYTHONPATH": path, "CONFKV_CACHE": cache, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tasks.cli.app", "bench", *map(str, arguments)]


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / RESULTS_FILE).read_text().splitlines()]


def nearly(a: Any, b: Any) -> bool:
    """Equal but for rounding: what a run is decoded beside moves its last digits."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(nearly(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(nearly, a, b))
    return bool(a == (pytest.approx(b, rel=1e-3, abs=1e-6) if isinstance(b, float) else b))


def test_killed_in_the_middle_nothing_is_lost_or_run_twice(bench_model: Path, bench_text: Path, tmp_path: Path) -> None:
    def arguments(out: Path) -> list[str]:
        specs = "confkv:protect=4 confkv:protect=4,tau=0.3"
        sizes = ["--tokens", 160, "--prefix", 24, "--match", "window:40", "--segments", 2, "--calibrate", 100]
        fixed = ["--model", bench_model, "--text", bench_text, "--policies", specs, "--dtype", "fp32"]
        return command("ppl", *fixed, *sizes, "--out", out, "--json")

    def whole(out: Path) -> dict[str, Any]:
        done = subprocess.run(arguments(out), env=environment(tmp_path), capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\n") == 1
        return json.loads(done.stdout)

    broken, straight = tmp_path / "broken", tmp_path / "straight"
    process = subprocess.Popen(
        arguments(broken), env=environment(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + 120
        file = broken / RESULTS_FILE
        while not (file.exists() and file.read_bytes().count(b"\n") >= 4):
            assert time.monotonic() < end and process.poll() is None, "it never got going, or was over too soon"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    before = file.read_bytes()
    before = before[: before.rfind(b"\n") + 1]
    resumed, uninterrupted = whole(broken), whole(straight)
    assert file.read_bytes().startswith(before)
    keys = [json.dumps(line["identity"], sort_keys=True) for line in lines(broken)]
    assert len(keys) == len(set(keys)) > 4
    assert sorted(keys) == sorted(json.dumps(line["identity"], sort_keys=True) for line in lines(straight))
    for a, b in zip(resumed["rows"], uninterrupted["rows"], strict=True):
        assert nearly({**a, "seconds": 0}, {**b, "seconds": 0})
    assert nearly(resumed["pairs"], uninterrupted["pairs"])
    files = {path.name for path in broken.iterdir()}
    assert {"results.jsonl", "summary.json", "table.md", "figure.png"} <= files
    assert json.loads((broken / "summary.json").read_text()) == resumed
    assert "confkv bench ppl" in (broken / "table.md").read_text()
    assert "| window | `window:40` |" in (broken / "table.md").read_text()


# -- the other benches --------------------------------------------------------------------------------------------


def test_kl_of_an_untouched_mask_is_zero_and_grows_with_what_is_removed(loaded: Any, bench_text: Path) -> None:
    ids = encode(loaded.tokenizer, bench_text.read_text())[:300]
    loaded.net.set_attn_implementation("sdpa")
    positions = [120, 200, 299]
    sure, none = kl.shifts(loaded.net, ids, positions, remove=1)
    assert none == pytest.approx([0.0] * 3, abs=1e-6)
    again, some = kl.shifts(loaded.net, ids, positions, remove=100)
    assert again == pytest.approx(sure, abs=1e-6) and min(some) > 1e-3
    # By hand for one position: nothing but the first 21 and the token itself is left of the full context.
    model = loaded.net
    model.set_attn_implementation("eager")
    mask = torch.full((1, 1, 121, 121), float("-inf")).triu(1)
    with torch.no_grad():
        full = model(input_ids=torch.tensor([ids[:121]])).logits[0, -1].log_softmax(-1)
        mask[..., 120, 21:120] = float("-inf")
        reduced = model(input_ids=torch.tensor([ids[:121]]), attention_mask=mask).logits[0, -1].log_softmax(-1)
    assert some[0] == pytest.approx(float((full.exp() * (full - reduced)).sum()), rel=1e-3)


def test_needles_are_asked_once_a_cell(bench_model: Path, bench_text: Path, tmp_path: Path) -> None:
    options = needle.Options(
        str(bench_model), [bench_text], tmp_path / "needle", "full confkv:protect=4",
        lengths="600 900", depths="0,0.5,1",
        kinds="single tracking", needles=1, new_tokens=4, dtype="fp32",
    )  # fmt: skip
    summary = needle.run(options)
    rows = lines(tmp_path / "needle")
    assert len(rows) == 2 * 2 * 3 * 2 and [row.asked for row in summary.rows] == [12, 12]
    assert all(row["correct"] is False for row in rows), "a random model knows nothing"
    assert all(0.85 * row["length"] <= row["tokens"] <= row["length"] + 160 for row in rows)
    assert {row["evictions"] > 0 for row in rows if row["identity"]["policy"] == "full"} == {False}
    assert {row["evictions"] > 0 for row in rows if row["identity"]["policy"] != "full"} == {True}
    again = needle.run(options)
    assert len(lines(tmp_path / "needle")) == len(rows) and again.rows == summary.rows


def test_the_prompt_holds_haystack_and_question_in_a_chat_turn(loaded: Any, bench_text: Path) -> None:
    tokenizer = loaded.tokenizer
    case = Haystacks(bench_text.read_text(), lambda piece: len(encode(tokenizer, piece))).case("single", 500, 0.5, 0)
    before, after = asking.prompt(tokenizer, case)
    assert tokenizer.decode(before).endswith(case.haystack)
    assert tokenizer.decode(after) == f"\n\n{case.question}\nAnswer:"
    template = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</>{% endfor %}<assistant>"
    try:
        tokenizer.chat_template = template
        before, after = asking.prompt(tokenizer, case)
    finally:
        tokenizer.chat_template = None
    assert tokenizer.decode(before).startswith("<user>") and tokenizer.decode(before).endswith(case.haystack)
    assert tokenizer.decode(after) == f"\n\n{case.question}</><assistant>"


def test_four_bit_codes_have_sixteen_levels_and_the_error_of_their_step() -> None:
    levels = quant.nf4_levels()
    assert len(levels) == 16 and levels[0] == -1 and levels[-1] == 1 and 0.0 in levels
    # QLoRA, appendix E.
    assert levels[8:10] == pytest.approx([0.0795803, 0.1609302], abs=2e-4)
    assert levels[1] == pytest.approx(-0.6961928, abs=2e-4)
    x = torch.randn(2, 3, 500, 64, generator=torch.Generator().manual_seed(1))
    errors = {name: float((code(x) - x).norm() / x.norm()) for name, code in quant.SIMULATED.items()}
    assert 0.05 < errors["nf4"] < errors["int4"] < 0.15
    assert torch.unique((quant.int4(x) / x.abs().amax(-1, keepdim=True) * 7).round()).numel() == 15


def test_precision_costs_what_it_should(bench_model: Path, bench_text: Path, tmp_path: Path) -> None:
    out = tmp_path / "quant"
    summary = quant.run(
        quant.Options(str(bench_model), [bench_text], out, tokens=300, prefix=24, window=32, dtype="fp32")
    )
    rows = {row.precision: row for row in summary.rows}
    assert rows["fp"].error_k == rows["fp"].error_v == 0.0
    assert 0 < rows["int8"].error_k < 0.02 < rows["nf4"].error_k < 0.25
    assert [rows[name].simulated for name in ("fp", "int8", "int4", "nf4")] == [False, False, True, True]
    assert rows["fp"].bits == 32 and rows["int8"].bits == 12 and rows["int4"].bits == 6  # vectors of 8 numbers
    assert rows["nf4"].mean_bytes < rows["int8"].mean_bytes < rows["fp"].mean_bytes
    exact = rows["fp"].perplexity
    assert rows["int8"].perplexity == pytest.approx(exact, rel=0.05)
    assert rows["nf4"].perplexity != pytest.approx(exact, rel=1e-4)


# -- bad input ----------------------------------------------------------------------------------------------------

FINE = ["--text", "words.txt", "--model", "./model"]
BAD = {
    "no text": (["ppl", "--model", "./model"], "--text FILE"),
    "missing text": (["ppl", "--text", "no.txt", "--model", "./model"], "no.txt"),
    "empty text": (["ppl", "--text", "empty.txt", "--model", "./model"], "empty.txt is empty"),
    "binary text": (["kl", "--text", "binary.txt", "--model", "./model"], "not UTF-8"),
    "unknown policy": (["ppl", *FINE, "--policies", "full confkw"], "confkw"),
    "unknown parameter": (["needle", *FINE, "--policies", "confkv:n_hihg=3"], "n_hihg"),
    "bad match": (["ppl", *FINE, "--match", "windoww:512"], "windoww"),
    "match without a size": (["ppl", *FINE, "--match", "full"], "--match full has no size"),
    "no policies": (["ppl", *FINE, "--policies", " "], "--policies"),
    "tokens": (["ppl", *FINE, "--tokens", "0"], "--tokens"),
    "lengths": (["needle", *FINE, "--lengths", "many"], "--lengths"),
    "depths": (["needle", *FINE, "--depths", "0 2"], "--depths"),
    "kinds": (["needle", *FINE, "--kinds", "hay"], "--kinds"),
    "segment": (["needle", *FINE, "--segment", "goal"], "--segment"),
    "question": (["needle", *FINE, "--question", "system"], "--question"),
    "share": (["needle", *FINE, "--share", "0.5"], "--share"),
    "removed": (["kl", *FINE, "--tokens", "100"], "--tokens 100"),
    "precisions": (["quant", *FINE, "--precisions", "int2"], "--precisions"),
    "what": (["ablate", *FINE, "--what", "everything"], "--what"),
    "model": (["ppl", "--text", "words.txt", "--model", "smollm3"], "smollm3"),
    "device": (["ppl", *FINE, "--device", "abacus"], "abacus"),
    "out": (["ppl", *FINE, "--out", "words.txt"], "is a file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_code_2(
    case: str, bench_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments, named = BAD[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("CONFKV_CACHE", str(tmp_path / "cache"))
    (tmp_path / "words.txt").write_text(bench_text.read_text())
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")  # bad input is found before anyone loads it
    assert app.invoke(["bench", *arguments, "--json"]) == 2
    out, err = capfd.readouterr()
    errors = [line for line in err.splitlines() if line.startswith("confkv: ")]
    assert out == "" and len(errors) == 1 and named in errors[0] and "Traceback" not in err


@pytest.mark.parametrize("name", ["ppl", "kl", "quant"])
def test_a_text_too_short_is_told_with_what_would_do(
    name: str, bench_model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "short.txt"
    text.write_text("Too short. " * 20)
    assert app.invoke(["bench", name, "--text", str(text), "--model", str(bench_model), "--out", str(tmp_path)]) == 2
    assert "short.txt has 220 tokens and " in capfd.readouterr().err.splitlines()[-1]
