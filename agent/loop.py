"""One episode: page in, reply out, actions carried out, until something says stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from agent import prompts
from agent.dialect import Dialect, PageDialect, Remarks
from agent.parser import ParsedReply
from agent.records import ActionRecord, EpisodeResult, StopReason, TurnRecord
from agent.reply import SessionLike
from agent.tool_dialect import ToolDialect
from agent.transcript import Piece

MAX_PARSE_FAILURES = 3
MAX_USELESS = 3  # by default; times the same actions may be without effect on the same page
_log = logging.getLogger(__name__)

Event = Callable[[dict[str, Any]], None]


class EnvLike(Protocol):
    """What the loop needs of an environment: gymnasium's ``reset`` and ``step``."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]: ...

    def step(self, action: dict[str, Any]) -> tuple[Any, Any, bool, bool, dict[str, Any]]: ...


def run_episode(
    env: EnvLike,
    session: SessionLike,
    tokenizer: Any,
    *,
    seed: int,
    max_turns: int = 30,
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    on_event: Event | None = None,
    clock: Callable[[], float] = time.perf_counter,
    max_repeats: int | None = None,
) -> EpisodeResult:
    """Play one episode in a fresh session.

    ``session`` is a ``confkv`` session, or :class:`agent.reprefill.Reprefill` to feed the whole conversation anew each
    turn. ``clock`` gives the seconds that turns are timed by.

    An environment that has a ``finish`` (one that is scored when all is over) is asked once, at the end: with the
    answer, or with None where the episode ended otherwise. What the loop itself says is never an answer.
    ``max_repeats`` is how often the same actions may be without effect on one page: by default what the environment
    says (its ``max_repeats``), else 3.

    Ctrl-C gives a result with stop reason "interrupted" and every record so far; a failure after the first
    page gives "error". An error of the environment's reset is raised, as nothing was played.
    """
    repeats = max_repeats or getattr(env, "max_repeats", None) or MAX_USELESS
    episode = _Episode(env, session, tokenizer, max_turns, max_new_tokens, temperature, seed, on_event, clock, repeats)
    try:
        episode.reset()
        reason = episode.play()
        episode.score(reason)
    except KeyboardInterrupt:
        reason = "interrupted"
    except Exception as error:
        if not episode.began:
            raise
        _log.exception("the episode failed")
        reason = "error"
        episode.result.error = f"{type(error).__name__}: {error}".replace("\n", " ")
    return episode.finish(reason)


class _Episode:
    """The state of one episode between turns."""

    def __init__(
        self,
        env: EnvLike,
        session: SessionLike,
        tokenizer: Any,
        max_turns: int,
        max_new_tokens: int,
        temperature: float,
        seed: int,
        on_event: Event | None,
        clock: Callable[[], float],
        max_repeats: int,
    ) -> None:
        self.clock, self.max_repeats = clock, max_repeats
        self.env, self.session = env, session
        self.tokenizer = tokenizer
        self.max_turns, self.max_new_tokens = max_turns, max_new_tokens
        self.temperature, self.seed = temperature, seed
        self.emit: Event = on_event or (lambda event: None)
        self.result = EpisodeResult()
        self.began = False
        self.obs: Mapping[str, Any] = {}
        self.last_token: int | None = None
        self.failures = 0
        self.tried: dict[str, list[bool]] = {}  # page and actions -> each time, whether they were without effect
        self.repeats: str | None = None  # what to say about it
        self.last_calls = ""

    def reset(self) -> None:
        """Open the task; an environment that tells of tools is spoken to in calls."""
        self.dialect: Dialect = PageDialect(self.tokenizer)
        self.obs, info = self.env.reset(seed=self.seed)
        if info.get("tools"):
            self.dialect = ToolDialect(self.tokenizer, info)
        self.began = True
        self.result.goal = str(self.obs["goal"])

    def play(self) -> StopReason:
        """Turns until one of them says stop."""
        pieces = self.dialect.start(self.obs, self.max_turns)
        for number in range(1, self.max_turns + 1):
            started = self.clock()
            record = TurnRecord(number, str(self.obs["url"]), str(self.obs["title"]), str(self.obs["text"]))
            self.result.turn_records.append(record)
            try:
                parsed, cut = self._think(record, pieces)
                reason = self._act(record, parsed)
                record.complete = True
            finally:
                record.seconds = self.clock() - started
            self.emit({"type": "turn_end", "turn": number, "stats": self.session.stats})
            if reason:
                return reason
            pieces = self._following(record, cut, self.max_turns - number)
        return "step_limit"

    def score(self, reason: StopReason) -> None:
        """Ask an environment that scores at the end; an episode that an error ended has its score already."""
        ask = getattr(self.env, "finish", None)
        if ask is None or reason == "error":
            return
        self.result.scored(*ask(self.result.answer))

    def finish(self, reason: StopReason) -> EpisodeResult:
        """The result, told to the listener once; Ctrl-C while it listens is still an interruption."""
        result = self.result
        result.stop_reason = reason
        try:
            self.emit({"type": "end", "stop_reason": reason, "success": result.success, "result": result})
        except KeyboardInterrupt:
            result.stop_reason = "interrupted"
        return result

    def _think(self, record: TurnRecord, pieces: list[Piece]) -> tuple[ParsedReply, bool]:
        """Feed the message, sample a reply, read it: (what it asks for, whether the token limit cut it)."""
        record.prompt = "".join(piece.text for piece in pieces)
        self.emit({"type": "turn_start", "turn": record.turn, "obs": self.obs, "prompt": record.prompt})
        fed_from = self.clock()

        def on_token(token: Any) -> None:
            if record.first_token_seconds is None:
                record.first_token_seconds = self.clock() - fed_from
            self.emit({"type": "token", "token": token})

        for piece in pieces:
            self.session.extend(piece.ids, segment=piece.segment)
            record.prompt_tokens += len(piece.ids)
        reply = self.dialect.reply(self.session, self.obs)
        seed = self.seed * 100_003 + record.turn
        try:
            reply.sample(self.max_new_tokens, self.temperature, seed, on_token)
        finally:
            self.last_token = reply.last
            record.reply, record.reply_tokens = reply.text, reply.count
            record.confidence_mean = reply.confidence_mean
        parsed = self.dialect.parse(record.reply)
        record.thought, record.parse_error, record.extra = parsed.thought, parsed.error, parsed.extra
        self.emit(
            {
                "type": "reply",
                "turn": record.turn,
                "text": record.reply,
                "actions": parsed.actions,
                "error": parsed.error,
                "prompt_tokens": record.prompt_tokens,
                "first_token_seconds": record.first_token_seconds,
            }
        )
        return parsed, reply.cut

    def _act(self, record: TurnRecord, parsed: ParsedReply) -> StopReason | None:
        """Carry out the actions in order, up to the first that fails, leaves the page or ends the episode."""
        if not parsed.actions:
            self.failures += 1
            return "parse_failures" if self.failures == MAX_PARSE_FAILURES else None
        self.failures = 0
        page = self._page()
        for index, action in enumerate(parsed.actions):
            url = self.obs["url"]
            self.obs, reward, terminated, truncated, info = self.env.step(action)
            done = _action_record(action, self.obs, float(reward), info)
            record.actions.append(done)
            self.result.reward, self.result.raw_reward = done.reward, done.raw_reward
            self.result.success = done.reward >= 1.0
            if action["name"] == self.dialect.answer:
                self.result.answer = str(action["args"]["text"])
            self.emit(
                {
                    "type": "action",
                    "turn": record.turn,
                    "action": action,
                    "obs": self.obs,
                    "reward": done.reward,
                    "info": info,
                }
            )
            if action["name"] == self.dialect.answer:
                return "answer"
            if terminated or truncated:
                if truncated and not terminated and done.error:
                    self.result.error = done.error
                    return "error"
                return "done"
            if done.error or self.obs["url"] != url or done.effect.startswith("navigated"):
                record.skipped = parsed.actions[index + 1 :] + record.extra
                record.extra = []
                break
        return self._repeated(page, record.actions)

    def _page(self) -> str:
        return f"{self.obs['url']}\n{self.obs['text']}"

    def _repeated(self, page: str, actions: Sequence[ActionRecord]) -> StopReason | None:
        """Look for actions done before: warned of, and ``max_repeats`` times without effect on one page the end.

        Without effect: each action failed or changed nothing, or the page is after all of them what it was before.
        """
        calls = repr([done.action for done in actions])
        again, self.last_calls = calls == self.last_calls, calls
        waits = all(done.action["name"] == "wait" for done in actions)
        useless = all(done.without_effect for done in actions) or (self._page() == page and not waits)
        tried = self.tried.setdefault(page + "\0" + calls, [])
        tried.append(useless)
        self.repeats = None
        if (again and useless) or (len(tried) > 1 and not waits):
            self.repeats = prompts.repeated([done.action for done in actions], useless)
        return "repeated_action" if sum(tried) >= self.max_repeats else None

    def _following(self, record: TurnRecord, cut: bool, turns_left: int) -> list[Piece]:
        problem = record.parse_error
        if problem and cut and not record.actions:
            problem = prompts.truncated(self.max_new_tokens)
        warning, self.repeats = self.repeats, None
        return self.dialect.following(record, self.obs, self.last_token, Remarks(problem, warning, turns_left))


def _action_record(
    action: dict[str, Any], obs: Mapping[str, Any], reward: float, info: Mapping[str, Any]
) -> ActionRecord:
    return ActionRecord(
        action=action,
        effect=str(obs["effect"]),
        error=str(obs["error"]),
        reward=reward,
        raw_reward=float(info.get("raw_reward", reward)),
        seconds=float(info.get("seconds", 0.0)),
        url=str(obs["url"]),
        title=str(obs["title"]),
    )
