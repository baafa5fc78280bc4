"""Read one call's arguments out of free text: tolerant about quotes, brackets and newlines."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from typing import Any

CLOSERS = {'"': '"', "'": "'", "“": "”", "”": "”", "„": "”“", "«": "»", "‘": "’", "’": "’", "`": "`"}
_DELIMITERS = ",)]}:;"
_NEXT_LINE = re.compile(r"[ \t]*\r?\n[ \t\r\n]*(?:`{3}|(?:[-*]\s+|\d+[.)]\s+)?[A-Za-z_]\w*[ \t]*\(|$)|[ \t]*$")
_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:=(?!=)|:(?!/))\s*")
_JSON_KEYWORD = re.compile(r"\s*[\"']([A-Za-z_]\w*)[\"']\s*:\s*")
_PREFIX = re.compile(r"[rRuUfFbB]{1,2}(?=[\"'])")


class ScanError(ValueError):
    """The arguments cannot be read; ``str(error)`` says why, for the model."""


@dataclass(frozen=True)
class Bare:
    """Text that was not quoted: an id, a number, a word."""

    text: str


@dataclass(frozen=True)
class Argument:
    """One argument as written: ``value`` is a str (it was quoted), a Bare, or a list of those."""

    value: Any
    keyword: str | None
    start: int
    end: int


def unescape(body: str) -> str:
    """The string that a quoted body stands for; escapes that mean nothing are kept as they are written."""
    source = body.replace("\r", "\\r").replace("\n", "\\n").replace("\0", "\\x00")
    source = re.sub(r'(?s)(\\.)|"', lambda m: m[1] or '\\"', source)
    for text in (f'"{source}"', '"' + body.replace("\\", "\\\\").replace('"', '\\"') + '"'):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = ast.literal_eval(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            continue
        if isinstance(value, str):
            return whole(value)
    return body


def whole(text: str) -> str:
    """``text`` without lone surrogates: pairs become the character they encode, the rest U+FFFD."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class Scanner:
    """Reads the arguments of the call whose ``(`` is just before ``position``, and moves past the call."""

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position
        self.closed = False

    def arguments(self) -> list[Argument]:
        """The arguments in order.

        Raises:
            ScanError: a quote is never closed, or brackets are nested in a way no action takes.
        """
        found: list[Argument] = []
        while True:
            self._space()
            if self._ends():
                return found
            if self.text[self.position] in ",{}":
                self.position += 1
                continue
            match = _KEYWORD.match(self.text, self.position) or _JSON_KEYWORD.match(self.text, self.position)
            keyword = match[1] if match else None
            if match:
                self.position = match.end()
            start = self.position
            value = self._value(",)}")
            found.append(Argument(value, keyword, start, self.position))

    def _ends(self) -> bool:
        """At the end of the call: its parenthesis, or where one was forgotten."""
        text, at = self.text, self.position
        if at >= len(text):
            return True
        if text[at] == ")":
            self.position, self.closed = at + 1, True
            return True
        return text.startswith("```", at)

    def _space(self) -> None:
        """Skip blanks, and a newline unless a new call starts after it."""
        while self.position < len(self.text) and self.text[self.position].isspace():
            if _NEXT_LINE.match(self.text, self.position):
                self.position = len(self.text) if not self.text[self.position :].strip() else self.position
                if self.position < len(self.text) and self.text[self.position] == "\n":
                    self._stop_here()
                    return
            self.position += 1

    def _stop_here(self) -> None:
        """End the call at this newline by hiding what follows from this scanner."""
        self.text = self.text[: self.position]

    def _value(self, stops: str) -> Any:
        self._space()
        if self.position >= len(self.text):
            return Bare("")
        prefix = _PREFIX.match(self.text, self.position)
        if prefix:
            self.position = prefix.end()
        char = self.text[self.position]
        if char in CLOSERS:
            return self._string()
        if char == "[":
            return self._list()
        return self._bare(stops)

    def _string(self) -> str:
        text, start = self.text, self.position
        opener = text[start]
        triple = text[start : start + 3]
        if triple in ('"""', "'''"):
            end = text.find(triple, start + 3)
            if end >= 0:
                self.position = end + 3
                return unescape(text[start + 3 : end])
        at = start + 1
        while at < len(text):
            if text[at] == "\\":
                at += 2
            elif text[at] in CLOSERS[opener] and self._closes(at + 1):
                self.position = at + 1
                return unescape(text[start + 1 : at])
            else:
                at += 1
        return self._unclosed(start)

    def _closes(self, after: int) -> bool:
        """Whether a quote before ``after`` can end a string: a delimiter, a new call or the end follows."""
        at = after
        while at < len(self.text) and self.text[at].isspace():
            at += 1
        if at >= len(self.text) or self.text[at] in _DELIMITERS or self.text.startswith("```", at):
            return True
        return self.text[at] in "#`" or bool(_NEXT_LINE.match(self.text, after))

    def _unclosed(self, start: int) -> str:
        """A quote that never ends: take the rest of its line when a parenthesis ends that line."""
        end = self.text.find("\n", start)
        line = self.text[start + 1 : end if end >= 0 else len(self.text)].rstrip(" \t\r;`")
        if not line.endswith(")"):
            raise ScanError("a quoted text is never closed")
        self.position = start + len(line)
        return unescape(line[:-1].rstrip("]"))

    def _list(self) -> list[Any] | Bare:
        start = self.position
        self.position += 1
        items: list[Any] = []
        while True:
            self._space()
            if self.position >= len(self.text):
                raise ScanError("a list is never closed with ]")
            char = self.text[self.position]
            if char == "]":
                self.position += 1
                break
            if char == ",":
                self.position += 1
            elif char in ")([":
                raise ScanError("brackets do not match")
            else:
                items.append(self._value(",])"))
        rest = self.position
        tail = self._bare(",)}").text  # `[e5] "OK"` copied whole: the id is what counts
        if tail:
            return Bare(self.text[start:rest] + " " + tail)
        return items

    def _bare(self, stops: str) -> Bare:
        """Unquoted text up to a stop character outside parentheses, or the end of the line."""
        start, depth = self.position, 0
        while self.position < len(self.text):
            char = self.text[self.position]
            if char == "\n" or (depth == 0 and char in stops) or self.text.startswith("```", self.position):
                break
            depth += (char == "(") - (char == ")")
            self.position += 1
        return Bare(self.text[start : self.position].strip())
