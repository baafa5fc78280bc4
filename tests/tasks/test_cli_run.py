"""``confkv run`` from the outside: bad input, one JSON object, Ctrl-C. Real browser, tiny random model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tasks.cli import app
from tasks.records import read_decode, read_episode, read_steps

ROOT = Path(__file__).resolve().parents[2]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of two small layers with a byte-level tokenizer and a ChatML template, as a folder."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*specials, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.add_special_tokens({"additional_special_tokens": specials})
    fast.chat_template = CHATML
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=65536,
        eos_token_id=fast.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def environment(tmp_path: Path) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {
        **os.environ,
        "PYTHONPATH": path,
        "CONFKV_CACHE": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "tasks.cli.app", *map(str, arguments)]


BAD = {
    "task": (["--task", "demo/shoop"], "demo/shoop"),
    "browsergym task": (["--task", "browsergym/miniwob.no-such"], "no-such"),
    "policy": (["--policy", "confkw"], "confkw"),
    "parameter": (["--policy", "confkv:n_hihg=3"], "n_hihg"),
    "value": (["--policy", "confkv:n_high=many"], "n_high"),
    "model": (["--model", "smollm3"], "smollm3"),
    "model folder": (["--model", "./no/such/folder"], "no/such/folder"),
    "dtype": (["--dtype", "fp12"], "fp12"),
    "device": (["--device", "abacus"], "abacus"),
    "turns": (["--max-turns", "0"], "--max-turns"),
    "temperature": (["--temperature", "-1"], "--temperature"),
    "observation": (["--observation", "smell"], "aria, aria+captions, screenshot, som"),
    "usage": (["--sede", "1"], "--sede"),
    "number": (["--seed", "one"], "--seed"),
}


@pytest.mark.usefixtures("browser")
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_code_2_and_no_files(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments, named = BAD[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("CONFKV_CACHE", str(tmp_path))
    # A model that cannot be loaded: the bad input must be found before anyone tries.
    fine = tmp_path / "model"
    fine.mkdir()
    (fine / "config.json").write_text("{}")
    model = [] if "--model" in arguments else ["--model", "./model"]
    assert app.invoke(["run", "--out", "out/run", "--json", *model, *arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("confkv: ") and named in line
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_out_that_cannot_be_a_folder(
    where: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("keep")
    assert app.invoke(["run", "--out", where, "--model", "smollm2"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "is a file; name" in line
    assert (tmp_path / "file").read_text() == "keep"


def test_missing_browser_is_told_before_the_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONFKV_CHROMIUM", str(tmp_path / "nothing"))
    assert app.invoke(["run", "--out", str(tmp_path / "run"), "--model", "no-such-model"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "CONFKV_CHROMIUM" in line and not (tmp_path / "run").exists()


def test_unexpected_errors_leave_a_traceback_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(options: object) -> None:
        raise ZeroDivisionError("first\nsecond")

    monkeypatch.setenv("CONFKV_CACHE", str(tmp_path))
    monkeypatch.setattr("tasks.episode.prepare", broken)
    assert app.invoke(["run"]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert "unexpected ZeroDivisionError: first second" in line
    (log,) = (tmp_path / "logs").iterdir()
    assert str(log) in line and "ZeroDivisionError" in log.read_text()


def test_interrupt_before_the_episode(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tasks.episode.prepare", stopped)
    assert app.invoke(["run"]) == 130
    assert capfd.readouterr().err == "confkv: interrupted\n"


def test_listings(capfd: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["tasks", "demo/", "--json"]) == 0
    assert [task["id"] for task in json.loads(capfd.readouterr().out)] == ["demo/shop"]
    assert app.invoke(["tasks", "no such thing"]) == 2
    assert "no task holds 'no such thing'" in capfd.readouterr().err
    assert app.invoke(["policies", "--json"]) == 0
    known = {policy["name"]: policy for policy in json.loads(capfd.readouterr().out)}
    assert {"full", "window", "confkv", "confkv-l"} <= set(known)
    assert known["confkv"]["params"]["n_low"] == 256 and "2605.24786" in known["confkv"]["paper"]
    assert app.invoke(["policies"]) == 0
    text = capfd.readouterr().out
    assert "tau=0.7" in text and "https://arxiv.org/abs/2605.24786" in text


def test_help_and_version(capfd: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["run", "--help"]) == 0
    text = capfd.readouterr().out
    assert "confkv run --task miniwob/click-button" in text and "--policy" in text
    assert app.invoke(["--version"]) == 0
    assert capfd.readouterr().out.startswith("confkv 0.")
    assert app.invoke(["no-such-verb"]) == 2
    assert "confkv: No such command 'no-such-verb'" in capfd.readouterr().err


@pytest.mark.usefixtures("browser")
def test_json_is_one_object_and_the_folder_is_whole(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["--task", "demo/shop", "--model", tiny, "--policy", "confkv:int8=1", "--out", out, "--json"]
    done = subprocess.run(
        command("run", *arguments, "--max-turns", "2", "--max-new-tokens", "8", "--seed", "1"),
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert printed["success"] is False and printed["turns"] == 2
    assert printed["tokens_seen"] > 100 and 0 < printed["kv"]["mean_bytes"] <= printed["kv"]["peak_bytes"]
    # two layers, one KV head of 16, K and V; "auto" is two or four bytes a number
    assert printed["kv"]["full_bytes"] / printed["tokens_seen"] in (2 * 2 * 16 * 2, 2 * 2 * 16 * 4)
    assert all(printed["seconds"][part] > 0 for part in ("prefill", "decode", "manage", "env", "total"))
    assert "turn 1:" in done.stderr and "Traceback" not in done.stderr
    episode, steps = read_episode(out), read_steps(out)
    assert json.loads(episode.model_dump_json()) == printed
    assert [line.turn for line in steps] == [1, 2]
    assert steps[0].observation and steps[-1].tokens_seen == episode.tokens_seen
    assert len(read_decode(out / "decode.npz")["confidence"]) == episode.decode_steps > 0
    assert (out / "cache.png").stat().st_size > 10_000 and (out / "screenshots" / "000.png").exists()


@pytest.mark.usefixtures("browser")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stop_signal_ends_the_browser_and_keeps_the_episode(number: signal.Signals, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(
        command("run", "--model", tiny, "--out", out, "--json", "--max-new-tokens", "4000", "--temperature", "1"),
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Started from a background job of a script, the tests inherit a SIGINT that is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        wait_for(lambda: (out / "screenshots" / "000.png").exists() or process.poll() is not None, 200)
        assert process.poll() is None, process.communicate()
        family = psutil.Process(process.pid).children(recursive=True)
        assert any("chrom" in child.name() for child in family)
        time.sleep(1.0)
        process.send_signal(number)
        printed, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    episode = read_episode(out)
    assert episode.stop_reason == "interrupted" and not episode.success
    assert json.loads(printed) == json.loads(episode.model_dump_json())
    assert episode.tokens_seen > 0 and (out / "cache.png").exists()
    assert read_steps(out)[-1].complete is False
    wait_for(lambda: not any(child.is_running() and child.status() != "zombie" for child in family), 5)


def wait_for(condition, seconds: float) -> None:  # type: ignore[no-untyped-def]
    """Poll until ``condition()`` holds; fails after ``seconds``."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
