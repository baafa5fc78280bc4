"""Loading a resolved model: weights, tokenizer, the dtype this machine is good at, and a fingerprint."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confkv.errors import ModelError
from confkv.models.progress import Progress
from confkv.models.quiet import quiet
from confkv.models.source import resolve

if TYPE_CHECKING:  # imported where it is used: naming a model must not cost torch's start-up
    import torch

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}  # our names and torch's; both are taken
SAMPLE = 1 << 20  # bytes read at each end of a weights file for the fingerprint


@dataclass(frozen=True)
class LoadedModel:
    """A model in eval mode, its tokenizer, the name it was asked for by, and a fingerprint of its files."""

    model: Any
    tokenizer: Any
    name: str
    fingerprint: str


def load(
    name: str,
    *,
    dtype: str | torch.dtype = "auto",
    device: str = "cpu",
    progress: bool | Progress | None = None,
) -> LoadedModel:
    """Resolve ``name`` and load it.

    ``dtype`` "auto" is bf16 on CUDA and on CPUs that compute in it, else fp32; ``device`` "auto" is CUDA
    where there is one.

    Raises:
        ModelError: the model cannot be found, fetched or loaded, or the device or dtype is not to be had.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = _device(device)
    kind = pick_dtype(dtype, place)
    source = resolve(name, progress=progress)
    with quiet():
        try:
            tokenizer = AutoTokenizer.from_pretrained(source.path)
            model = AutoModelForCausalLM.from_pretrained(source.path, dtype=kind)
        except MemoryError as error:
            raise ModelError(f"{name} does not fit into memory; use a smaller model") from error
        except Exception as error:  # transformers raises many kinds for damaged or foreign folders
            cause = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ModelError(
                f"{name} cannot be loaded ({cause}); delete {source.path} to fetch it anew, or pass another"
            ) from error
    if not model.can_generate():
        raise ModelError(
            f"{name} is a {model.config.model_type} model, which writes no text; pass a causal language model"
        )
    try:
        model = model.to(place).eval()
    except torch.OutOfMemoryError as error:
        raise ModelError(f"{name} does not fit on {place}; use a smaller model or --device cpu") from error
    return LoadedModel(model, tokenizer, name, fingerprint(source.path))


def pick_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype to load in. Raises ModelError on an unknown name."""
    import torch

    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype == "auto":
        fast = torch.cuda.is_bf16_supported() if device.type == "cuda" else cpu_has_bf16()
        return torch.bfloat16 if fast else torch.float32
    full = DTYPES.get(dtype, dtype)
    if full not in DTYPES.values():
        raise ModelError(f"unknown dtype '{dtype}'; choose auto, {', '.join(DTYPES)}")
    chosen: torch.dtype = getattr(torch, full)
    return chosen


def cpu_has_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the CPU computes in bf16 itself (AVX-512 BF16 or AMX); False where the system does not say."""
    if not cpuinfo.exists():
        return False
    for line in cpuinfo.read_text().splitlines():
        if line.startswith("flags"):
            return not {"avx512_bf16", "amx_bf16"}.isdisjoint(line.split())
    return False


def fingerprint(folder: Path) -> str:
    """16 hex digits that tell models apart: over config, and size and both ends of each weights file."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}".encode())
        with path.open("rb") as file:
            digest.update(file.read(SAMPLE))
            file.seek(max(0, size - SAMPLE))
            digest.update(file.read(SAMPLE))
    return digest.hexdigest()[:16]


def _device(device: str) -> torch.device:
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"unknown device '{device}'; use cpu, cuda or auto") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device {device} was asked for and torch sees no GPU; use --device cpu")
    return place
