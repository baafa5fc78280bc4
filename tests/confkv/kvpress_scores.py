"""Scores of kvpress 0.5.5 for given tensors. A program of its own: importing kvpress changes transformers' attention.

usage: python kvpress_scores.py INPUTS OUTPUTS (files of torch.save)
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch

# What kvpress imports for its evaluation, and its scores do not use.
for name in ("cachetools", "datasets", "fire"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        sys.modules[name] = MagicMock()

from kvpress import AdaKVPress, KnormPress, ObservedAttentionPress, SnapKVPress, TOVAPress  # noqa: E402


def scores(given: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Scores ``[layers, H, n]`` of each press, SnapKV's attention of the window with each kind of cosines, and what
    AdaKV keeps of half of all positions, bool ``[layers, H, n]``, for each safeguard."""
    heads, groups = given["keys"].shape[1], given["groups"]
    config = SimpleNamespace(num_attention_heads=heads * groups, num_key_value_heads=heads, _attn_implementation="sdpa")
    projection = torch.nn.Linear(*reversed(given["q_weight"].shape), bias=False)
    projection.weight.data = given["q_weight"]
    module: Any = SimpleNamespace(config=config, head_dim=given["keys"].shape[-1], q_proj=projection)
    presses = {
        "snapkv": SnapKVPress(window_size=given["w"], kernel_size=given["pool"]),
        "tova": TOVAPress(),
        "observed": ObservedAttentionPress(),
        "knorm": KnormPress(),
    }
    out = {}
    for name, press in presses.items():
        rows = [
            press.score(module, given["hidden"], k[None], k[None], a[None], {})[0]
            for k, a in zip(given["keys"], given["attentions"], strict=True)
        ]
        out[name] = torch.stack(rows)
    for safeguard in given["safeguards"]:
        press = AdaKVPress(SnapKVPress(0.5, given["w"], given["pool"]), alpha_safeguard=safeguard)
        kept = torch.ones(given["keys"].shape[:3], dtype=torch.bool)
        for layer, (k, a) in enumerate(zip(given["keys"], given["attentions"], strict=True)):
            press.compress(module, given["hidden"], k[None], k[None], a[None], {})
            _, head, position = module.masked_key_indices
            kept[layer, head, position] = False
        out[f"ada_{safeguard}"] = kept
    cos, sin = given["cos"], given["sin"]
    for name, part in (("own", slice(None)), ("alike", slice(-1, None))):
        embeddings = (cos[:, part], sin[:, part])
        call = SnapKVPress.compute_window_attention
        out[f"window_{name}"] = call(module, given["hidden"], given["keys"][:1], given["w"], embeddings)[0]
    return out


if __name__ == "__main__":
    with torch.no_grad():
        torch.save(scores(torch.load(sys.argv[1])), sys.argv[2])
