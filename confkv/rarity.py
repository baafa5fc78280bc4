"""How much a word says: the rare ones (names, numbers, codes) are what has to be recalled to the letter."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

#: Mandelbrot's shift of the ranks: keeps the first few from having most of the probability.
_SHIFT = 2.7
#: Tokens of one word at most: text without spaces would make one word of a page.
_LONGEST = 16
#: A float's bits and an origin make one number; origins are kept as float32, so they stay below this.
_ORIGINS = 1 << 24


class Piece(NamedTuple):
    """What a token id is to words: its information in nats, and whether it goes on with the word before and after."""

    nats: float
    joins: bool
    open: bool


class Lexicon:
    """Pieces of a vocabulary, known from nothing but the tokenizer. Shared by the sessions of an engine.

    Merges of a BPE vocabulary are in order of frequency, so an id is nearly a rank, and ranks are distributed as by
    Zipf and Mandelbrot: ``p(id) = 1 / ((id + 2.7) H)``, H such that the vocabulary sums to 1. A piece says ``-log p``.
    Pieces without a letter or digit, and special tokens, say nothing; a piece that starts with one, without a space
    before it, goes on with the word. Without a tokenizer every id is a word.
    """

    def __init__(self, tokenizer: Any, vocabulary: int) -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(getattr(tokenizer, "all_special_ids", ()))
        self._norm = math.log(sum(1.0 / (i + _SHIFT) for i in range(vocabulary)))
        self._pieces: dict[int, Piece] = {}

    def piece(self, token: int) -> Piece:
        """What ``token`` is."""
        if token not in self._pieces:
            self._pieces[token] = self._look_up(token)
        return self._pieces[token]

    def _look_up(self, token: int) -> Piece:
        nats = math.log(token + _SHIFT) + self._norm
        if self._tokenizer is None:
            return Piece(nats, False, False)
        text: str = self._tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        inside = [char.isalnum() or char == "\ufffd" for char in text]  # \ufffd: a part of a character
        if token in self._special or not any(inside):
            return Piece(0.0, False, False)
        # Some decoders drop the space that a piece starts with.
        spaced = str(self._tokenizer.convert_ids_to_tokens(token)).startswith(("\u2581", "\u0120"))
        return Piece(nats, inside[0] and not spaced, inside[-1])


class Rarity:
    """How rare each token of one session is: the information of its word, shared among the word's occurrences so far.

    Nats of a word's pieces are added, so one that the vocabulary has no piece for, digit by digit or in fragments, says
    much. Dividing by occurrences drops what every page repeats, long as it may be, and spends one share on a name
    however often it is written. All tokens of a word are equally rare. So is the token after a word of several, where
    its own word is less so: else a number would be held and what tells its end be gone, and more digits be made up.
    All of it follows from the tokens alone: a restored session reads them again.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        #: tokens read
        self.seen = 0
        self._words: dict[tuple[int, ...], int] = {}
        self._last: tuple[int, ...] = ()
        self._nats: list[float] = []
        self._count: list[int] = []
        #: word of each token; of each word how rare it is, and the same as a number that leaves room for an origin
        self._word_of = np.zeros(0, dtype=np.int64)
        self._rare = np.zeros(0, dtype=np.float32)
        self._rank = np.zeros(0, dtype=np.int64)
        self._copies: tuple[Tensor, Tensor] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that choosing the rarest takes on the device, beside the metadata of slots."""
        return 8 * (self.seen + len(self._nats))

    def read(self, tokens: list[int], end: int) -> None:
        """Read the session's tokens up to ``end``; those read before are not read again."""
        if end <= self.seen:
            return
        self._copies = None
        if end > self._word_of.shape[0]:
            self._word_of = _grown(self._word_of, end)
        for origin in range(self.seen, end):
            self._push(tokens[origin], origin)
        self.seen = end

    def _push(self, token: int, origin: int) -> None:
        piece, last = self.lexicon.piece(token), self._last
        start, closed = origin, None
        if piece.joins and last and self.lexicon.piece(last[-1]).open and len(last) < _LONGEST:
            # What was a word is the beginning of a longer one.
            start -= len(last)
            self._add(self._words[last], -1)
            self._last = (*last, token)
        else:
            closed = self._words[last] if len(last) > 1 else None
            self._last = (token,)
        word = self._words.setdefault(self._last, len(self._nats))
        if word == len(self._nats):
            self._nats.append(sum(self.lexicon.piece(x).nats for x in self._last))
            self._count.append(0)
            if word == self._rare.shape[0]:
                self._rare, self._rank = _grown(self._rare, word + 1), _grown(self._rank, word + 1)
        self._add(word, 1)
        self._word_of[start : origin + 1] = word
        if closed is not None and self._rare[closed] > self._rare[word]:
            self._word_of[origin] = closed  # unless it turns out to begin a word of several itself

    def _add(self, word: int, count: int) -> None:
        self._count[word] += count
        self._rare[word] = self._nats[word] / max(self._count[word], 1)
        # Bits of floats that are not negative are ordered as they are.
        self._rank[word] = int(self._rare[word].view(np.int32)) * _ORIGINS

    def levels(self) -> Tensor:
        """Rarity of every token read, in nats: ``[seen]`` float32 in host memory, >= 0."""
        return torch.from_numpy(self._rare[self._word_of[: self.seen]])

    def _tables(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Word of each token, and rank of each word, on a device."""
        if self._copies is None:
            words = torch.from_numpy(self._word_of[: self.seen])
            self._copies = words.to(device), torch.from_numpy(self._rank[: len(self._nats)]).to(device)
        return self._copies

    def rarest(self, origin: Tensor, free: Tensor, counts: list[int]) -> Tensor:
        """The rarest of what competes, the newest among equals.

        Args:
            origin: ``[G, h, n]`` float32, tokens of the session before the slot's own; of those read.
            free: bool ``[G, h, n]``, True where a slot competes.
            counts: per lane, how many; all that compete where these are fewer.

        Returns:
            bool ``[G, h, n]``.
        """
        most = min(max(counts), free.shape[-1])
        if not most:
            return torch.zeros_like(free)
        word_of, rank = self._tables(free.device)
        at = origin.long().flatten()
        key = rank.index_select(0, word_of.index_select(0, at)) + at + 1
        # 0 is below every key; multiplying takes a fraction of what filling does.
        key = key.view(free.shape).mul_(free)
        best = key.topk(most, -1, sorted=min(counts) < most)
        count = torch.tensor(counts, device=free.device).view(-1, 1, 1)
        mine = (torch.arange(most, device=free.device) < count) & (best.values > 0)
        return torch.zeros_like(free).scatter_(-1, best.indices, mine)


def _grown(old: np.ndarray[Any, Any], need: int) -> np.ndarray[Any, Any]:
    """A copy with room for ``need`` entries and an eighth more."""
    new = np.zeros(need + max(64, need // 8), dtype=old.dtype)
    new[: old.shape[0]] = old
    return new
