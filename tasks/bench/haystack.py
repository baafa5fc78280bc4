"""Needles in a haystack of real text: retrieval of a random key at a known depth, and variants after RULER.

Four kinds: ``single`` (one key), ``multikey`` (the key asked for among others alike), ``multiquery`` (a key at each
depth of one haystack, each asked for by itself) and ``tracking`` (a chain of assignments that has to be followed).
RULER: https://arxiv.org/abs/2404.06654.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.errors import TaskError

KINDS = ("single", "multikey", "multiquery", "tracking")
#: Kinds whose depths lie in one haystack, which is prefilled once for all of them.
SHARED = ("multiquery",)
#: Keys beside the one asked for in ``multikey``; links of the chain, and chains, in ``tracking``.
OTHERS, LINKS, CHAINS = 3, 3, 2
PLACES = (
    "lighthouse", "observatory", "granary", "chapel", "tannery", "aqueduct", "foundry", "orchard", "ferry house",
    "signal tower", "quarry", "weighing house", "ropewalk", "boathouse", "printing shop", "ice cellar",
)  # fmt: skip
SENTENCE = re.compile(r"[^.!?]+(?:[.!?]+[\"')\]]*\s*|$)")

Count = Callable[[str], int]


@dataclass(frozen=True)
class Case:
    """One question about one haystack.

    Attributes:
        haystack: the text with its needles.
        question: what is asked after it.
        expected: all of these must be in the answer, as whole words.
        forbidden: none of these may be.
        key_start: character at which the needle that is asked for (the chain's first) begins.
    """

    haystack: str
    question: str
    expected: tuple[str, ...]
    forbidden: tuple[str, ...]
    key_start: int


def sentences(text: str) -> list[str]:
    """The text in sentences, each with the blank after it; joined, they are the text."""
    return [piece for piece in SENTENCE.findall(text) if piece]


class Haystacks:
    """Haystacks of given lengths out of one text. ``count`` gives the tokens of a piece."""

    def __init__(self, text: str, count: Count) -> None:
        self._count = count
        self._sentences = sentences(text)
        self._tokens = [count(piece) for piece in self._sentences]

    def case(self, kind: str, length: int, depth: float, seed: int) -> Case:
        """A case of about ``length`` tokens (cut at a sentence's end, never above) whose needle lies at ``depth``.

        Args:
            depth: 0 is the beginning, 1 the end; in between, at the sentence border nearest to it, in tokens.
            seed: of key, names, and the places of what is not asked for.

        Raises:
            TaskError: unknown kind, or a text too short for the length.
        """
        if kind not in KINDS:
            raise TaskError(f"unknown kind of needle '{kind}'; use one of {', '.join(KINDS)}")
        if kind in SHARED:
            return self.cases([depth], length, seed)[0]
        rng = random.Random(f"{kind}/{length}/{depth}/{seed}")
        needles, question, expected, forbidden = _NEEDLES[kind](rng)
        placed = []
        for needle, share in needles:
            at = depth + (1 - depth) * share if kind == "tracking" else depth if share == 0 else rng.random()
            placed.append((at, needle))
        haystack, starts = self._with(placed, length)
        return Case(haystack, question, expected, forbidden, starts[0])

    def cases(self, depths: Sequence[float], length: int, seed: int) -> list[Case]:
        """A case for each depth, all about the same haystack: every depth has a place and a key of its own.

        Args:
            depths, length, seed: as for :meth:`case`; another set of depths is another haystack.

        Raises:
            TaskError: more depths than there are places, or a text too short for the length.
        """
        if len(depths) > len(PLACES):
            raise TaskError(f"--depths has {len(depths)} depths and multiquery takes {len(PLACES)} at most; name fewer")
        rng = random.Random(f"multiquery/{length}/{list(depths)}/{seed}")
        places, keys = rng.sample(PLACES, len(depths)), _keys(rng, len(depths))
        pairs = list(zip(places, keys, strict=True))
        haystack, starts = self._with([(d, _sentence(*pair)) for d, pair in zip(depths, pairs, strict=True)], length)
        return [
            Case(haystack, _ask(place), (key,), tuple(other for other in keys if other != key), start)
            for (place, key), start in zip(pairs, starts, strict=True)
        ]

    def _with(self, placed: Sequence[tuple[float, str]], length: int) -> tuple[str, list[int]]:
        """The text with needles, each before the sentence nearest to its depth, and the character each begins at."""
        room = length - sum(self._count(needle) for _, needle in placed)
        if room < 1:
            raise TaskError(f"a haystack of {length} tokens has no room for its needles; use a larger --lengths")
        pieces = self._upto(room, length)
        ends = [0]
        for i in range(len(pieces)):
            ends.append(ends[-1] + self._tokens[i])
        before = [_nearest(ends, at * ends[-1]) for at, _ in placed]
        out, starts = "", [0] * len(placed)
        for i in range(len(pieces) + 1):
            for which, (_, needle) in enumerate(placed):
                if before[which] == i:
                    starts[which] = len(out)
                    out += needle
            out += pieces[i] if i < len(pieces) else ""
        blank = len(out) - len(out.lstrip())
        return out.strip(), [start - blank for start in starts]

    def _upto(self, room: int, length: int) -> list[str]:
        total = 0
        for i, tokens in enumerate(self._tokens):
            if total + tokens > room:
                if i == 0:
                    raise TaskError(f"the text's first sentence is longer than {length} tokens; use a larger --lengths")
                return self._sentences[:i]
            total += tokens
        raise TaskError(f"the text has {total:,} tokens and a haystack of {length:,} is asked for; give a longer text")


def _nearest(ends: Sequence[int], at: float) -> int:
    return min(range(len(ends)), key=lambda i: abs(ends[i] - at))


Needles = tuple[list[tuple[str, float]], str, tuple[str, ...], tuple[str, ...]]


def _key(rng: random.Random) -> str:
    return str(rng.randrange(1_000_000, 10_000_000))


def _keys(rng: random.Random, count: int) -> list[str]:
    keys: list[str] = []
    while len(keys) < count:
        if (key := _key(rng)) not in keys:
            keys.append(key)
    return keys


def _sentence(place: str, key: str) -> str:
    return f"The number kept at the {place} is {key}. "


def _single(rng: random.Random) -> Needles:
    place, key = rng.choice(PLACES), _key(rng)
    return [(_sentence(place, key), 0.0)], _ask(place), (key,), ()


def _multikey(rng: random.Random) -> Needles:
    places = rng.sample(PLACES, OTHERS + 1)
    keys = _keys(rng, len(places))
    needles = [(_sentence(p, k), 0.0 if i == 0 else 0.5) for i, (p, k) in enumerate(zip(places, keys, strict=True))]
    return needles, _ask(places[0]), (keys[0],), tuple(keys[1:])


def _tracking(rng: random.Random) -> Needles:
    letters = rng.sample("ABCDEFGHJKLMNPQRSTUVWXYZ", LINKS * CHAINS)
    names = [f"{letter}{rng.randrange(10, 100)}" for letter in letters]
    values = rng.sample(range(10_000, 100_000), CHAINS)
    needles: list[tuple[str, float]] = []
    for link in range(LINKS):
        for chain in range(CHAINS):
            name = names[chain * LINKS + link]
            source = f"{values[chain]}" if link == 0 else f"the value of {names[chain * LINKS + link - 1]}"
            needles.append((f"Let {name} be {source}. ", link / LINKS))
    asked, other = tuple(names[:LINKS]), tuple(names[LINKS:])
    question = f"Which names stand for the value {values[0]}, directly or through other names? List all of them."
    return needles, question, asked, other


def _ask(place: str) -> str:
    return f"What is the number kept at the {place}? Answer with the number alone."


_NEEDLES: dict[str, Callable[[random.Random], Needles]] = {
    "single": _single,
    "multikey": _multikey,
    "tracking": _tracking,
}


def correct(case: Case, answer: str) -> bool:
    """Exact: every expected word is in the answer as a whole word, and none of the forbidden ones."""

    def there(word: str) -> bool:
        return re.search(rf"(?<![0-9A-Za-z]){re.escape(word)}(?![0-9A-Za-z])", answer) is not None

    return all(map(there, case.expected)) and not any(map(there, case.forbidden))
