"""The loop with a scripted session and environment: what is fed, what is done, and why it stops."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent import prompts
from agent.actions import MAX_ACTIONS
from agent.loop import run_episode
from agent.records import EpisodeResult

sys.path.insert(0, str(Path(__file__).parent))
from chat_templates import FAMILIES, Family, family_tokenizer

CHATML = FAMILIES[0]


@dataclass
class FakeToken:
    id: int
    text: str
    confidence: float = 0.5
    budget: int | None = None
    kept: float = 0.0
    seconds: float = 0.0


class FakeSession:
    """Follows a session's contract without a model: replies are scripted, every logical token is kept.

    A reply is text, closed by the family's stop token; ``(text, False)`` is cut; exceptions are raised. Where a block
    is opened for it, the next of ``leads`` follows; by default nothing does. What the grammar rejects is not sampled.
    """

    def __init__(self, tokenizer: Any, eos: str, replies: Sequence[Any], leads: Sequence[str] = ()) -> None:
        self.leads, self.led = iter(leads), False
        self.openings: list[str] = []
        self.retracted: list[int] = []
        self.tokenizer, self.replies = tokenizer, iter(replies)
        self.stop = tokenizer.convert_tokens_to_ids(eos)
        self.tokens: list[int] = []
        self.fed: list[tuple[str, str]] = []  # (segment, text)
        self.stops: list[int] = []

    @property
    def stats(self) -> dict[str, int]:
        return {"tokens_seen": len(self.tokens)}

    def extend(self, ids: list[int], segment: str = "text") -> None:
        assert ids, "an empty extend"
        self.tokens += ids
        if segment == "reply":
            self.led = True
            self.openings.append(self.tokenizer.decode(ids))
            return
        self.fed.append((segment, self.tokenizer.decode(ids)))

    def generate(
        self,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        stop_ids: Any = None,
        seed: int | None = None,
        allow: Callable[[int], bool] = lambda token: True,
        segment: str = "text",
    ) -> Iterator[FakeToken]:
        assert segment == "reply", "the cache would not protect it while it is written"
        reply = next(self.leads, "") if self.led else next(self.replies)
        self.led = False
        if isinstance(reply, BaseException):
            raise reply
        text, closed = reply if isinstance(reply, tuple) else (reply, True)
        self.stops = list(stop_ids)
        assert self.stop in self.stops
        for token in self.tokenizer.encode(text, add_special_tokens=False):
            if not allow(token):
                continue
            self.tokens.append(token)
            yield FakeToken(token, self.tokenizer.decode([token]))
        if closed:
            self.tokens.append(self.stop)
            yield FakeToken(self.stop, "")

    def retract(self) -> int:
        self.retracted.append(self.tokens.pop())
        return self.retracted[-1]


@dataclass
class FakeEnv:
    """A page of buttons: e1 changes it, e2 does nothing, e3 fails, e4 opens another page, e5 wins."""

    pages: int = 0
    url: str = "http://site.test/0"
    text: str = 'button "More" [e1]'
    steps: list[dict[str, Any]] = field(default_factory=list)
    seeds: list[int | None] = field(default_factory=list)
    right: str = "42"
    raises: BaseException | None = None

    def _obs(self, effect: str = "", error: str = "") -> dict[str, str]:
        return {"goal": "Say 42.", "text": self.text, "url": self.url, "title": "Shop",
                "error": error, "effect": effect}  # fmt: skip

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, str], dict[str, Any]]:
        self.seeds.append(seed)
        return self._obs(), {"screenshot": None}

    def step(self, action: dict[str, Any]) -> tuple[dict[str, str], float, bool, bool, dict[str, Any]]:
        self.steps.append(action)
        if self.raises:
            raise self.raises
        name, args = action["name"], action["args"]
        if name == "answer":
            reward = float(args["text"] == self.right)
            return self._obs("answered"), reward, True, False, {"raw_reward": reward, "seconds": 0.25}
        element = args.get("id")
        if element == "e1":
            self.pages += 1
            self.text = f'button "More" [e1] {self.pages}'
            return self._obs("page changed"), 0.0, False, False, {}
        if element == "e3":
            return self._obs("nothing changed", "e3 is not on the page"), 0.0, False, False, {}
        if element == "e4":
            self.url += "/next"
            return self._obs(f"navigated to {self.url}"), 0.0, False, False, {}
        if element == "e5":
            return self._obs("page changed"), 1.0, True, False, {"raw_reward": 1.0}
        if element == "e6":
            return self._obs("", "the browser was closed"), 0.0, False, True, {}
        return self._obs("nothing changed"), 0.0, False, False, {}


@dataclass
class Played:
    result: EpisodeResult
    session: FakeSession
    env: FakeEnv
    events: list[dict[str, Any]]


def play(
    replies: Sequence[Any],
    env: FakeEnv | None = None,
    family: Family = CHATML,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    leads: Sequence[str] = (),
    **options: Any,
) -> Played:
    tokenizer = family_tokenizer(family)
    env = env or FakeEnv()
    session = FakeSession(tokenizer, family.eos, replies, leads)
    events: list[dict[str, Any]] = []

    def listen(event: dict[str, Any]) -> None:
        events.append(event)
        if on_event:
            on_event(event)

    result = run_episode(env, session, tokenizer, seed=7, on_event=listen, **options)
    return Played(result, session, env, events)


def kinds(played: Played) -> list[str]:
    return [event["type"] for event in played.events if event["type"] != "token"]


def test_an_answer_ends_the_episode_with_its_reward() -> None:
    played = play(['The page says it.\n```\nanswer("42")\n```'])
    result = played.result
    assert (result.stop_reason, result.success, result.reward, result.answer) == ("answer", True, 1.0, "42")
    assert (result.turns, result.goal, played.env.seeds) == (1, "Say 42.", [7])
    record = result.turn_records[0]
    assert (record.thought, record.complete, record.confidence_mean) == ("The page says it.", True, 0.5)
    assert record.reply == 'The page says it.\n```\nanswer("42")\n```'
    assert record.reply_tokens == len(record.reply), "sampling ends with the code block"
    assert record.actions[0].seconds == 0.25
    assert kinds(played) == ["turn_start", "reply", "action", "turn_end", "end"]
    assert sum(event["type"] == "token" for event in played.events) == record.reply_tokens
    assert played.events[-1]["result"] is result
    assert result.as_dict()["turns"] == 1


def test_a_wrong_answer_is_no_success() -> None:
    result = play(['answer("41")']).result
    assert (result.stop_reason, result.success, result.reward, result.answer) == ("answer", False, 0.0, "41")


def test_the_exact_text_of_two_turns() -> None:
    played = play(['click("e1")', 'answer("42")'])
    system, goal, first, second = played.session.fed
    assert system == ("system", "<|im_start|>system\n" + prompts.system_prompt())
    assert goal == ("goal", "<|im_end|>\n<|im_start|>user\nGoal: Say 42.\n\n")
    page = prompts.observation(FakeEnv()._obs())
    assert first == ("observation", page + "<|im_end|>\n<|im_start|>assistant\n")
    told = prompts.observation(played.env._obs(), actions=played.result.turn_records[0].actions)
    assert 'click("e1"): page changed' in told
    assert second == (
        "observation",
        f"\n<|im_start|>user\n{told}<|im_end|>\n<|im_start|>assistant\n",
    )
    starts = [event["prompt"] for event in played.events if event["type"] == "turn_start"]
    assert starts == [system[1] + goal[1] + first[1], second[1]]
    assert starts == [record.prompt for record in played.result.turn_records]
    fed = played.session.tokenizer.decode(played.session.tokens)
    assert fed == starts[0] + 'click("e1")<|im_end|>' + starts[1] + 'answer("42")<|im_end|>'


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_plays_an_episode(family: Family) -> None:
    final = "<|channel|>final<|message|>" if family.name == "harmony" else ""
    played = play([final + 'click("e2")', (final + 'click("e1")', False), final + 'answer("42")'], family=family)
    assert played.result.stop_reason == "answer" and played.result.success
    fed = [text for _, text in played.session.fed]
    assert fed[3].startswith(family.between) and fed[4].startswith(family.close + family.between)
    assert all(text.endswith(family.tail) for text in fed[2:])


def test_the_environment_ends_the_episode() -> None:
    result = play(['click("e1")\nclick("e5")\nclick("e1")']).result
    assert (result.stop_reason, result.success, result.raw_reward) == ("done", True, 1.0)
    assert [done.action["args"]["id"] for done in result.turn_records[0].actions] == ["e1", "e5"]


def test_a_lost_browser_is_an_error_that_says_so() -> None:
    result = play(['click("e6")']).result
    assert (result.stop_reason, result.success, result.error) == ("error", False, "the browser was closed")


@pytest.mark.parametrize(("element", "why"), [("e3", "failed: e3 is not"), ("e4", "navigated to")])
def test_a_failure_or_another_page_stops_the_turn(element: str, why: str) -> None:
    played = play([f'click("e1")\nclick("{element}")\nclick("e2")', 'answer("42")'])
    assert [step["args"].get("id") for step in played.env.steps[:2]] == ["e1", element]
    assert played.env.steps[2]["name"] == "answer"
    record = played.result.turn_records[0]
    assert record.skipped == [{"name": "click", "args": {"id": "e2"}}]
    told = played.session.fed[3][1]
    assert why in told
    assert told.index('click("e1"): page changed') < told.index(why)
    assert 'click("e2")' in told


def test_three_unreadable_replies_in_a_row_are_the_end() -> None:
    played = play(["", "<think>hm", ("I will now think about it", False)])
    result = played.result
    assert (result.stop_reason, result.turns, played.env.steps) == ("parse_failures", 3, [])
    fed = [text for _, text in played.session.fed]
    assert "No action was found in the reply." in fed[3]
    assert "thoughts but no action" in fed[4]
    assert FakeEnv().text in fed[3]
    assert [record.complete for record in result.turn_records] == [True] * 3


def test_a_good_reply_forgives_the_failures_before_it() -> None:
    played = play(["no", "no", 'click("e1")', "no", "no", 'answer("42")'])
    assert (played.result.stop_reason, played.result.turns) == ("answer", 6)


def test_a_reply_that_ends_without_actions_is_led_into_a_block() -> None:
    played = play(["The button is More.", 'answer("42")'], leads=['click("e1")\n```'])
    record = played.result.turn_records[0]
    assert record.reply == 'The button is More.\n```\nclick("e1")\n```'
    assert (record.thought, [done.action["args"]["id"] for done in record.actions]) == ("The button is More.", ["e1"])
    assert record.reply_tokens == len("The button is More.") + 1 + len('click("e1")\n```')
    session = played.session
    assert (session.openings, session.retracted) == (["\n```\n"], [session.stop])
    fed = session.tokenizer.decode(session.tokens)
    assert 'The button is More.\n```\nclick("e1")\n```<|im_end|>\n<|im_start|>user' in fed


def test_actions_that_are_only_announced_are_led_into_a_block() -> None:
    played = play(['Two steps. Actions:\nclick "More"', 'answer("42")'], leads=['click("e1")\n```'])
    record = played.result.turn_records[0]
    assert record.reply == 'Two steps. Actions:\n```\nclick("e1")\n```'
    assert (played.session.openings, played.session.retracted) == (["```\n"], []), "no stop token was sampled"


@pytest.mark.parametrize("reply", ['click("e1")', '```\nclick("e1")\n```', "<think>hm", ("cut off", False)])
def test_other_replies_are_not_led(reply: Any) -> None:
    played = play([reply, 'answer("42")'])
    assert (played.session.openings, played.session.retracted) == ([], [])


def test_in_a_block_only_ids_of_the_page_are_sampled() -> None:
    played = play(['Go.\n```\nclick("e81")\n```', 'answer("42")'])  # the page has e1 alone: the 8 is not allowed
    assert played.result.turn_records[0].reply == 'Go.\n```\nclick("e1")\n```'
    assert played.env.steps[0]["args"] == {"id": "e1"}


def test_a_reply_cut_before_its_action_is_told_so() -> None:
    played = play([("Let me think", False), 'answer("42")'], max_new_tokens=99)
    assert "cut at 99 tokens" in played.session.fed[3][1]
    assert played.session.fed[3][1].startswith("<|im_end|>\n<|im_start|>user\n")


def test_actions_before_a_faulty_one_are_done_and_the_fault_is_told() -> None:
    played = play(['click("e1")\nsubmit("e2")', 'answer("42")'])
    assert [step["name"] for step in played.env.steps] == ["click", "answer"]
    assert "There is no action submit." in played.session.fed[3][1]
    assert "page changed" in played.session.fed[3][1]


def test_a_repeated_action_without_effect_is_warned_then_ended() -> None:
    played = play(['click("e2")'] * 5)
    assert (played.result.stop_reason, played.result.turns) == ("repeated_action", 3)
    fed = [text for _, text in played.session.fed]
    warning = prompts.repeated([{"name": "click", "args": {"id": "e2"}}], useless=True)
    assert 'click("e2")' in warning
    assert warning not in fed[3]
    assert warning in fed[4]


def test_going_back_and_forth_between_useless_actions_ends_too() -> None:
    played = play(['click("e2")', 'click("e3")'] * 4)
    assert (played.result.stop_reason, played.result.turns) == ("repeated_action", 5)


def test_actions_that_leave_the_page_as_it_was_are_without_effect() -> None:
    env = FakeEnv()
    env.step = lambda action: (env._obs("the cursor is in [e1]"), 0.0, False, False, {})  # type: ignore[method-assign]
    played = play(['click("e2")'] * 5, env)
    assert (played.result.stop_reason, played.result.turns) == ("repeated_action", 3)


def test_waiting_is_no_repetition() -> None:
    played = play(["wait(1)"] * 4, max_turns=4)
    assert played.result.stop_reason == "repeated_action", "the page says nothing changed"
    env = FakeEnv()
    env.step = lambda action: (env._obs("waited 1 s"), 0.0, False, False, {})  # type: ignore[method-assign]
    assert play(["wait(1)"] * 4, env, max_turns=4).result.stop_reason == "step_limit"


def test_going_round_in_circles_is_warned_of_but_not_the_end() -> None:
    env = FakeEnv()

    def toggle(action: dict[str, Any]) -> Any:
        env.text = 'checkbox "A" [e1]' if "checked" in env.text else 'checkbox "A" [e1] (checked)'
        return env._obs("page changed"), 0.0, False, False, {}

    env.step = toggle  # type: ignore[method-assign]
    played = play(['click("e1")'] * 6, env, max_turns=6)
    warning = prompts.repeated([{"name": "click", "args": {"id": "e1"}}], useless=False)
    warned = [warning in text for _, text in played.session.fed[3:]]
    assert (played.result.stop_reason, warned) == ("step_limit", [False, False, False, True, True])


def test_actions_beyond_the_limit_are_told_as_not_done() -> None:
    many = "\n".join(['click("e1")'] * MAX_ACTIONS + ['click("e2")'])
    played = play([many, 'answer("42")'])
    assert len(played.env.steps) == MAX_ACTIONS + 1
    assert f'only {MAX_ACTIONS} actions run in a turn: click("e2")' in played.session.fed[3][1]
    assert played.result.turn_records[0].extra == [{"name": "click", "args": {"id": "e2"}}]
    away = play(['click("e4")\n' + many, 'answer("42")'])
    assert "run in a turn:" not in away.session.fed[3][1]
    assert len(away.result.turn_records[0].skipped) == MAX_ACTIONS + 1


def test_an_action_with_effect_may_be_repeated() -> None:
    played = play(['click("e1")'] * 9, max_turns=9)
    assert (played.result.stop_reason, played.result.turns, played.env.pages) == ("step_limit", 9, 9)
    assert "last turn" in played.session.fed[-1][1]
    assert not any("last turn" in text for _, text in played.session.fed[:-1])


def test_no_turns_allowed() -> None:
    assert play([], max_turns=0).result.stop_reason == "step_limit"


@pytest.mark.parametrize("moment", ["turn_start", "token", "reply", "action", "turn_end", "end"])
def test_ctrl_c_at_any_moment_keeps_every_record(moment: str) -> None:
    def interrupt(event: dict[str, Any]) -> None:
        if event["type"] == moment and event.get("turn", 2) == 2 and (moment != "token" or seen()):
            raise KeyboardInterrupt

    def seen() -> bool:
        return len([event for event in collected if event["type"] == "turn_start"]) == 2

    collected: list[dict[str, Any]] = []

    def listen(event: dict[str, Any]) -> None:
        collected.append(event)
        interrupt(event)

    result = play(['click("e1")', 'answer("42")'], on_event=listen).result
    assert (result.stop_reason, result.turns) == ("interrupted", 2)
    assert result.turn_records[0].complete
    assert result.turn_records[1].complete is (moment in ("turn_end", "end"))
    if moment == "token":
        assert result.turn_records[1].reply == "a"
    assert collected[-1]["type"] == "end"


@pytest.mark.parametrize("place", ["reset", "step", "generate"])
def test_ctrl_c_inside_the_parts(place: str) -> None:
    env = FakeEnv(raises=KeyboardInterrupt() if place == "step" else None)
    if place == "reset":
        env.reset = lambda **_: (_ for _ in ()).throw(KeyboardInterrupt())  # type: ignore[method-assign]
    played = play([KeyboardInterrupt() if place == "generate" else 'click("e1")'], env)
    assert played.result.stop_reason == "interrupted"
    assert played.result.turns == (0 if place == "reset" else 1)


def test_a_crash_in_the_middle_is_a_result_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    played = play(['click("e1")'], FakeEnv(raises=RuntimeError("the worker\nis gone")))
    assert played.result.stop_reason == "error"
    assert played.result.error == "RuntimeError: the worker is gone"
    assert not played.result.success and played.result.turns == 1
    assert "the episode failed" in caplog.text


def test_a_failed_reset_is_raised() -> None:
    env = FakeEnv()

    def broken(**_: Any) -> Any:
        raise OSError("no Chromium")

    env.reset = broken  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no Chromium"):
        play([], env)


def test_two_episodes_do_not_share_anything() -> None:
    first = play(['click("e2")'] * 2, max_turns=2)
    second = play(['click("e2")'] * 2, max_turns=2)
    assert first.session.tokens == second.session.tokens
    assert first.result.stop_reason == second.result.stop_reason == "step_limit"


def test_a_thought_that_runs_on_is_led_into_a_block() -> None:
    played = play([("on and " * 60, False), 'answer("42")'], leads=['click("e1")\n```'], max_new_tokens=256)
    record = played.result.turn_records[0]
    assert record.reply == ("on and " * 60)[:64] + '\n```\nclick("e1")\n```'
    assert (played.session.retracted, record.reply_tokens) == ([], 64 + len('click("e1")\n```'))
