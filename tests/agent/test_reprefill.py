"""Feeding the whole conversation anew gives the replies that the persistent session gives, at other costs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agent.loop import run_episode
from agent.records import EpisodeResult
from agent.reprefill import Reprefill
from confkv.engine import Engine

sys.path.insert(0, str(Path(__file__).parent))
from chat_templates import FAMILIES, family_tokenizer


class Door:
    """A page that changes at each look and never ends the episode."""

    looks = 0

    def _obs(self, effect: str = "") -> dict[str, str]:
        self.looks += 1
        text = f'Room {self.looks}\nbutton "Open" [e1]\ntextbox "Word" [e2]'
        return {"goal": "Leave.", "text": text, "url": "u", "title": "t", "error": "", "effect": effect}

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, str], dict[str, Any]]:
        return self._obs(), {}

    def step(self, action: dict[str, Any]) -> tuple[dict[str, str], float, bool, bool, dict[str, Any]]:
        return self._obs("page changed"), 0.0, action["name"] == "answer", False, {}


@pytest.fixture(scope="module")
def engine() -> Engine:
    """A random Llama that repeats itself little, in float32, with a ChatML template."""
    tokenizer = family_tokenizer(FAMILIES[0])
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16384,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0.0, 1.5 / parameter.shape[-1] ** 0.5)
    return Engine(model, tokenizer, "full", "tiny", chunk=256)


def play(engine: Engine, session: Any) -> EpisodeResult:
    return run_episode(Door(), session, engine.tokenizer, seed=3, max_turns=3, max_new_tokens=40)


def test_full_and_greedy_the_two_ways_say_the_same(engine: Engine) -> None:
    kept, anew = engine.session(), Reprefill(engine.session)
    persistent, reprefilled = play(engine, kept), play(engine, anew)
    assert persistent.turns == 3 and len({record.reply for record in persistent.turn_records}) > 1
    assert [record.reply for record in reprefilled.turn_records] == [r.reply for r in persistent.turn_records]
    assert [record.prompt for record in reprefilled.turn_records] == [r.prompt for r in persistent.turn_records]
    assert anew.stats.tokens_seen == kept.stats.tokens_seen == anew.seen
    assert anew.stats.decode_steps == kept.stats.decode_steps == len(anew.steps)
    assert [s.turn for s in anew.steps] == [s.turn for s in kept.steps]
    assert anew.stats.peak_bytes == kept.stats.peak_bytes and anew.stats.full_bytes == kept.stats.full_bytes


def test_each_turn_feeds_all_that_was_said(engine: Engine) -> None:
    fed: list[list[int]] = []

    def opened() -> Any:
        session = engine.session()
        extend = session.extend
        fed.append([])

        def counted(ids: list[int], segment: str = "text") -> Any:
            fed[-1] += ids
            return extend(ids, segment)

        session.extend = counted  # type: ignore[method-assign]
        return session

    session = Reprefill(opened)
    result = play(engine, session)
    lengths = [len(ids) for ids in fed]
    assert len(lengths) == 3 and lengths == sorted(lengths)
    told = [record.prompt_tokens for record in result.turn_records]
    replies = [record.reply_tokens for record in result.turn_records]
    assert told[0] <= lengths[0] <= told[0] + replies[0]  # a block that was opened for the reply is fed too
    assert lengths[2] >= sum(told) + replies[0] + replies[1] - 2  # less the stop tokens taken back
    assert fed[2][: told[0]] == fed[0][: told[0]]


def test_the_first_token_is_timed_from_the_message(engine: Engine) -> None:
    ticks = iter(range(100_000))
    result = run_episode(
        Door(),
        engine.session(),
        engine.tokenizer,
        seed=3,
        max_turns=1,
        max_new_tokens=4,
        clock=lambda: float(next(ticks)),
    )
    (record,) = result.turn_records
    # the turn began at 0, feeding at 1, the first token came at 2; no later token is asked for the time
    assert record.first_token_seconds == 1.0 and record.seconds == 3.0
