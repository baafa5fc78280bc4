"""Token ids to text, one token at a time, without splitting a character."""

from __future__ import annotations

from typing import Any


class Detokeniser:
    """Incremental decoding: a piece is given out once it can no longer change.

    Byte-level vocabularies split characters over tokens, and some decoders drop a leading space, so each piece is the
    difference between decoding with and without the newest tokens.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._done = 0

    def push(self, token: int) -> str:
        """The text that ``token`` completes."""
        if self._tokenizer is None:
            return ""
        self._ids.append(token)
        before = self._decode(self._ids[: self._done])
        after = self._decode(self._ids)
        if after.endswith("\ufffd") and len(self._ids) - self._done < 8:
            return ""
        # One settled token stays as context, so that the next piece keeps its leading space.
        self._ids = self._ids[self._done :]
        self._done = len(self._ids)
        return after[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text
