"""Asking about a haystack: the prompt, one prefill, and a question in the session or in a fork of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from confkv.policies import Policy
from confkv.session import Session
from tasks.bench.haystack import Case
from tasks.bench.model import Model
from tasks.bench.text import encode

#: What a haystack, and what a question may be to the cache; see ``Session.extend``.
SEGMENTS = ("text", "observation")
QUESTIONS = ("goal", "text", "observation")
_MARK = "\x1fhaystack\x1f"
_PREFACE = "Read the text and answer the question after it.\n\n"


def prompt(tokenizer: Any, case: Case) -> tuple[list[int], list[int]]:
    """Token ids up to the end of the haystack, and from the question to where the answer begins.

    With a chat template both are one user turn; without, plain text that ends in "Answer:".
    """
    ask = f"\n\n{case.question}"
    if getattr(tokenizer, "chat_template", None):
        turn = [{"role": "user", "content": f"{_PREFACE}{_MARK}{ask}"}]
        whole = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        head, _, tail = whole.partition(_MARK)
    else:
        head, tail = f"{tokenizer.bos_token or ''}{_PREFACE}", f"{ask}\nAnswer:"
    return encode(tokenizer, head + case.haystack), encode(tokenizer, tail)


@dataclass
class Read:
    """A haystack that was prefilled under a policy.

    Attributes:
        session: at the end of the haystack.
        tokens: fed so far. seconds: wall time that they took.
    """

    session: Session
    tokens: int
    seconds: float


def read(model: Model, policy: Policy, case: Case, segment: str) -> Read:
    """Prefill the case's haystack."""
    clock = time.perf_counter()
    before, _ = prompt(model.tokenizer, case)
    session = model.engine(policy).session()
    session.extend(before, segment)
    return Read(session, len(before), time.perf_counter() - clock)


def ask(
    model: Model, haystack: Read, case: Case, question: str, new_tokens: int, *, again: bool
) -> tuple[str, int, Any]:
    """Answer greedily: the answer, the prompt's tokens, the session's statistics, the haystack's prefill among them.

    Args:
        question: what the question is to the cache.
        again: other questions follow about the same haystack, so a fork is asked.
    """
    _, after = prompt(model.tokenizer, case)
    session = haystack.session.fork() if again else haystack.session
    session.extend(after, question)
    answer = "".join(token.text for token in session.generate(new_tokens, temperature=0.0))
    return answer, haystack.tokens + len(after), session.stats
