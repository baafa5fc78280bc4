"""Scores of the baselines against kvpress 0.5.5 on the same tensors, computed by transformers' eager attention.

kvpress pins an older transformers, so it cannot be an extra of this package; its scores run with ours, and
``scripts/setup.sh`` installs it without its dependencies.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from confkv.engine import Engine
from confkv.observe import View
from confkv.store import MASS

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("kvpress") is None,
    reason="kvpress is not installed: pip install --no-deps kvpress==0.5.5",
)
LENGTH, W, POOL, GROUPS = 60, 8, 5, 2
SAFEGUARDS = [0.0, 0.2, 0.9]


@pytest.fixture(scope="module")
def given(tiny: Any) -> dict[str, Any]:
    """A forward pass of a tiny Llama with everything kept, by transformers alone."""
    model = tiny("llama")
    model.set_attn_implementation("eager")
    seen: dict[str, Any] = {}

    def hook(_: Any, args: Any, kwargs: dict[str, Any]) -> None:
        seen.update(hidden=kwargs["hidden_states"], cos=kwargs["position_embeddings"][0])
        seen["sin"] = kwargs["position_embeddings"][1]

    attention = model.model.layers[0].self_attn
    handle = attention.register_forward_pre_hook(hook, with_kwargs=True)
    with torch.no_grad():
        out = model(input_ids=torch.tensor([_ids()]), output_attentions=True, use_cache=True)
    handle.remove()
    keys = torch.cat([layer.keys for layer in out.past_key_values.layers])
    return {
        **seen,
        "keys": keys,
        "attentions": torch.cat(list(out.attentions)),
        "q_weight": attention.q_proj.weight.detach(),
        "groups": GROUPS,
        "w": W,
        "pool": POOL,
        "safeguards": SAFEGUARDS,
    }


@pytest.fixture(scope="module")
def theirs(given: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    folder = tmp_path_factory.mktemp("kvpress")
    torch.save(given, folder / "in.pt")
    program = Path(__file__).with_name("kvpress_scores.py")
    subprocess.run([sys.executable, str(program), str(folder / "in.pt"), str(folder / "out.pt")], check=True)
    out: dict[str, Tensor] = torch.load(folder / "out.pt")
    return out


def _ids() -> list[int]:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(3, 61, (LENGTH,), generator=generator).tolist()


def _ours(tiny: Any, policy: str) -> Tensor:
    """What the ranker scores, ``[layers, H, n]``, after the same tokens in chunks; nothing is evicted."""
    session = Engine(tiny("llama"), None, policy, chunk=7).session()
    session.extend(_ids())
    store, manager = session.cache.store, session._manager
    assert store is not None and manager is not None and store.lengths == [LENGTH] * 2
    signal = manager.policy.ranker.signal(View(store, manager.window, LENGTH))
    return store.meta[..., :LENGTH, MASS] if signal is None else signal


def test_snapkv(tiny: Any, theirs: dict[str, Tensor]) -> None:
    """kvpress takes the mean over the window's rows where the paper has the sum."""
    ours = _ours(tiny, f"snapkv:500,w={W},pool={POOL},pooling=avg")[..., :-W]
    torch.testing.assert_close(ours, theirs["snapkv"][..., :-W] * W, atol=2e-5, rtol=1e-4)


def test_tova(tiny: Any, theirs: dict[str, Tensor]) -> None:
    """kvpress never evicts the newest position and leaves its score out."""
    ours = _ours(tiny, "tova:500").mean(1, keepdim=True).expand(-1, 2, -1)
    torch.testing.assert_close(ours[..., :-1], theirs["tova"][..., :-1], atol=2e-5, rtol=1e-4)


def test_h2o_is_not_the_mean_over_rows_of_observed_attention(tiny: Any, theirs: dict[str, Tensor]) -> None:
    """kvpress's ObservedAttention divides by the number of rows that could see a key. H2O's sum does not, which favours
    old keys: times that number they are equal, and without it they choose otherwise."""
    ours = _ours(tiny, "h2o:500")
    rows = torch.arange(LENGTH, 0, -1)
    torch.testing.assert_close(ours, theirs["observed"] * rows, atol=2e-5, rtol=1e-4)
    assert set(ours[0, 0].topk(20).indices.tolist()) != set(theirs["observed"][0, 0].topk(20).indices.tolist())


def test_knorm(tiny: Any, theirs: dict[str, Tensor]) -> None:
    torch.testing.assert_close(_ours(tiny, "knorm:500"), theirs["knorm"], atol=1e-5, rtol=1e-5)


def _kept_by_adakv(tiny: Any, floor: float) -> Tensor:
    """What is kept of half of all positions, bool ``[layers, H, n]``."""
    policy = f"adakv:{LENGTH // 2},w={W},pool={POOL},pooling=avg,floor={floor}"
    session = Engine(tiny("llama"), None, policy, chunk=LENGTH).session()
    session.extend(_ids())
    kept = torch.zeros(2, 2, LENGTH, dtype=torch.bool)
    for layer in range(2):
        for head, row in enumerate(session.original_positions(layer)):
            kept[layer, head, row[row >= 0]] = True
    return kept


def test_adakv_without_a_safeguard_keeps_what_kvpress_keeps(tiny: Any, theirs: dict[str, Tensor]) -> None:
    ours = _kept_by_adakv(tiny, 0.0)
    assert torch.equal(ours, theirs["ada_0.0"])
    counts = ours.sum(-1)
    assert counts.sum(-1).tolist() == [LENGTH] * 2 and bool((counts[:, 0] != counts[:, 1]).any())


def test_adakv_safeguards_are_two_things(tiny: Any, theirs: dict[str, Tensor]) -> None:
    """kvpress promises a head a share of all that is kept on average, the window among it: the window alone keeps the
    promise as long as it is that large, and then nothing is guarded. Ours, as the paper's code, mixes counts with an
    even split of what is kept beside the window."""
    free = theirs["ada_0.0"].sum(-1) - W
    assert W > 0.2 * LENGTH / 2 and torch.equal(theirs["ada_0.2"], theirs["ada_0.0"])
    even = LENGTH // 2 - W
    for floor in SAFEGUARDS[1:]:
        ours = _kept_by_adakv(tiny, floor).sum(-1) - W
        assert ours.sum(-1).tolist() == [2 * even] * 2
        assert float((ours - (floor * even + (1 - floor) * free)).abs().max()) < 1.0
    least = int(0.9 * (LENGTH // 2))
    assert torch.equal(theirs["ada_0.9"].sum(-1) - W, free.clamp(least - W, LENGTH - least - W))


def test_queries_of_the_window_are_rotated_at_their_own_positions(
    given: dict[str, Any], theirs: dict[str, Tensor]
) -> None:
    """While decoding, kvpress has the cosines of one position for the buffered queries of its window and rotates all of
    them alike; ours are stored after RoPE. With every position's cosines its attention is the model's own."""
    true = given["attentions"][0, :, -W:, :-W]
    torch.testing.assert_close(theirs["window_own"], true, atol=2e-5, rtol=1e-4)
    wrong = (theirs["window_alike"] - true).abs().amax((0, 2))
    assert float(wrong[-1]) < 2e-5, "right for the newest query"
    assert float(wrong[:-1].min()) > 0.01, "wrong for all before it"
