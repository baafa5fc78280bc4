"""RESULTS.md: every file with its command, deterministic, no figure that is not in a file."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks.vwa.sites import VARIABLES

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "report.py"


@pytest.fixture(scope="module")
def report() -> Any:
    spec = importlib.util.spec_from_file_location("confkv_benchmarks_report", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ROW = {
    "policy": "window", "spec": "window:60", "perplexity": 23.456, "above_full": None, "gap_closed": 0.0,
    "mean_bytes": 8.12e6, "bytes_ratio": 1.0, "matched": True, "peak_bytes": 9_000_000, "host_bytes": 0,
    "full_bytes": 20_000_000, "evictions": 7, "recalls": 0, "looks": 0, "confident_share": 0.4, "kept": 59.5,
    "tokens": 400, "seconds": 1.5, "by_text": {"words.txt": 23.456},
}  # fmt: skip
PPL = {
    "benchmark": "ppl", "command": "confkv bench ppl --text words.txt", "models": ["tiny"], "dtype": "float32",
    "machine": {}, "versions": {"torch": "2"}, "settings": {}, "notes": ["a note"], "rows": [ROW], "pairs": [],
}  # fmt: skip
DECODE = {
    "benchmark": "decode",
    "command": "python benchmarks/decode.py",
    "model": "tiny",
    "repeats": 15,
    "rows": [{"kind": "held", "ms": 1.25}, {"kind": "generated", "ms": 3.5, "share": 0.25}],
}


def test_each_file_is_a_table_under_its_command(report: Any, tmp_path: Path) -> None:
    (tmp_path / "ppl_tiny.json").write_text(json.dumps(PPL))
    (tmp_path / "decode.json").write_text(json.dumps(DECODE))
    text = report.report(tmp_path)
    assert text == report.report(tmp_path)
    assert text.index("    python benchmarks/decode.py\n") < text.index("| held | 1.25 |")
    assert text.index("    confkv bench ppl --text words.txt\n") < text.index("| window | `window:60` | 23.46 |")
    assert "| kind | ms | share |\n| --- | --- | --- |\n| generated | 3.5 | 0.25 |" in text and "- a note" in text


def test_what_could_not_be_run_has_its_command_and_no_invented_figure(report: Any, tmp_path: Path) -> None:
    text = report.report(tmp_path)
    for name in ("GPT-2", "Qwen-14B", "Qwen-32B", "gpt-oss-20b"):
        assert f"| {name} |" in text
    rows = [line for line in text.splitlines() if line.startswith("| ") and "confkv bench" in line]
    assert len(rows) == 4 * 5 - 1
    figures = {row.split(" | ")[2] for row in rows}
    assert figures == {
        "not quoted",
        "within 1.5 to 2.1 points of full KV over four model families",
        "91.4% (window 53.8%, H2O 80.6%), model not quoted",
    }


def test_the_commands_are_ones_that_the_command_line_takes(
    report: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each gets as far as its text file or its sites, which are not there: its options and policies are right."""
    import shlex

    from tasks.cli import app

    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    for *_, cell in report.paper_rows():
        if cell.startswith("`"):
            _, command, _ = cell.split("`")
            assert app.invoke(shlex.split(command)[1:]) == 2
            error = capfd.readouterr().err.splitlines()[-1]
            missing = "no site of VisualWebArena" if " eval " in command else "--text TEXT cannot be read"
            assert error.startswith(f"confkv: {missing}"), (cell, error)


def test_check_tells_an_old_file(report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "decode.json").write_text(json.dumps(DECODE))
    out = tmp_path / "RESULTS.md"
    arguments = ["report.py", "--results", str(tmp_path), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [*arguments, "--check"])
    with pytest.raises(SystemExit, match="out of date"):
        report.main()
    monkeypatch.setattr(sys, "argv", arguments)
    report.main()
    monkeypatch.setattr(sys, "argv", [*arguments, "--check"])
    report.main()
    out.write_text(out.read_text() + "by hand\n")
    with pytest.raises(SystemExit, match="out of date"):
        report.main()


def test_a_file_that_is_no_result_is_named(report: Any, tmp_path: Path) -> None:
    (tmp_path / "ppl_bad.json").write_text(json.dumps({**PPL, "rows": [{"policy": "x"}]}))
    with pytest.raises(SystemExit, match=r"ppl_bad\.json cannot be read"):
        report.report(tmp_path)
