"""The ablation: one part of a method taken away at a time, and what is taken in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.bench import ablate, ppl
from tasks.bench.text import cut, read_texts


def test_what_a_method_has_not_is_left_out_by_name() -> None:
    here, absent = ablate.parts("confkv:tau=0.5")
    names = [c.label for c in here]
    assert {"recency only", "mass only", "no confidence"} <= set(names) and "recall at every step" not in names
    assert "recall at every step (confkv has no gate)" in absent
    assert all("tau=0.5" in c.policy.spec for c in here if c.label in ablate.PARTS)
    for name in ("confkv-recall", "confkv-look"):
        here, absent = ablate.parts(f"{name}:tau=0.5")
        assert "recall at every step" in [c.label for c in here] and absent == []
        (every,) = (c.policy for c in here if c.label == "recall at every step")
        assert every.spec == f"{name}:tau=0.5,gate=always"
    here, absent = ablate.parts("window:60")
    assert {c.label for c in here} <= set(ablate.CONTROLS) and "mass only (window has no alpha)" in absent
    swept, absent = ablate.sweeps("confkv:protect=16", ["protect", "w", "tau"])
    assert [c.label for c in swept] == [
        "protect=8", "protect=32", "protect=64", "w=32 int8", "w=64 int8", "w=128 int8", "w=256 int8",
        "tau=0.3", "tau=0.5", "tau=0.9",
    ]  # fmt: skip
    assert absent == [] and ablate.sweeps("window:60", ["tau"])[1] == ["tau (window:60 has no such parameter)"]


def test_the_ablation_takes_one_part_away_at_a_time(bench_model: Path, bench_text: Path, tmp_path: Path) -> None:
    out = tmp_path / "ablate"
    options = ppl.Options(str(bench_model), [bench_text], out, match="window:60", tokens=150, prefix=24, dtype="fp32")
    summary = ablate.run(options, "confkv:protect=4", "parts alpha")
    rows = {row.policy: row for row in summary.rows}
    assert {"full", "window", "full method", "recency only", "mass only", "no confidence"} <= set(rows)
    assert "alpha=0" in rows["recency only"].spec and "alpha=1" in rows["mass only"].spec
    assert rows["alpha=0.25"].matched and "protect=4" in rows["alpha=0.25"].spec
    sizes = dict(piece.split("=") for piece in rows["no confidence"].spec.partition(":")[2].split(","))
    assert sizes["n_high"] == sizes["n_low"]
    assert all(row.matched for name, row in rows.items() if name != "full")


def test_recall_on_random_steps_is_as_frequent_as_the_methods_own(
    loaded: Any, bench_model: Path, bench_text: Path, tmp_path: Path
) -> None:
    """Its rate is the share of steps that were uncertain, each before the look that may have made it certain."""
    method = "confkv-look:n_high=40,n_low=40,protect=4,tau=0.5"
    options = ppl.Options(
        str(bench_model), [bench_text], tmp_path / "ablate", policies="full", match="none", tokens=120, prefix=60,
        dtype="fp32", together=1,
    )  # fmt: skip
    summary = ablate.run(options, method, "parts")
    rows = {row.policy: row for row in summary.rows}
    assert not any("gate" in note for note in summary.notes) and "looks on random steps" not in rows
    assert "gate=always" in rows["recall at every step"].spec and rows["recall at every step"].looks == 0
    (segment,) = cut(read_texts([bench_text]), loaded.tokenizer, 180, 1)
    session = loaded.engine(rows["full method"].spec).session()
    session.extend(segment.ids[:60])
    session.score(segment.ids[60:])
    uncertain = [c < 0.5 for c in session._manager.past.values]
    assert len(uncertain) == 120 and rows["full method"].looks == session.stats.looks > 5
    assert rows["full method"].confident_share == uncertain.count(False) / 120
    assert f"rate={round(sum(uncertain) / 120, 4)}" in rows["recall on random steps"].spec.split(",")
    assert "gate=random" in rows["recall on random steps"].spec and rows["recall on random steps"].recalls > 5
