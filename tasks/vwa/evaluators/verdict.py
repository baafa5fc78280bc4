"""What evaluators give and take: a verdict, a judge of answers, a model that looks at pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Verdict:
    """``score`` is 0 or 1; ``reason`` says in one line what was missing ("" where nothing was)."""

    score: float
    reason: str = ""

    @classmethod
    def of(cls, met: bool, otherwise: str) -> Verdict:
        """1 if ``met``, else 0 with a reason."""
        return cls(1.0) if met else cls(0.0, otherwise)


class CannotScore(Exception):
    """What scoring needs is not there; the message is one line. The task counts as 0 and says so."""


class Judge(Protocol):
    """Decides what words alone cannot: whether two texts mean the same."""

    def same_answer(self, question: str, reference: str, answer: str) -> bool:
        """Whether ``answer`` to ``question`` means what ``reference`` says."""

    def same_obstacle(self, task: str, reference: str, answer: str) -> bool:
        """Whether ``answer`` tells why ``task`` cannot be done, as ``reference`` does."""


class Vqa(Protocol):
    """Answers questions about pictures."""

    def ask(self, images: list[bytes], question: str) -> list[str]:
        """One answer an image."""


@dataclass(frozen=True)
class Helpers:
    """Models that a deterministic evaluation does without."""

    judge: Judge | None = None
    vqa: Vqa | None = None

    def need_judge(self, for_what: str) -> Judge:
        """The judge.

        Raises:
            CannotScore: none is configured.
        """
        if self.judge is None:
            raise CannotScore(f"{for_what} needs a judge and none is configured")
        return self.judge

    def need_vqa(self, for_what: str) -> Vqa:
        """The model for questions about pictures.

        Raises:
            CannotScore: none is configured.
        """
        if self.vqa is None:
            raise CannotScore(f"{for_what} needs a model that answers questions about pictures; none is configured")
        return self.vqa
