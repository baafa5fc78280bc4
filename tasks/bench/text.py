"""The text a bench is run on: read, hashed, tokenised, cut into disjoint segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.bench.results import digest
from tasks.errors import TaskError


@dataclass(frozen=True)
class Text:
    """A text file: its name without the folder, its words, and 16 hex digits of their SHA-256."""

    name: str
    content: str
    digest: str


@dataclass(frozen=True)
class Segment:
    """``ids`` from token ``start`` on of a tokenised text."""

    text: Text
    start: int
    ids: list[int]


def read_texts(paths: Sequence[Path] | None) -> list[Text]:
    """The texts named on the command line.

    Raises:
        TaskError: none was named, or one cannot be read or is empty.
    """
    if not paths:
        raise TaskError("give a text file with --text FILE (plain text, some hundred kB; it may be given twice)")
    texts = []
    for path in paths:
        try:
            content = path.read_text(encoding="utf-8")
        except OSError as error:
            raise TaskError(f"--text {path} cannot be read ({error.strerror or error}); name a text file") from error
        except UnicodeDecodeError as error:
            raise TaskError(f"--text {path} is not UTF-8 text; name a plain text file") from error
        if not content.strip():
            raise TaskError(f"--text {path} is empty; name a text file with some text in it")
        texts.append(Text(path.name, content, digest(content)))
    return texts


def encode(tokenizer: Any, content: str) -> list[int]:
    """Token ids without special tokens."""
    # `verbose` silences the warning that the text exceeds the model's context; it is cut afterwards.
    ids: list[int] = tokenizer(content, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def cut(texts: Sequence[Text], tokenizer: Any, length: int, count: int) -> list[Segment]:
    """``count`` disjoint segments of ``length`` tokens from each text, evenly spread over it.

    Raises:
        TaskError: a text is too short; the message says how much would do.
    """
    out = []
    for text in texts:
        ids = encode(tokenizer, text.content)
        if len(ids) < length * count:
            raise TaskError(
                f"--text {text.name} has {len(ids):,} tokens and {length * count:,} are needed "
                f"({count} x {length:,}); give a longer text, or lower --tokens or --segments"
            )
        stride = len(ids) // count
        out += [Segment(text, i * stride, ids[i * stride : i * stride + length]) for i in range(count)]
    return out
