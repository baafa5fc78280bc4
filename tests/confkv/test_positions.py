"""What a session reports as kept is sorted and free of duplicates, for every policy, whatever was done with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from confkv.engine import Engine
from confkv.errors import ConfkvError
from confkv.policies import list_policies
from confkv.session import Session

_SMALL = "n_high=12,n_low=20,protect=4,sinks=2,tau=0.5"
_INT8 = "n_high=50,n_low=60,protect=4,sinks=2,tau=0.5,int8=1,w=8"
SPECS = {
    "full": ["full", "full:int8=1,w=8"],
    "window": ["window:16,sinks=3", "window:60,int8=1,w=8"],
    "confkv": [f"confkv:{_SMALL}", f"confkv:{_SMALL},scope=head", f"confkv:{_INT8}", f"confkv:{_INT8},scope=head"],
    "confkv-l": [f"confkv-l:{_SMALL},floor=8", f"confkv-l:{_INT8},floor=40,scope=head"],
    "confkv-mean": [f"confkv-mean:{_SMALL}", f"confkv-mean:{_INT8}", f"confkv-mean:{_SMALL},scope=layer"],
    "confkv-slow": ["confkv-slow:n_high=12,n_low=16,sinks=2,tau=0.5", "confkv-slow:n_high=50,n_low=60,int8=1,w=8"],
    "confkv-recall": [f"confkv-recall:{_SMALL},page=4", f"confkv-recall:{_INT8},page=3,scope=head"],
    "confkv-look": [
        f"confkv-look:{_SMALL},page=3,scope=head,archive_mb=0.02",
        f"confkv-look:{_INT8},page=4,gate=always",
    ],
}
SPECS |= {
    "streaming": ["streaming:16", "streaming:60,int8=1,w=8"],
    "streaming-rel": ["streaming-rel:16"],
    "h2o": ["h2o:16", "h2o:60,int8=1,w=8"],
    "scissorhands": ["scissorhands:18", "scissorhands:60,int8=1,w=8"],
    "snapkv": ["snapkv:16,w=5,pool=3", "snapkv:60,w=5,pool=3,int8=1,fp=8"],
    "pyramidkv": ["pyramidkv:16,w=5,pool=3", "pyramidkv:60,w=5,pool=3,int8=1,fp=8"],
    "zigzag": ["zigzag:14,w=5,pool=3", "zigzag:40,w=5,pool=3,int8=1,fp=8"],
    "adakv": ["adakv:16,w=5,pool=3", "adakv:60,w=5,pool=3,int8=1,fp=8", "adakv:20,w=3,pool=5,floor=0,sinks=2"],
    "tova": ["tova:16", "tova:60,int8=1,w=8"],
    "knorm": ["knorm:16,protect=4", "knorm:60,protect=4,int8=1,w=8"],
    "random": ["random:16,protect=4", "random:60,protect=4,int8=1,w=8"],
    "recency": ["recency:16,protect=4"],
    "mass": ["mass:16,protect=4,scope=head"],
}
SPECS["confkv"] += [f"confkv:{_SMALL},adaptive=0.5,shuffle=2", f"confkv:{_INT8},block=8"]
SPECS["confkv"] += [f"confkv:{_SMALL},scope=head,heads=ada", f"confkv:{_INT8},scope=head,heads=ada,head_floor=0"]
SPECS["confkv-mean"].append(f"confkv-mean:{_SMALL},heads=ada")
SPECS["confkv-l"].append(f"confkv-l:{_SMALL},floor=8,scope=head,heads=ada")
OPERATION = st.one_of(
    st.tuples(st.sampled_from(["observation", "observation", "reply", "text", "goal"]), st.integers(1, 45)),
    st.tuples(st.just("generate"), st.integers(1, 45)),
    st.tuples(st.sampled_from(["fork", "mark", "rewind", "file"]), st.just(0)),
)


def _check(session: Session, policy: str) -> None:
    assert len(session.tokens) == session.seen + (session.pending is not None)
    for lane, kept in enumerate(session.stats.kept_per_layer):
        now = session.original_positions(lane)
        if not session.seen:
            assert now.numel() == 0
            continue
        rows = [row[row >= 0] for row in now]
        assert now.dtype == torch.int64 and now.shape == (2, max(map(len, rows)))
        assert round(sum(map(len, rows)) / 2) == kept
        if session.engine.policy.shares is None:
            assert now.shape == (2, kept)
        assert all(bool((row.diff() > 0).all()) for row in rows), "out of order, or held twice"
        assert all(int((row < 0).sum()) == len(row) - len(own) for row, own in zip(now, rows, strict=True))
        assert all(torch.equal(row[len(row) - len(own) :], own) for row, own in zip(now, rows, strict=True))
        assert now[:, -1].tolist() == [session.seen - 1] * 2, "the newest position is always kept"
        if policy.startswith("full"):
            assert torch.equal(now, torch.arange(session.seen).expand(2, -1))
        if session.engine.policy.scope == "layer":
            assert torch.equal(now[0], now[1])


def test_every_policy_is_checked() -> None:
    assert set(SPECS) == {info.name for info in list_policies()}


@pytest.mark.parametrize("policy", [spec for specs in SPECS.values() for spec in specs])
@given(operations=st.lists(OPERATION, min_size=3, max_size=9), seed=st.integers(0, 1000))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_kept_positions_are_sorted_and_unique(
    policy: str, operations: list[tuple[str, int]], seed: int, tiny: Any, ids: Any, tmp_path: Path
) -> None:
    engine = Engine(tiny("llama", max_position_embeddings=110), None, policy, chunk=16)
    session = engine.session()
    session.extend(ids(20, seed), "text")
    mark = session.checkpoint()
    for kind, count in operations:
        try:
            if kind == "generate":
                for _ in session.generate(count, temperature=1.0, seed=seed, stop_ids=[]):
                    pass
            elif kind == "fork":
                session = session.fork()
            elif kind == "mark":
                mark = session.checkpoint()
            elif kind == "rewind":
                session.rewind(mark)
            elif kind == "file":
                session.save(tmp_path / "session")
                session = Session.load(tmp_path / "session", engine)
            else:
                session.extend(ids(count, seed), kind)
        except ConfkvError as error:
            assert "do not fit" in str(error)  # too much was pinned, or nothing is ever dropped
        _check(session, policy)
