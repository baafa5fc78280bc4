"""What stands beside every figure: the command, the machine, the versions."""

from __future__ import annotations

import platform
import sys
from typing import Any

import torch
import transformers


def circumstances(benchmark: str, model: str) -> dict[str, Any]:
    """The head of a script's JSON object; the command is the one that runs now."""
    return {
        "benchmark": benchmark,
        "command": " ".join(["python", *sys.argv]),
        "model": model,
        "machine": {"processor": platform.processor() or platform.machine(), "threads": torch.get_num_threads()},
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
