"""``confkv bench``: measure policies. One sub-command a bench; each can be stopped and started again."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tasks.cli.options import Chunk, Device, Dtype, Json
from tasks.cli.stdout import stdout_for_result_only

bench = typer.Typer(
    help="Measure cache policies. Each bench keeps a line a measurement in --out and goes on where it was stopped.",
    no_args_is_help=True,
)

Model = Annotated[
    str, typer.Option("--model", "-m", help="Alias, folder, GGUF file or hub id; `confkv models` lists them.")
]
Texts = Annotated[
    list[Path] | None, typer.Option("--text", help="A plain text file to measure on; may be given several times.")
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder for the results. Default: runs/bench/BENCH-MODEL.")
]
Policies = Annotated[
    str | None,
    typer.Option(
        "--policies", "-p", help='Specs separated by blanks, as in "full window confkv:tau=0.5". Default: all.'
    ),
]
Match = Annotated[
    str,
    typer.Option(help="Solve every policy's size for the mean device bytes of this one (within 2%); none: as written."),
]
Tokens = Annotated[int, typer.Option(help="Scored tokens of a segment.")]
Prefix = Annotated[int, typer.Option(help="Tokens prefilled before the first scored one.")]
Segments = Annotated[int, typer.Option(help="Disjoint segments of each text; two or more give intervals.")]
Calibrate = Annotated[
    int, typer.Option(help="Tokens of a calibration run, at least (twice the match's size, if more).")
]
Together = Annotated[int, typer.Option(help="Runs decoded by one forward pass, at most; each keeps its own cache.")]
Seed = Annotated[int, typer.Option("--seed", "-s", help="Of all that is drawn at random.")]


def _folder(out: Path | None, name: str, model: str) -> Path:
    """The default is the same at every start, so that a second start finds what is there."""
    return out or Path("runs") / "bench" / (f"{name}-" + re.sub(r"[^A-Za-z0-9._+-]+", "-", model).strip("-."))


def _show(measure: Callable[[], Any], out: Path, json: bool) -> None:
    """Run a bench and print what it found: one JSON object, or its table."""
    from tasks.bench.output import TABLE_FILE

    with contextlib.ExitStack() as stack:
        if json:
            stack.enter_context(stdout_for_result_only())
        summary = measure()
    if json:
        print(summary.model_dump_json(), flush=True)
    else:
        print((out / TABLE_FILE).read_text(encoding="utf-8") + f"\nfiles: {out}", flush=True)


@bench.command("ppl")
def ppl(
    model: Model = "smollm2",
    text: Texts = None,
    out: Out = None,
    json: Json = False,
    policies: Policies = None,
    match: Match = "window:512",
    tokens: Tokens = 2048,
    prefix: Prefix = 64,
    segments: Segments = 1,
    calibrate: Calibrate = 512,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    chunk: Chunk = 512,
    together: Together = 16,
) -> None:
    """Sustained perplexity: every token is decoded by itself, under eviction, at matched device bytes."""
    from tasks.bench.ppl import Options, run

    folder = _folder(out, "ppl", model)
    sizes = match, tokens, prefix, segments, calibrate
    options = Options(model, text, folder, policies, *sizes, dtype, device, chunk, together)
    _show(lambda: run(options), folder, json)


@bench.command("needle")
def needle(
    model: Model = "smollm2",
    text: Texts = None,
    out: Out = None,
    json: Json = False,
    policies: Policies = None,
    lengths: Annotated[str, typer.Option(help="Tokens of the haystacks, separated by blanks.")] = "1024 2048",
    depths: Annotated[
        str, typer.Option(help="Where the needle lies: 0 begins the text, 1 ends it.")
    ] = "0 0.25 0.5 0.75 1",
    kinds: Annotated[
        str,
        typer.Option(
            help="Some of single, multikey, multiquery (a key at each depth of one prefilled text), tracking."
        ),
    ] = "single",
    needles: Annotated[int, typer.Option(help="Different needles for each length, depth and kind.")] = 2,
    new_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 24,
    segment: Annotated[
        str,
        typer.Option(help="The haystack competes for the cache (text), or is protected until the next (observation)."),
    ] = "text",
    question: Annotated[
        str,
        typer.Option(help="The question is a new goal (pinned; recall policies act on it), an observation, or text."),
    ] = "goal",
    share: Annotated[
        float,
        typer.Option(
            help="Give every policy the largest size whose peak stays within 1/SHARE of the device bytes that full "
            "holds at each length (a chunk comes on top of the budget: lower --chunk, say to 64). 0: sizes as written."
        ),
    ] = 0.0,
    seed: Seed = 0,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    chunk: Chunk = 512,
) -> None:
    """Needles in a haystack: a random key at a known depth, found again or not, by length and at what bytes."""
    from tasks.bench.needle import Options, run

    folder = _folder(out, "needle", model)
    options = Options(
        model, text, folder, policies, lengths, depths, kinds, needles, new_tokens, segment, question, share, seed,
        dtype, device, chunk,
    )  # fmt: skip
    _show(lambda: run(options), folder, json)


@bench.command("kl")
def kl(
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="A model, as for ppl; may be given several times.")
    ] = None,
    text: Texts = None,
    out: Out = None,
    json: Json = False,
    tokens: Annotated[int, typer.Option(help="Tokens of a segment.")] = 1024,
    positions: Annotated[int, typer.Option(help="Positions looked at in a segment.")] = 200,
    remove: Annotated[int, typer.Option(help="Newest positions removed; the current token stays.")] = 256,
    segments: Segments = 1,
    seed: Seed = 0,
    dtype: Dtype = "auto",
    device: Device = "cpu",
) -> None:
    """Confidence against the KL shift of the next-token distribution when the newest positions are removed."""
    from tasks.bench.kl import Options, run

    models = model or ["smollm2"]
    folder = _folder(out, "kl", "+".join(models))
    options = Options(models, text, folder, tokens, positions, remove, segments, seed, dtype, device)
    _show(lambda: run(options), folder, json)


@bench.command("tools")
def tools(
    model: Model = "smollm2",
    out: Out = None,
    json: Json = False,
    policies: Policies = None,
    episodes: Annotated[int, typer.Option(help="Episodes of BFCL long_context, evenly from its list.")] = 20,
    below: Annotated[int, typer.Option(help="Only episodes whose gold run has fewer tokens.")] = 12_000,
    pin_tools: Annotated[
        bool, typer.Option("--pin-tools", help="Keep the tool schemas, as an agent's session does; else they compete.")
    ] = False,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    chunk: Chunk = 512,
) -> None:
    """Gold calls of tool-use episodes, teacher-forced: agreement with full KV, KL, rank of the gold token, bytes."""
    from tasks.bench.tools import Options, run

    folder = _folder(out, "tools", model)
    options = Options(model, folder, policies, episodes, below, pin_tools, dtype, device, chunk)
    _show(lambda: run(options), folder, json)


@bench.command("memory")
def memory(
    model: Model = "smollm2",
    out: Out = None,
    json: Json = False,
    policies: Policies = None,
    scenarios: Annotated[
        str, typer.Option(help="Conversations: some of notetaker, healthcare, finance, customer, student.")
    ] = "notetaker healthcare finance",
    new_tokens: Annotated[int, typer.Option(help="Longest reply to a question.")] = 48,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    chunk: Chunk = 512,
) -> None:
    """BFCL's memory conversations in one session, then its questions: right answers by the age of the fact."""
    from tasks.bench.memory import Options, run

    folder = _folder(out, "memory", model)
    options = Options(model, folder, policies, scenarios, new_tokens, dtype, device, chunk)
    _show(lambda: run(options), folder, json)


@bench.command("quant")
def quant(
    model: Model = "smollm2",
    text: Texts = None,
    out: Out = None,
    json: Json = False,
    precisions: Annotated[str, typer.Option(help="Some of fp, int8, int4, nf4; the last two simulated.")] = (
        "fp int8 int4 nf4"
    ),
    tokens: Tokens = 1024,
    prefix: Prefix = 64,
    window: Annotated[int, typer.Option(help="Newest positions that stay in full precision.")] = 128,
    segments: Segments = 1,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    chunk: Chunk = 512,
) -> None:
    """How precise the history has to be: perplexity, relative error and bytes of each precision, nothing evicted."""
    from tasks.bench.quant import Options, run

    folder = _folder(out, "quant", model)
    options = Options(model, text, folder, precisions, tokens, prefix, window, segments, dtype, device, chunk)
    _show(lambda: run(options), folder, json)


@bench.command("ablate")
def ablate(
    model: Model = "smollm2",
    text: Texts = None,
    out: Out = None,
    json: Json = False,
    method: Annotated[str, typer.Option(help="The full method, a policy spec.")] = "confkv",
    what: Annotated[
        str, typer.Option(help="all, parts, sweeps, or some of the sweeps: alpha tau decay protect w.")
    ] = "all",
    policies: Annotated[
        str | None, typer.Option("--policies", "-p", help="Further specs for the table, separated by blanks.")
    ] = None,
    match: Match = "window:512",
    tokens: Tokens = 2048,
    prefix: Prefix = 64,
    segments: Segments = 1,
    calibrate: Calibrate = 512,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    chunk: Chunk = 512,
    together: Together = 16,
) -> None:
    """What each part of the method is worth: variants without it and sweeps, all at matched device bytes."""
    from tasks.bench.ablate import run
    from tasks.bench.ppl import Options

    folder = _folder(out, "ablate", model)
    sizes = match, tokens, prefix, segments, calibrate
    options = Options(model, text, folder, policies, *sizes, dtype, device, chunk, together)
    _show(lambda: run(options, method, what), folder, json)
