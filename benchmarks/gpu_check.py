"""One prepared check for a machine with a GPU: correct first, then quick.

On a bare checkout: ``PYTHONPATH=.:kernels python benchmarks/gpu_check.py``; a rehearsal: ``--device cpu --small``.

Needs no network: the model has SmolLM2's shape and random weights, which changes neither correctness nor times.

1. Gold: an evicted session's logits in float32 against one masked full forward pass.
2. Kernels: attention and mass on the device against float64 on the CPU.
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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from confkv.engine import Engine
from confkv_kernels import attention_mass

Step = Callable[[], Any]


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
    got = engine.forward(ids[:, first:], torch.arange(first, 400, device=device).unsqueeze(0), _begun(session, 40))

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


def _begun(session: Any, steps: int) -> Any:
    session.cache.begin(steps)
    return session.cache


def kernel_error(device: str) -> float:
    """Largest error of the recorded mass on the device against float64."""
    g = torch.Generator().manual_seed(2)
    q, k = torch.randn(2, 9, 8, 64, generator=g), torch.randn(2, 3, 700, 64, generator=g)
    got = attention_mass(q.to(device), k.to(device), scale=0.125, softcap=None, sinks=None, visible=None).double().cpu()
    scores = torch.einsum("lhgqd,lhkd->lhgqk", q.double().unflatten(1, (3, 3)), k.double()) * 0.125
    expected = scores.softmax(-1).mean((2, 3))  # over the query group and the rows
    return float((got - expected).abs().max())


def sync(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def session_step(engine: Engine, count: int) -> tuple[Any, Step]:
    session = engine.session()
    session.extend(torch.randint(5, 4000, (count,), generator=torch.Generator().manual_seed(3)).tolist())
    stream = session.generate(max_new_tokens=10**9, stop_ids=[])
    return session, lambda: next(stream)


@torch.no_grad()
def dynamic_step(net: Any, count: int, device: str) -> Step:
    cache = DynamicCache(config=net.config)
    ids = torch.randint(5, 4000, (1, count), generator=torch.Generator().manual_seed(3)).to(device)
    for start in range(0, count, 512):
        out = net(input_ids=ids[:, start : start + 512], past_key_values=cache, use_cache=True, logits_to_keep=1)
    state = {"token": out.logits[:, -1:].argmax(-1)}

    @torch.no_grad()
    def step() -> None:
        logits = net(input_ids=state["token"], past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        state["token"] = logits[:, -1:].argmax(-1)

    return step


def times(device: str, counts: list[int], repeats: int, small: bool) -> list[dict[str, Any]]:
    dtype = torch.bfloat16
    net, plain = model(device, dtype, small), model(device, dtype, small)
    plain.set_attn_implementation("sdpa")
    rows = []
    for count in counts:
        steps: dict[str, Step] = {"dynamic_cache": dynamic_step(plain, count, device)}
        sessions = {}
        for policy in ("full", "confkv"):
            sessions[policy], steps[policy] = session_step(Engine(net, None, policy, policy), count)
        for step in steps.values():
            for _ in range(3):
                step()
        spent: dict[str, list[float]] = {name: [] for name in steps}
        managed = sessions["confkv"].stats.seconds["manage"]
        for _ in range(repeats):
            for name, step in steps.items():
                sync(device)
                start = time.perf_counter()
                step()
                sync(device)
                spent[name].append(time.perf_counter() - start)
        row: dict[str, Any] = {"tokens": count}
        row.update({f"{name}_ms": round(1e3 * statistics.median(values), 3) for name, values in spent.items()})
        row["full_over_confkv"] = round(row["full_ms"] / row["confkv_ms"], 2)
        row["manage_ms"] = round(1e3 * (sessions["confkv"].stats.seconds["manage"] - managed) / repeats, 3)
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
