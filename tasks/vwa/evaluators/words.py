"""Text against text: equality, words and phrases that must or must not be there, numbers.

A reference of one word is looked for among the words of the text ("red" is not in "bored"), a longer one anywhere.
Words are those of the Penn Treebank: punctuation, currency signs and brackets stand alone, numbers with separators and
hyphenated words are whole.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable

from tasks.vwa.schema import OR

_QUOTES = "'\""
_ALONE = re.compile(r"[;@#$%&?!*\[\](){}<>«»“”„‘’`\"]|\.{2,}|--+|[,:](?!\d)")
_CLITIC = re.compile(r"(?<=[^\s'])('(?:ll|re|ve|s|m|d)|n't)(?!\w)")
_EDGES = re.compile(r"(?<!\S)'(?=\w)(?!(?:ll|re|ve|s|m|d)\b)|(?<=[^\s'])'(?!\S)")  # single quotes around words
_STOP = re.compile(r"(?<=[^\s.])\.(?=['\s]|$)")  # the full stop that ends a word
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\w|[.,]\d)")
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip


def clean(text: str) -> str:
    """Lower case, without white space and quotes around it."""
    text = text.strip()
    while len(text) > 1 and text[0] == text[-1] and text[0] in _QUOTES:
        text = text[1:-1].strip()
    return text.lower()


def words(text: str) -> list[str]:
    """The words of a text, each punctuation mark a word of its own."""
    text = _ALONE.sub(lambda found: f" {found[0]} ", text)
    text = _STOP.sub(" . ", text)
    return _CLITIC.sub(r" \1", _EDGES.sub(" ' ", text)).split()


def exact_match(reference: str, text: str) -> bool:
    """Equal but for case and what stands around it."""
    return clean(reference) == clean(text)


def includes(reference: str, text: str) -> bool:
    """Whether the text holds the reference: as a word if it is one, else as a run of characters."""
    wanted, held = clean(reference), clean(text)
    if len(words(wanted)) == 1:
        return wanted in words(held)
    return wanted in held


def includes_any(reference: str, text: str) -> bool:
    """Whether one of the alternatives of the reference (`` |OR| ``) is held."""
    return any(includes(alternative, text) for alternative in reference.split(OR))


def missing(references: Iterable[str], text: str) -> list[str]:
    """The references that the text does not hold."""
    return [reference for reference in references if not includes_any(reference, text)]


def present(references: Iterable[str], text: str) -> list[str]:
    """The references that the text holds."""
    return [reference for reference in references if includes(reference, text)]


def number(text: str) -> float | None:
    """The number in a text ("21 inches", "$1,200"); None where there is none, or more than one."""
    found = _NUMBER.findall(text)
    return float(found[0].replace(",", "")) if len(found) == 1 else None


def satisfies(value: float, condition: str) -> bool:
    """Whether a number meets a condition such as ``>= 12`` or ``< 5 |OR| > 9``.

    Raises:
        ValueError: the condition is not one.
    """
    return any(_satisfies(value, alternative) for alternative in condition.split(OR))


def _satisfies(value: float, condition: str) -> bool:
    for sign, compare in _COMPARISONS.items():
        if condition.strip().startswith(sign):
            return compare(value, float(condition.strip().removeprefix(sign)))
    raise ValueError(f"{condition!r} is not a condition; write it as >= 12")
