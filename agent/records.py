"""What an episode leaves: one record a turn, one an action, and the result."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

StopReason = Literal["answer", "done", "parse_failures", "repeated_action", "step_limit", "interrupted", "error"]


@dataclass
class ActionRecord:
    """One action carried out. ``seconds`` are the environment's; ``url`` and ``title`` are those after it."""

    action: dict[str, Any]
    effect: str = ""
    error: str = ""
    reward: float = 0.0
    raw_reward: float = 0.0
    seconds: float = 0.0
    url: str = ""
    title: str = ""

    @property
    def without_effect(self) -> bool:
        """Whether the environment says that it failed or changed nothing."""
        return bool(self.error) or "nothing changed" in self.effect


@dataclass
class TurnRecord:
    """One turn: the page it saw (``observation``), the new text fed (``prompt``), the reply, what was done.

    ``skipped`` actions were not done because one before them failed or left the page, ``extra`` ones because a turn
    runs no more.
    ``complete`` is False for a turn that was interrupted. ``prompt_tokens`` counts the ids fed,
    ``reply_tokens`` those sampled; ``confidence_mean`` is over the latter (None if there were none).
    ``first_token_seconds`` runs from where the message begins to be fed to the first sampled token, None without one;
    ``seconds`` is the whole turn. Both are wall time, by the clock that the episode was given.
    """

    turn: int
    url: str = ""
    title: str = ""
    observation: str = ""
    prompt: str = ""
    prompt_tokens: int = 0
    reply: str = ""
    reply_tokens: int = 0
    confidence_mean: float | None = None
    thought: str = ""
    parse_error: str | None = None
    extra: list[dict[str, Any]] = field(default_factory=list)
    actions: list[ActionRecord] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    complete: bool = False
    first_token_seconds: float | None = None
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


@dataclass
class EpisodeResult:
    """How an episode ended; ``error`` is one line when ``stop_reason`` is "error".

    ``score_reason`` says why the reward is what it is, where an environment scored at the end and tells.
    """

    success: bool = False
    reward: float = 0.0
    raw_reward: float = 0.0
    stop_reason: StopReason = "interrupted"
    turn_records: list[TurnRecord] = field(default_factory=list)
    answer: str | None = None
    error: str | None = None
    goal: str = ""
    score_reason: str = ""

    def scored(self, raw: float, reason: str) -> None:
        """Take in the verdict of an environment that scores at the end: solved only by the full raw reward, 1."""
        self.raw_reward, self.score_reason = float(raw), reason
        self.success = raw == 1
        self.reward = float(self.success)

    @property
    def turns(self) -> int:
        """Turns begun, the last of which may be incomplete."""
        return len(self.turn_records)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; ``turns`` included."""
        return asdict(self) | {"turns": self.turns}
