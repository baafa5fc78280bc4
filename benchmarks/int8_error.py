"""INT8 history on real activations: relative L2 error of keys and values per layer, as the store quantises them."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import Any

import corpus
import torch
import transformers

from confkv.engine import Engine
from confkv.store import Store


def errors(engine: Engine, ids: list[int]) -> list[dict[str, float]]:
    """Relative L2 error of each layer's INT8 part after the tokens ``ids`` went through an INT8 store in chunks."""
    session = engine.session()
    session.extend(ids)
    plain = session.cache.store
    assert plain is not None
    store = Store(plain.lanes, plain.heads, plain.dim, plain.dtype, plain.device, int8=True)
    for start in range(0, len(ids), engine.chunk):
        stop = min(start + engine.chunk, len(ids))
        store.reserve(stop - start)
        for lane in range(store.lanes):
            store.append(lane, plain.k[lane, :, start:stop], plain.v[lane, :, start:stop])
        store.commit(start, [], stop - start)
        store.age()
    rows = []
    for lane in range(store.lanes):
        k, v, position = store.dequantised(lane)
        n = store.n_history[lane]
        row: dict[str, float] = {"layer": lane, "int8_positions": n}
        for name, stored, source in (("k", k, plain.k), ("v", v, plain.v)):
            original = torch.gather(source[lane], 1, position[:, :n, None].expand(-1, -1, store.dim)).float()
            difference = stored[:, :n].float() - original
            row[name] = round(float(difference.norm() / original.norm()), 5)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--text", type=Path, help="a text file; default: the Python reference")
    parser.add_argument("--tokens", type=int, default=2048)
    arguments = parser.parse_args()
    engine = Engine.load(arguments.model, "full")
    ids = engine.tokenizer(corpus.read(arguments.text), add_special_tokens=False)["input_ids"][: arguments.tokens]
    rows = errors(engine, ids)
    result: dict[str, Any] = {
        "benchmark": "int8_error",
        "command": " ".join(["python", *sys.argv]),
        "model": arguments.model,
        "machine": platform.processor() or platform.machine(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "mean_k": round(sum(r["k"] for r in rows) / len(rows), 5),
        "mean_v": round(sum(r["v"] for r in rows) / len(rows), 5),
        "layers": rows,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
