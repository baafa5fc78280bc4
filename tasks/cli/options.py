"""Options and helpers that several verbs share."""

from __future__ import annotations

from types import FrameType
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout; progress stays on stderr.")]
Dtype = Annotated[str, typer.Option(help="auto, fp32, bf16 or fp16; auto takes bf16 where the CPU has it.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Chunk = Annotated[int, typer.Option(help="Tokens prefilled at a time; eviction happens in between.")]
MaxTurns = Annotated[int, typer.Option(help="Give up after so many turns.")]
MaxNewTokens = Annotated[int, typer.Option(help="Longest reply of a turn, in tokens.")]
Observation = Annotated[
    str,
    typer.Option(
        help="What the agent gets of a page: aria (text); aria+captions (and a line for each picture that the text "
        "leaves out); screenshot or som (the text, and a picture in the records, which som marks with the text's ids).",
    ),
]
Temperature = Annotated[float, typer.Option(help="0 is greedy; above it samples, seeded by the seed.")]


def interrupt(number: int, frame: FrameType | None) -> None:
    """For SIGTERM and a closed terminal: they end a run as Ctrl-C does, browsers closed and records written."""
    raise KeyboardInterrupt


def default_model() -> str:
    """The model that is taken where none is named."""
    from confkv.models import DEFAULT_ALIAS

    return DEFAULT_ALIAS
