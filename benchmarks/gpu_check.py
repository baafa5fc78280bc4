"""One prepared check for a machine with a GPU: correct first, then quick.

On a bare checkout: ``PYTHONPATH=.:kernels python benchmarks/gpu_check.py``; a rehearsal: ``--device cpu --small``.

Needs no network: the model has SmolLM2's shape and random weights, which changes neither correctness nor times.

1. Gold: an evicted session's logits in float32 against one masked full forward pass.
2. Kernels: attention mass on the device against float64 on the CPU.
3. Times: decode steps of ``full``, ``confkv`` and transformers' DynamicCache at several lengths, interleaved.

Prints a table; writes ``gpu_check.json`` under ``$OUT`` (or ``--out``). Exit code 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

import decode
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

from confkv.engine import Engine
from confkv_kernels import attention_mass


def model(device: str, dtype: torch.dtype, small: bool) -> Any:
    """SmolLM2-135M's shape with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4096 if small else 49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=4 if small else 30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=65536,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).to(device=device, dtype=dtype).eval()


@torch.no_grad()
def gold(device: str, small: bool) -> float:
    """Largest |difference| of an evicted session's last logits from a full pass that masks what was dropped then.

    The session evicts once, after the first piece, so one mask per layer says all: the second piece sees what was kept.
    """
    net = model(device, torch.float32, small)
    plain = model(device, torch.float32, small)
    plain.set_attn_implementation("eager")
    ids = torch.randint(5, 4000, (1, 400), generator=torch.Generator().manual_seed(1)).to(device)
    first = 360
    engine = Engine(net, None, "confkv:n_high=64,n_low=96", "gold", chunk=512)
    session = engine.session()
    session.extend(ids[0, :first].tolist())
    kept = [session.original_positions(lane)[0].tolist() for lane in range(len(engine.windows))]
    session.cache.begin(400 - first)
    got = engine.forward(ids[:, first:], torch.arange(first, 400, device=device).unsqueeze(0), session.cache)

    causal = torch.full((400, 400), float("-inf"), device=device).triu(1)
    hooks = []
    for layer, keep in zip(plain.model.layers, kept, strict=True):
        mask = causal.clone()
        dropped = sorted(set(range(first)) - set(keep))
        mask[first:, dropped] = float("-inf")

        def use(module: Any, args: Any, kwargs: dict[str, Any], mask: torch.Tensor = mask) -> Any:
            return args, {**kwargs, "attention_mask": mask[None, None]}

        hooks.append(layer.self_attn.register_forward_pre_hook(use, with_kwargs=True))
    expected = plain(input_ids=ids, use_cache=False).logits[0, -1]
    for hook in hooks:
        hook.remove()
    return float((got - expected).abs().max())


def kernel_error(device: str) -> float:
    """Largest error of the recorded mass on the device against float64."""
    g = torch.Generator().manual_seed(2)
    q, k = torch.randn(2, 9, 8, 64, generator=g), torch.randn(2, 3, 700, 64, generator=g)
    got = attention_mass(q.to(device), k.to(device), scale=0.125, softcap=None, sinks=None, visible=None).double().cpu()
    scores = torch.einsum("lhgqd,lhkd->lhgqk", q.double().unflatten(1, (3, 3)), k.double()) * 0.125
    expected = scores.softmax(-1).mean((2, 3))  # over the query group and the rows
    return float((got - expected).abs().max())


def times(device: str, counts: list[int], repeats: int, small: bool) -> list[dict[str, Any]]:
    """A row for each number of tokens held: median step times, and what management and the cache take."""
    net, plain = model(device, torch.bfloat16, small), model(device, torch.bfloat16, small)
    plain.set_attn_implementation("sdpa")
    vocabulary = net.config.vocab_size
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    rows = []
    for count in counts:
        sessions = {
            policy: decode.filled_session(Engine(net, None, policy, policy), count, vocabulary)
            for policy in ("full", "confkv")
        }
        steps = {name: decode.session_step(session) for name, session in sessions.items()}
        steps["dynamic_cache"] = decode.dynamic_step(plain, count, vocabulary)
        managed = sessions["confkv"].stats.seconds["manage"]
        spent = decode.interleave(steps, repeats, wait)
        row: dict[str, Any] = {"tokens": count}
        row.update({f"{name}_ms": round(1e3 * statistics.median(values), 3) for name, values in spent.items()})
        row["full_over_confkv"] = round(row["full_ms"] / row["confkv_ms"], 2)
        # The three steps before the measured ones are managed too.
        row["manage_ms"] = round(1e3 * (sessions["confkv"].stats.seconds["manage"] - managed) / (repeats + 3), 3)
        row["full_mb"] = round(sessions["full"].stats.bytes / 1e6, 1)
        row["confkv_mb"] = round(sessions["confkv"].stats.bytes / 1e6, 1)
        print(row, flush=True)
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="four layers and a small vocabulary: a rehearsal")
    parser.add_argument("--tokens", type=int, nargs="*", default=[512, 2048, 8192, 30000])
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    arguments = parser.parse_args()
    device = arguments.device
    checks = {"gold_max_logit_error": gold(device, arguments.small), "mass_max_error": kernel_error(device)}
    limits = {"gold_max_logit_error": 1e-3 if device.startswith("cuda") else 1e-4, "mass_max_error": 1e-5}
    for name, value in checks.items():
        print(f"{name:24s} {value:.2e}  {'ok' if value <= limits[name] else 'FAILS (limit ' + str(limits[name]) + ')'}")
    result = {
        "benchmark": "gpu_check",
        "command": " ".join(["python", *sys.argv]),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else platform.machine(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "checks": checks,
        "rows": times(device, arguments.tokens, arguments.repeats, arguments.small),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "gpu_check.json").write_text(json.dumps(result, indent=1))
    return 0 if all(value <= limits[name] for name, value in checks.items()) else 1


if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = False
    sys.exit(main())
