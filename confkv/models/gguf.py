"""GGUF files: the header read before anything is loaded, and the conversion to a transformers folder."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import IO, Any

from confkv.cache_dir import cache_dir
from confkv.errors import ModelError
from confkv.models.disk import locked, require_space, whole_folder
from confkv.models.progress import Progress
from confkv.models.quiet import quiet

# Values of `general.architecture` that are decoder-only attention models and that transformers converts.
ARCHITECTURES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen2moe",
    "qwen3",
    "qwen3moe",
    "gemma2",
    "gemma3",
    "gpt2",
    "gpt-oss",
    "gpt_oss",
    "phi3",
    "falcon",
    "stablelm",
    "starcoder2",
    "nemotron",
)
# Tokens that end a turn or a text. A GGUF file names one; models may end with any of them.
END_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>")

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # value types of fixed size
_STRING, _ARRAY = 8, 9


def architecture(path: Path) -> str:
    """The file's ``general.architecture``, from its header alone.

    Raises:
        ModelError: not a GGUF file, or one cut short.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ModelError(f"{path} is not a GGUF file; pass a .gguf file, a model folder or a hub id")
            version, _tensors, entries = struct.unpack("<IQQ", _take(file, 20))
            if version not in (2, 3):
                raise ModelError(f"{path} is GGUF version {version} and 2 and 3 are read; convert it again")
            for _ in range(entries):
                key = _string(file)
                (kind,) = struct.unpack("<I", _take(file, 4))
                if key == "general.architecture" and kind == _STRING:
                    return _string(file)
                _skip(file, kind)
    except (OSError, struct.error, UnicodeDecodeError, EOFError) as error:
        raise ModelError(f"{path} cannot be read as GGUF ({error}); fetch the file again") from error
    raise ModelError(f"{path} names no architecture; it is not a language model's GGUF file")


def check_architecture(path: Path) -> str:
    """The file's architecture, checked to be one that can be served.

    Raises:
        ModelError: it is not.
    """
    name = architecture(path)
    if name not in ARCHITECTURES:
        raise ModelError(f"{path.name} holds a '{name}' model, not one of those supported: {', '.join(ARCHITECTURES)}")
    return name


def convert(path: Path, target: Path, progress: Progress) -> Path:
    """Dequantise ``path`` to a folder of bf16 safetensors with its tokenizer; the target's lock is held.

    The folder appears whole or not at all.

    Raises:
        ModelError: unsupported architecture, no space, or a file that cannot be converted.
    """
    kind = check_architecture(path)
    require_space(target.parent, _converted_bytes(path), f"converting {path.name}")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    what = f"dequantising {path.name} (once)"
    progress(what, 0, None)
    source: dict[str, Any] = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    try:
        with quiet():
            model = AutoModelForCausalLM.from_pretrained(
                **source, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
            )
            tokenizer = AutoTokenizer.from_pretrained(**source)
    except Exception as error:  # the converter raises whatever a damaged file makes it raise
        cause = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(f"{path.name} ({kind}) cannot be converted ({cause}); fetch the file again") from error
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    vocabulary = tokenizer.get_vocab()
    ends = [tokenizer.eos_token_id, *(vocabulary[token] for token in END_TOKENS if token in vocabulary)]
    model.generation_config.eos_token_id = list(dict.fromkeys(end for end in ends if end is not None))
    with quiet(), whole_folder(target) as part:
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        for file in part.iterdir():
            file.chmod(0o644)
    progress(what, 1, 1)
    return target


def converted(path: Path, progress: Progress) -> Path:
    """The converted folder of a user's own GGUF file, made on first use and kept in the cache.

    Raises:
        ModelError: see ``convert``.
    """
    stat = path.stat()
    key = hashlib.sha256(f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}".encode()).hexdigest()[:12]
    target = cache_dir() / "models" / f"{path.stem}-{key}"
    if (target / "config.json").exists():
        return target
    check_architecture(path)
    with locked(target.name, progress):
        return target if (target / "config.json").exists() else convert(path, target, progress)


def _converted_bytes(path: Path) -> int:
    """An upper bound of the bf16 folder's size: weights of four bits grow fourfold, wider ones by less."""
    return path.stat().st_size * 4


def _take(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise EOFError("it ends too early")
    return data


def _string(file: IO[bytes]) -> str:
    (length,) = struct.unpack("<Q", _take(file, 8))
    if length > 1 << 26:
        raise EOFError("a string in its header has no sensible length")
    return _take(file, length).decode()


def _skip(file: IO[bytes], kind: int) -> None:
    if kind == _STRING:
        _string(file)
    elif kind == _ARRAY:
        item, count = struct.unpack("<IQ", _take(file, 12))
        if item in _SIZES:
            file.seek(_SIZES[item] * count, 1)
        else:
            for _ in range(count):
                _skip(file, item)
    elif kind in _SIZES:
        file.seek(_SIZES[kind], 1)
    else:
        raise EOFError(f"its header holds a value of unknown type {kind}")
