"""The loop with tools: what is fed under templates with and without a form for tools, and what is done."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.loop import run_episode
from agent.tool_transcript import ToolTranscript

sys.path.insert(0, str(Path(__file__).parent))
from chat_templates import FAMILIES, family_tokenizer
from test_loop import FakeSession

CHATML = FAMILIES[0]
#: The shape of Qwen2.5's: schemas after the system text, results of calls grouped in one message.
HERMES = """{%- if tools %}<|im_start|>system
{{ messages[0].content if messages[0].role == 'system' else 'You are helpful.' }}

# Tools
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}{%- for m in messages %}{%- if m.role == 'tool' %}
{%- if messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}
<tool_response>
{{ m.content }}
</tool_response>{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>
{% endif %}{%- elif m.role != 'system' %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif %}{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "d", "parameters": {"properties": {"n": {}}}}}
    for name in ("look", "take")
]


@dataclass
class FakeTools:
    """Two turns of a user; ``look`` says its argument, ``take`` fails."""

    max_repeats: int = 20
    turn: int = 0
    steps: list[dict[str, Any]] = field(default_factory=list)

    def _obs(self, text: str, effect: str = "", error: str = "") -> dict[str, str]:
        return {"goal": "Go.", "text": text, "url": f"t#{self.turn}", "title": "", "error": error, "effect": effect}

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, str], dict[str, Any]]:
        return self._obs("Go."), {"tools": TOOLS, "system": "Be quick."}

    def step(self, action: dict[str, Any]) -> tuple[dict[str, str], float, bool, bool, dict[str, Any]]:
        self.steps.append(action)
        if action["name"] == "respond":
            self.turn += 1
            over = self.turn == 2
            return self._obs("" if over else "And now?"), float(over), over, False, {"raw_reward": float(over)}
        if action["name"] == "look":
            text = f"seen {action['args'].get('n')}"
            return self._obs(text, text), 0.0, False, False, {}
        return self._obs("no", "", f"There is no tool {action['name']}."), 0.0, False, False, {}

    def finish(self, answer: str | None) -> tuple[float, str]:
        return float(self.turn == 2), ""


def tokenizer_of(template: str) -> Any:
    tokenizer = family_tokenizer(CHATML)
    tokenizer.chat_template = template
    return tokenizer


def call(name: str, n: int) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {{"n": {n}}}}}</tool_call>'


def play(template: str, replies: list[str]) -> tuple[Any, FakeTools, FakeSession]:
    tokenizer, env = tokenizer_of(template), FakeTools()
    session = FakeSession(tokenizer, "<|im_end|>", replies)
    return run_episode(env, session, tokenizer, seed=0), env, session


def test_the_templates_own_form_is_fed_piece_by_piece():
    replies = [call("look", 1) + call("look", 2), "Seen both.", "Bye."]
    result, env, session = play(HERMES, replies)
    assert (result.stop_reason, result.success, result.turns) == ("done", True, 3)
    assert [step["name"] for step in env.steps] == ["look", "look", "respond", "respond"]
    assert [segment for segment, _ in session.fed] == ["system", "system", "goal", "observation", "observation"]
    messages = [
        {"role": "system", "content": "Be quick."},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": replies[0]},
        {"role": "tool", "content": "seen 1"},
        {"role": "tool", "content": "seen 2"},
        {"role": "assistant", "content": replies[1]},
        {"role": "user", "content": "And now?"},
        {"role": "assistant", "content": replies[2]},
    ]
    whole = session.tokenizer.apply_chat_template(messages, tokenize=False, tools=TOOLS)
    assert session.tokenizer.decode(session.tokens) == whole.rstrip("\n")


def test_a_template_without_tools_gets_them_as_text():
    result, _, session = play(CHATML.template, [call("look", 7), "Ok.", "Bye."])
    assert result.success
    opening = "".join(text for _, text in session.fed[:3])
    assert '"name": "take"' in opening and opening.index("Be quick.") < opening.index("take") < opening.index("Go.")
    assert "<tool_response>\nseen 7\n</tool_response>" in session.fed[3][1]


@pytest.mark.parametrize("template", [HERMES, CHATML.template])
def test_faulty_calls_come_back_as_results_and_later_ones_are_not_done(template):
    replies = [call("gone", 1) + call("look", 2), "<tool_call>{oops}</tool_call>", "Ok.", "Bye."]
    result, env, session = play(template, replies)
    assert [step["name"] for step in env.steps] == ["gone", "respond", "respond"]
    after = [text for segment, text in session.fed if segment == "observation"]
    assert "Error: There is no tool gone." in after[0] and "Error: not done, as a call before it failed." in after[0]
    assert "Error: The call is not valid JSON" in after[1]
    assert result.success and result.turn_records[1].parse_error


def test_a_tool_named_answer_ends_nothing():
    result, env, _ = play(HERMES, [call("answer", 1), "Ok.", "Bye."])
    assert (result.stop_reason, result.answer) == ("done", None) and len(env.steps) == 3


def test_special_tokens_in_a_result_stay_text():
    tokenizer = tokenizer_of(HERMES)
    transcript = ToolTranscript(tokenizer, TOOLS)
    (piece,) = transcript.results(["a<|im_end|>b"], None)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert piece.ids.count(end) == 2  # of the reply that was cut, and of the message


def test_schemas_that_are_not_pinned_are_a_segment_of_their_own():
    pieces = ToolTranscript(tokenizer_of(HERMES), TOOLS, pin_tools=False).open("Be quick.", "Go.")
    assert [piece.segment for piece in pieces] == ["system", "text", "goal"]
    assert '"take"' in pieces[1].text and "take" not in pieces[0].text + pieces[2].text


def test_a_template_that_quotes_results_gets_them_escaped():
    quoting = HERMES.replace("<tool_response>\n{{ m.content }}\n</tool_response>", "{{ m.content | tojson }}")
    (piece,) = ToolTranscript(tokenizer_of(quoting), TOOLS).results(['say "x"', "b"], None)
    assert '"say \\"x\\""' in piece.text and '"b"' in piece.text
