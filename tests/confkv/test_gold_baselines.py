"""The gold test for the baseline policies: evicted sessions equal full runs in which the evicted keys are masked."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from confkv.engine import Engine
from confkv.errors import ModelError
from confkv.policies import list_policies
from tests.confkv.test_gold import CONFKV, Gold, Record, Reference, _script

BASELINES = {
    "streaming": "streaming:16",
    "streaming-rel": "streaming-rel:16",
    "h2o": "h2o:16",
    "scissorhands": "scissorhands:18",
    "snapkv": "snapkv:16,w=5,pool=3",
    "pyramidkv": "pyramidkv:16,w=5,pool=3",
    "zigzag": "zigzag:14,w=5,pool=3",
    "adakv": "adakv:16,w=5,pool=3",
    "tova": "tova:16",
    "knorm": "knorm:16,protect=4",
    "random": "random:16,protect=4,seed=2",
    "recency": "recency:16,protect=4",
    "mass": "mass:16,protect=4",
}
VARIANTS = {
    "adaptive": CONFKV + ",adaptive=0.5",
    "shuffle": CONFKV + ",shuffle=3",
    "values": "confkv-mean:n_high=16,n_low=16,protect=4,sinks=2,values=1",
    "guard": CONFKV + ",guard=0.4",
    "slow": "confkv-slow:n_high=12,n_low=20,sinks=2,tau=0.5",
    "guard-values": "confkv-mean:n_high=12,n_low=20,protect=4,sinks=2,tau=0.5,values=1,guard=0.3",
    "guard-look": CONFKV.replace("confkv:", "confkv-look:") + ",guard=0.3,scope=head,page=4,archive=fp",
    "line": CONFKV.replace("confkv:", "confkv-l:") + ",curve=pyramidkv,scope=head",
    "ada": CONFKV + ",scope=head,heads=ada",
    "ada-guard": CONFKV + ",scope=head,heads=ada,guard=0.4",
    "ada-pyramid": CONFKV.replace("confkv:", "confkv-l:") + ",floor=8,scope=head,heads=ada,head_floor=0",
    "ada-mean": CONFKV.replace("confkv:", "confkv-mean:") + ",heads=ada",
    "block": CONFKV.replace("n_low=20", "n_low=24").replace("n_high=12", "n_high=14") + ",block=8",
}
PAIRS = [
    *[("llama", policy) for policy in (*BASELINES, *VARIANTS)],
    *[("gpt-oss", policy) for policy in ("snapkv", "h2o", "scissorhands", "streaming-rel", "adakv", "ada-mean")],
    *[("gpt-oss", policy) for policy in ("values", "guard", "guard-look", "line")],
    *[("gemma3", policy) for policy in ("snapkv", "streaming-rel", "adakv", "ada", "ada-guard")],
    *[("qwen3", policy) for policy in ("adakv", "ada-pyramid")],
    *[("gpt2", policy) for policy in ("snapkv", "adakv")],
]


class CacheReference(Reference):
    """The reference with StreamingLLM's positions: attention sees a key at its index in the cache."""

    def forward(self, record: Record, ids: Tensor, visible: list[Tensor | None]) -> Tensor:
        """Survivors are moved to positions without a gap before the new tokens, for this pass only."""
        shadow = copy.deepcopy(record)
        for layer, seen in enumerate(visible):
            at, k = record.at[layer], record.k[layer]
            if seen is None or at is None or k is None:
                continue
            new = at.clone()
            for head in range(at.shape[0]):
                new[head, seen[head]] = torch.arange(record.next_position - int(seen[head].sum()), record.next_position)
            shadow.k[layer], shadow.at[layer] = self._turn(k, at, new, seen, layer), new
        out = super().forward(shadow, ids, visible)
        for layer in range(self.layers):
            for name in ("k", "v", "at"):
                old, now = getattr(record, name)[layer], getattr(shadow, name)[layer]
                getattr(shadow, name)[layer] = now if old is None else torch.cat([old, now[:, old.shape[1] :]], 1)
        vars(record).update(vars(shadow))
        return out


def _gold(model: Any, policy: str) -> Gold:
    gold = Gold(model, policy, chunk=8)
    if gold.engine.policy.cache_positions:
        gold.reference = CacheReference(model)
    return gold


def test_every_baseline_is_here() -> None:
    other = {"full", "window", "confkv", "confkv-l"}
    assert {info.name for info in list_policies() if not info.name.startswith("confkv-")} - other == set(BASELINES)


@pytest.mark.parametrize(("family", "policy"), PAIRS)
def test_session_equals_masked_full_run(family: str, policy: str, tiny: Any, ids: Any) -> None:
    gold = _gold(tiny(family), {**BASELINES, **VARIANTS}[policy])
    for session in _script(gold, ids):
        assert session.stats.rebases == gold.record_of(session).rebases >= 1
        assert session.stats.evictions > 0
    assert gold.forwards > 80 and gold.hidden > 500


def test_cache_positions_are_not_text_positions(tiny: Any, ids: Any) -> None:
    """The reference for cache positions tells the two apart: `streaming` fails it."""
    gold = Gold(tiny("llama"), "streaming:16", chunk=8)
    gold.reference = CacheReference(tiny("llama"))
    with pytest.raises(AssertionError, match="forward"):
        _script(gold, ids)


@pytest.mark.parametrize(
    ("rope", "fits"),
    [
        ({"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}, True),
        (
            {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 48, "rope_theta": 10000.0},
            True,
        ),
        ({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}, False),
    ],
    ids=lambda x: x["rope_type"] if isinstance(x, dict) else "",
)
def test_cache_positions_with_scaled_rope(rope: dict[str, Any], fits: bool, tiny: Any, ids: Any) -> None:
    model = tiny("llama", rope_parameters=rope)
    if fits:
        _script(_gold(model, "streaming-rel:16"), ids)
        return
    with pytest.raises(ModelError, match="dynamic") as caught:
        Engine(model, None, "streaming-rel:16")
    assert "\n" not in str(caught.value)


def test_cache_positions_need_rope_in_halves(tiny: Any) -> None:
    with pytest.raises(ModelError, match="does not have"):
        Engine(tiny("gpt2"), None, "streaming-rel:16")
    import transformers as hf

    config = hf.CohereConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    with pytest.raises(ModelError, match="interleaved"):
        Engine(hf.CohereForCausalLM(config), None, "streaming-rel:16")
    assert Engine(hf.CohereForCausalLM(config), None, "streaming:16").policy.name == "streaming"


def test_nothing_evicted_is_bit_equal_to_full(tiny: Any, ids: Any, recorder: Any) -> None:
    """A session within its budget is the full cache, whatever the policy."""
    runs = []
    for policy in ("full", *(info.name for info in list_policies() if info.name != "full")):
        engine = Engine(tiny("llama", max_position_embeddings=200), None, policy, chunk=16)
        logits = recorder(engine).logits
        session = engine.session()
        session.extend(ids(12, 1), "system")
        session.extend(ids(30, 2), "observation")
        tokens = [t.id for t in session.generate(20, stop_ids=[])]
        assert session.stats.evictions == 0
        runs.append((tokens, logits))
    for tokens, logits in runs[1:]:
        assert tokens == runs[0][0]
        assert all(torch.equal(a, b) for a, b in zip(logits, runs[0][1], strict=True))


def test_cache_positions_do_not_drift(tiny: Any, ids: Any) -> None:
    """Keys are turned from where they are stored: after 300 steps the sinks are what they were."""
    engine = Engine(tiny("llama", max_position_embeddings=4000), None, "streaming-rel:12", chunk=16)
    session = engine.session()
    session.extend(ids(30))
    store = session.cache.store
    assert store is not None

    def sinks() -> Tensor:
        at = store.slot_positions(0)[0]
        return store.k[0, :, [int((at == i).nonzero()) for i in range(4)]].clone()

    before = sinks()
    session.score(ids(300, 4))
    assert torch.equal(sinks(), before)
