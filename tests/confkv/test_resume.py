"""Save and load, fork, checkpoint and rewind continue with the same tokens and the same logits, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from confkv import positions
from confkv.engine import Engine
from confkv.errors import ConfkvError, SessionFileError
from confkv.session import Session

SMALL = "confkv:n_high=12,n_low=20,protect=4,sinks=2,tau=0.5"
RECALL = "confkv-recall:n_high=12,n_low=20,protect=4,sinks=2,tau=0.6,page=3"
GUARD = SMALL + ",guard=0.4"
CASES = [
    ("llama", SMALL),
    ("llama", "confkv:n_high=50,n_low=60,protect=4,sinks=2,tau=0.5,int8=1,w=8,scope=head"),
    ("llama", "full"),
    ("gemma3", SMALL + ",scope=head"),
    ("gpt-oss", "confkv-l:n_high=12,n_low=20,protect=4,sinks=2,tau=0.5,floor=8"),
    ("gemma3", "confkv-l:n_high=50,n_low=60,protect=4,sinks=2,tau=0.5,floor=40,int8=1,w=8,scope=head"),
    ("llama", "pyramidkv:30,w=5,pool=3,int8=1,fp=8"),
    ("gpt2", "window:16"),
    # What these keep beside the store: queries, layer shares, rows of attention, confidences.
    ("gpt-oss", "snapkv:16,w=5,pool=3"),
    ("llama", "zigzag:14,w=5,pool=3"),
    ("gpt-oss", "adakv:16,w=5,pool=3"),
    ("gemma3", "adakv:50,w=5,pool=3,int8=1,fp=8"),
    ("llama", SMALL + ",scope=head,heads=ada"),
    ("qwen3", SMALL.replace("confkv", "confkv-mean") + ",heads=ada,adaptive=0.5"),
    ("llama", "scissorhands:50,int8=1,w=8"),
    ("qwen3", "h2o:16"),
    ("llama", "random:16,protect=4"),
    ("llama", "streaming-rel:16"),
    ("llama", SMALL + ",adaptive=0.5,shuffle=3"),
    ("llama", "confkv:n_high=16,n_low=24,protect=4,sinks=2,tau=0.5,block=8"),
    ("llama", GUARD),
    ("llama", "confkv-slow:n_high=16,n_low=20,sinks=2,tau=0.5"),
    ("gemma3", "confkv-mean:n_high=40,n_low=50,protect=4,sinks=2,tau=0.5,values=1,guard=0.3,int8=1,w=8"),
    ("qwen3", SMALL.replace("confkv", "confkv-mean") + ",heads=ada,values=1,guard=0.3"),
    ("gpt-oss", "confkv-l:n_high=12,n_low=20,protect=4,sinks=2,tau=0.5,curve=pyramidkv,guard=0.2"),
    ("llama", RECALL.replace("recall", "look") + ",guard=0.4"),
    ("llama", RECALL),
    ("gemma3", RECALL.replace("recall", "look") + ",scope=head"),
    (
        "gpt-oss",
        "confkv-look:n_high=30,n_low=40,protect=4,sinks=2,tau=0.6,int8=1,w=8,page=4,gate=random,rate=0.6",
    ),
    ("gpt2", RECALL.replace("recall", "look") + ",archive_mb=0.012,index=device,archive=fp"),
]


def _start(engine: Engine, ids: Any) -> Session:
    session = engine.session()
    session.extend(ids(8, 1), "system")
    session.extend(ids(20, 2), "observation")
    for _ in session.generate(12, temperature=1.0, seed=5, stop_ids=[]):
        pass
    session.extend(ids(9, 3), "observation")
    # Stop in the middle of a reply, with a sampled token that was not fed yet.
    for i, _ in enumerate(session.generate(30, temperature=1.0, stop_ids=[])):
        if i == 4:
            break
    return session


def _finish(session: Session, log: list[Any], ids: Any) -> tuple[list[int], list[Any], dict[str, Any]]:
    start = len(log)
    out = [t.id for t in session.generate(10, temperature=1.0, stop_ids=[])]
    session.extend(ids(12, 4), "observation")
    out += [t.id for t in session.generate(9, temperature=0.0, stop_ids=[])]
    stats = session.stats.as_dict()
    alike = ("tokens_seen", "kept_per_layer", "evictions", "rebases", "decode_steps")
    same = {key: stats[key] for key in (*alike, "recalls", "recalled", "looks", "fetched")}
    return out + session.tokens, log[start:], same


def _equal(a: tuple[Any, ...], b: tuple[Any, ...]) -> None:
    assert a[0] == b[0]
    assert len(a[1]) == len(b[1]) > 15
    assert all(torch.equal(x, y) for x, y in zip(a[1], b[1], strict=True))
    assert a[2] == b[2]


def _engine(tiny: Any, family: str, policy: str) -> Engine:
    limit = {} if policy in (SMALL, RECALL, GUARD) and family == "llama" else {"max_position_embeddings": 200}
    return Engine(tiny(family, **limit), None, policy, name=f"tiny-{family}", chunk=8)


@pytest.mark.parametrize(("family", "policy"), CASES)
def test_resumed_equals_uninterrupted(
    family: str, policy: str, tiny: Any, ids: Any, recorder: Any, tmp_path: Path
) -> None:
    engine = _engine(tiny, family, policy)
    log = recorder(engine).logits
    session = _start(engine, ids)
    mark = session.checkpoint()
    session.save(tmp_path / "sub" / "a.safetensors")
    assert [p.name for p in (tmp_path / "sub").iterdir()] == ["a.safetensors"], "nothing half-written stays"
    twin = session.fork()
    true = _finish(session, log, ids)
    assert (session.stats.recalls > 0) == (engine.policy.recall is not None)

    _equal(_finish(twin, log, ids), true)
    session.rewind(mark)
    _equal(_finish(session, log, ids), true)
    session.rewind(mark)
    _equal(_finish(session, log, ids), true)

    other = _engine(tiny, family, policy)  # as another process would: its own model object
    other_log = recorder(other).logits
    loaded = Session.load(tmp_path / "sub" / "a.safetensors", other)
    assert loaded.pending is not None and loaded.seen == len(loaded.tokens) - 1
    _equal(_finish(loaded, other_log, ids), true)


def test_uninterrupted_equals_untouched(tiny: Any, ids: Any, recorder: Any, tmp_path: Path) -> None:
    """Taking marks, forks and files leaves the session itself as it was."""
    runs = []
    for touch in (False, True):
        engine = _engine(tiny, "llama", SMALL)
        log = recorder(engine).logits
        session = _start(engine, ids)
        if touch:
            session.checkpoint()
            session.save(tmp_path / "x")
            twin = session.fork()
            before = len(log)
            for _ in twin.generate(5, stop_ids=[]):
                pass
            del log[before:]
        runs.append(_finish(session, log, ids))
    _equal(runs[0], runs[1])


def test_rewind_restores_bytes_and_an_empty_session(tiny: Any, ids: Any) -> None:
    engine = _engine(tiny, "llama", SMALL)
    session = engine.session()
    empty = session.checkpoint()
    session.extend(ids(30), "observation")
    mark, kept = session.checkpoint(), session.stats.kept_per_layer
    tokens = list(session.tokens)
    for _ in session.generate(10, stop_ids=[]):
        pass
    session.rewind(mark)
    assert session.stats.kept_per_layer == kept and session.tokens == tokens and session.seen == 30
    assert session.pending is None
    session.rewind(empty)
    assert session.tokens == [] and session.seen == 0
    with pytest.raises(ConfkvError, match="extend"):
        next(iter(session.generate(1)))
    session.extend(ids(30), "observation")
    assert session.stats.kept_per_layer == kept


def test_a_greedy_reply_may_be_left_at_any_token(tiny: Any, ids: Any) -> None:
    engine = _engine(tiny, "qwen2", SMALL)
    whole, parts = engine.session(), engine.session()
    for session in (whole, parts):
        session.extend(ids(30), "observation")
    expected = [t.id for t in whole.generate(20, stop_ids=[])]
    got: list[int] = []
    while len(got) < 20:
        for token in parts.generate(7, stop_ids=[]):
            got.append(token.id)
            if len(got) % 3 == 0 or len(got) == 20:
                break
    assert got == expected and parts.tokens == whole.tokens


def test_a_retracted_token_leaves_no_trace(tiny: Any, ids: Any) -> None:
    engine = _engine(tiny, "qwen2", "full")
    session, other = engine.session(), engine.session()
    for each in (session, other):
        each.extend(ids(10))
    reply = [token.id for token in session.generate(4, stop_ids=[])]
    assert session.retract() == reply[-1] and session.tokens == ids(10) + reply[:-1]
    assert session.retract() is None and session.pending is None
    session.extend(ids(5, 2), segment="reply")
    other.extend(reply[:-1] + ids(5, 2))
    first, second = ([token.id for token in each.generate(6, stop_ids=[])] for each in (session, other))
    assert first == second and session.tokens == other.tokens
    assert torch.allclose(session._logits, other._logits, atol=1e-5)


def test_generate_samples_only_what_is_allowed(tiny: Any, ids: Any) -> None:
    session = _engine(tiny, "qwen2", "full").session()
    session.extend(ids(10))
    free = [token.id for token in session.fork().generate(8, stop_ids=[])]
    even = [token.id for token in session.generate(8, stop_ids=[], allow=lambda token: token % 2 == 0)]
    assert any(token % 2 for token in free) and all(token % 2 == 0 for token in even)


def test_stop_token_ends_the_reply_and_is_fed_once(tiny: Any, ids: Any) -> None:
    engine = _engine(tiny, "qwen2", "full")
    session = engine.session()
    session.extend(ids(10))
    probe = [t.id for t in session.fork().generate(8, stop_ids=[])]
    stop = probe[3]
    reply = [t.id for t in session.generate(8, stop_ids=[stop])]
    assert reply == probe[: probe.index(stop) + 1]
    assert session.pending == stop and session.seen == 10 + len(reply) - 1
    session.extend(ids(5, 2))
    assert session.tokens == ids(10) + reply + ids(5, 2)
    assert session.seen == len(session.tokens) and session.pending is None


# -- files that must not be loaded ------------------------------------------------------------------------------


@pytest.fixture
def saved(tiny: Any, ids: Any, tmp_path: Path) -> tuple[Engine, Path]:
    engine = _engine(tiny, "llama", SMALL)
    path = tmp_path / "session.safetensors"
    _start(engine, ids).save(path)
    return engine, path


def _refused(path: Path, engine: Engine) -> str:
    with pytest.raises(SessionFileError) as caught:
        Session.load(path, engine)
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    return message


def test_file_of_another_model(saved: tuple[Engine, Path], tiny: Any) -> None:
    _, path = saved
    other = _engine(tiny, "qwen3", SMALL)
    message = _refused(path, other)
    assert "tiny-llama" in message and "tiny-qwen3" in message


def test_file_of_the_same_shape_with_other_weights(saved: tuple[Engine, Path], tiny: Any) -> None:
    model = tiny("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[3, 0] += 1.0
    assert "load that model" in _refused(saved[1], Engine(model, None, SMALL, name="tiny-llama", chunk=8))


def test_file_of_another_policy(saved: tuple[Engine, Path], tiny: Any) -> None:
    message = _refused(saved[1], Engine(tiny("llama"), None, "window:16", name="tiny-llama", chunk=8))
    assert saved[0].policy.spec in message and "window:16" in message


def test_damaged_files(saved: tuple[Engine, Path], tmp_path: Path) -> None:
    engine, path = saved
    data = path.read_bytes()
    for name, content in {
        "empty": b"",
        "cut": data[: len(data) // 2],
        "header-only": data[:100],
        "noise": b"\x00\xff" * 500,
        "text": b"not a session",
        "header-garbled": data[:8] + b"}" * 64 + data[72:],
    }.items():
        damaged = tmp_path / name
        damaged.write_bytes(content)
        assert "damaged" in _refused(damaged, engine) or "not a" in _refused(damaged, engine)


def test_foreign_safetensors_and_missing_files(saved: tuple[Engine, Path], tmp_path: Path) -> None:
    from safetensors.torch import save_file

    engine, _ = saved
    foreign = tmp_path / "weights.safetensors"
    save_file({"w": torch.zeros(2)}, foreign)
    assert "not a confkv session" in _refused(foreign, engine)
    assert "no session file" in _refused(tmp_path / "nothing", engine)
    assert "no session file" in _refused(tmp_path, engine)


def test_file_with_missing_parts(saved: tuple[Engine, Path], tmp_path: Path) -> None:
    """A well-formed file of this format that lacks what a session needs."""
    import json

    from safetensors import safe_open
    from safetensors.torch import save_file

    engine, path = saved
    with safe_open(path, framework="pt") as file:
        header = dict(file.metadata())
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    for lost in ("rng", "store.v", "store.n_fp"):
        broken = tmp_path / f"without-{lost}"
        save_file({key: value for key, value in tensors.items() if key != lost}, broken, metadata=header)
        assert "damaged" in _refused(broken, engine)
    state = json.loads(header["state"])
    del state["counts"]
    broken = tmp_path / "without-counts"
    save_file(tensors, broken, metadata={**header, "state": json.dumps(state)})
    assert "damaged" in _refused(broken, engine)


def test_a_file_that_cannot_be_written(saved: tuple[Engine, Path], tmp_path: Path, ids: Any) -> None:
    engine, _ = saved
    session = engine.session()
    session.extend(ids(5))
    (tmp_path / "plain").write_text("a file, not a folder")
    with pytest.raises(SessionFileError) as caught:
        session.save(tmp_path / "plain" / "x.safetensors")
    assert "\n" not in str(caught.value)


# -- misuse -----------------------------------------------------------------------------------------------------


def test_misuse_is_one_line(tiny: Any, ids: Any) -> None:
    engine = Engine(tiny("llama"), None, "full", chunk=32)
    session = engine.session()
    with pytest.raises(ConfkvError, match="segment"):
        session.extend([3, 4], "page")
    with pytest.raises(ConfkvError, match="no tokens"):
        session.extend([])
    session.extend(ids(70))
    with pytest.raises(ConfkvError, match="evicts") as caught:
        session.extend(ids(30))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("family", "policy", "fits", "too_many"),
    [
        ("llama", "full", 9, 10),
        ("gemma3", "full", 9, 10),
        # 8 pinned and 20 kept leave 52 of 80 positions; the token that waits competes.
        ("llama", SMALL, 52, 53),
        ("gemma3", SMALL, 52, 53),
    ],
)
def test_what_does_not_fit_changes_nothing(
    family: str, policy: str, fits: int, too_many: int, tiny: Any, ids: Any, recorder: Any
) -> None:
    engine = Engine(tiny(family), None, policy, chunk=8)
    log = recorder(engine).logits
    session = engine.session()
    session.extend(ids(8, 1), "system")
    session.extend(ids(62 if policy == "full" else 30, 2), "observation")
    for _ in session.generate(1, stop_ids=[]):
        pass
    before, stats, forwards = session.checkpoint(), session.stats.as_dict(), len(log)
    assert session.pending is not None
    with pytest.raises(ConfkvError, match="do not fit") as caught:
        session.extend(ids(too_many, 3), "observation")
    assert "\n" not in str(caught.value)
    after = session.checkpoint()
    assert len(log) == forwards and session.stats.as_dict() == stats
    assert after.state == before.state
    assert after.tensors.keys() == before.tensors.keys()
    assert all(torch.equal(after.tensors[key], tensor) for key, tensor in before.tensors.items())
    seen = session.seen
    session.extend(ids(fits, 3), "observation")
    assert session.seen == seen + 1 + fits and session.pending is None
    assert session.tokens[-fits:] == ids(fits, 3)


def test_generating_into_the_limit_loses_no_token(tiny: Any, ids: Any) -> None:
    session = Engine(tiny("llama"), None, "full", chunk=32).session()
    session.extend(ids(75))
    with pytest.raises(ConfkvError, match="do not fit"):
        for _ in session.generate(20, stop_ids=[]):
            pass
    assert session.seen == 80 and len(session.tokens) == 81
    assert session.pending == session.tokens[-1], "the last sampled token still waits to be fed"


@pytest.mark.parametrize("policy", [SMALL, SMALL.replace("confkv", "confkv-l") + ",floor=8,scope=head", "window:16"])
@pytest.mark.parametrize("segment", ["observation", "goal", "text"])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_what_is_refused_is_what_would_have_failed_on_the_way(
    family: str, policy: str, segment: str, tiny: Any, ids: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tiny(family), None, policy, chunk=8)
    session = engine.session()
    session.extend(ids(10, 1), "goal")
    session.extend(ids(25, 2), "observation")

    def fits(count: int) -> bool:
        try:
            session.fork().extend(ids(count, 3), segment)
        except ConfkvError:
            return False
        return True

    counts = range(18, 60, 3)
    foreseen = [fits(count) for count in counts]
    monkeypatch.setattr(positions, "check_room", lambda *_, **__: None)
    assert foreseen == [fits(count) for count in counts]
    assert all(foreseen) == (segment == "text"), "pinned and protected tokens reach the limit, others never do"


def test_two_sessions_of_one_engine_do_not_touch(tiny: Any, ids: Any) -> None:
    engine = _engine(tiny, "gpt-oss", SMALL)
    alone = engine.session()
    alone.extend(ids(40), "observation")
    expected = [t.id for t in alone.generate(15, stop_ids=[])]
    first, second = engine.session(), engine.session()
    first.extend(ids(40), "observation")
    second.extend(ids(33, 9), "observation")
    mixed = [a.id for a, _ in zip(first.generate(15, stop_ids=[]), second.generate(15, stop_ids=[]), strict=True)]
    assert mixed == expected
