"""What sessions record of a running model, against the attention that transformers' eager implementation returns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from confkv.engine import Engine
from confkv.manager import Manager
from confkv.observe import View
from confkv.store import MASS

LENGTH, W = 60, 8


def _attention(model: Any, ids: list[int]) -> Tensor:
    """``[lanes, H, group, T, T]`` float64 of the layers without a sliding window."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        layers = model(input_ids=torch.tensor([ids]), output_attentions=True).attentions
    kinds = getattr(model.config, "layer_types", None) or ["full_attention"] * len(layers)
    kept = [a[0] for a, kind in zip(layers, kinds, strict=True) if kind == "full_attention"]
    heads = getattr(model.config, "num_key_value_heads", None) or kept[0].shape[0]
    return torch.stack(kept).unflatten(1, (heads, -1)).double()


def _top_tenth(rows: Tensor) -> Tensor:
    """``[lanes, H, T]``: in how many rows each position exceeds the 90th percentile of what the row sees."""
    count = torch.zeros(rows.shape[0], rows.shape[1], rows.shape[-1], dtype=torch.float64)
    for t in range(rows.shape[2]):
        row = rows[:, :, t, : t + 1]
        count[..., : t + 1] += row > row.quantile(0.9, dim=-1, keepdim=True)
    return count


@pytest.mark.parametrize("chunk", [1, 7, 200])
@pytest.mark.parametrize("family", ["llama", "gpt-oss", "gpt2"])
def test_recorded_attention_is_the_models(family: str, chunk: int, tiny: Any, ids: Any) -> None:
    true = _attention(tiny(family), ids(LENGTH))
    expected = {
        "h2o:500": true.sum(3).mean(2),
        "tova:500": true[:, :, :, -1].mean(2),
        "snapkv:500,w=8,pool=1": true[:, :, :, -W:].sum(3).mean(2),
    }
    for policy, values in expected.items():
        session = Engine(tiny(family), None, policy, chunk=chunk).session()
        session.extend(ids(LENGTH))
        store, manager = session.cache.store, session._manager
        assert store is not None and manager is not None and set(store.lengths) == {LENGTH}
        signal = manager.policy.ranker.signal(View(store, manager.window, LENGTH))
        got = store.meta[..., :LENGTH, MASS] if signal is None else signal
        end = LENGTH - W if policy.startswith("snapkv") else LENGTH
        torch.testing.assert_close(got[..., :end].double(), values[..., :end], atol=1e-4, rtol=1e-4)
    session = Engine(tiny(family), None, "scissorhands:500", chunk=chunk).session()
    session.extend(ids(LENGTH))
    store, manager = session.cache.store, session._manager
    assert store is not None and manager is not None
    count = manager.policy.ranker.signal(View(store, None, LENGTH))
    assert count is not None and store.meta.shape[-1] == 3 + 4
    assert torch.equal(count.double(), _top_tenth(true.sum(2)))


@pytest.mark.parametrize(
    ("policy", "every"),
    [("h2o:16", True), ("scissorhands:18", True), ("snapkv:24,w=20,pool=3", True), ("tova:100", False)],
)
def test_rankers_get_the_rows_they_ask_for(
    policy: str, every: bool, tiny: Any, ids: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    record = Manager.record

    def spy(self: Manager, queries: list[Tensor], *args: Any) -> None:
        rows.append(queries[0].shape[2])
        record(self, queries, *args)

    monkeypatch.setattr(Manager, "record", spy)
    session = Engine(tiny("llama", max_position_embeddings=400), None, policy, chunk=8).session()
    session.extend(ids(96))
    assert rows == ([8] * 12 if every else [1]), "all rows of every chunk, or the last one of the last chunk"


@pytest.mark.parametrize("policy", ["h2o:16", "scissorhands:18", "snapkv:16,w=5,pool=3", "tova:16"])
def test_chunks_of_many_rows_equal_single_tokens_until_the_first_eviction(policy: str, tiny: Any, ids: Any) -> None:
    kept = []
    for chunk in (1, 150):
        session = Engine(tiny("llama", max_position_embeddings=400), None, policy, chunk=chunk).session()
        # Protected, so that nothing leaves before the release.
        session.extend(ids(150), "observation")
        session.extend(ids(1), "observation")
        kept.append([session.original_positions(lane).tolist() for lane in range(2)])
    assert kept[0] == kept[1]
