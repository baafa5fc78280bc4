"""``confkv eval``: play a suite under several policies and compare."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tasks.cli.options import (
    Chunk,
    Device,
    Dtype,
    MaxNewTokens,
    MaxTurns,
    Observation,
    Temperature,
    default_model,
    interrupt,
)
from tasks.cli.stdout import stdout_for_result_only
from tasks.signals import handled

if TYPE_CHECKING:
    from tasks.grid.run import Plan

EXAMPLES = """\
Examples:

\b
  confkv eval --suite demo --agent oracle --seeds 5
      no model: the suite's own solutions
\b
  confkv eval --suite miniwob --tasks "click-button enter-text login-*" --seeds 3
              --policies "full window:512 confkv" --model qwen2.5-coder-1.5b --out runs/mine
\b
  confkv eval ... --out runs/mine --resume
      go on after Ctrl-C, a crash or a kill; nothing is lost or played twice
\b
  confkv eval --suite demo --policies full --history "persistent reprefill"
      one session an episode against feeding the conversation anew each turn

\b
The folder of a grid holds:
  results.jsonl   a line an episode    summary.json   what --json prints
  report.html     charts and tables    grid.json      what was asked for
  traces/         a folder an episode

\b
An episode that breaks counts as not solved, with its reason; the next one starts in a new browser.
Exit code: 0 all played; 2 bad input; 130 stopped by Ctrl-C, with what was over on file.
"""


def evaluate(
    suite: Annotated[
        str,
        typer.Option(
            "--suite",
            help="demo, miniwob, vwa-mini, visualwebarena (whose sites VWA_* variables name), bfcl-multi-turn, "
            "bfcl-long-context (with -8k or -12k: episodes under so many tokens) or tau2-telecom.",
        ),
    ] = "demo",
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policies",
            "-p",
            help='Specs separated by blanks or commas, as in "full window:512 confkv:tau=0.5,n_low=256" or '
            'full,window:512,h2o; may be given several times. Default: "full confkv".',
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="Alias, folder, GGUF file or hub id; may be given several times."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds 0 to K-1 of each task.")] = 1,
    workers: Annotated[
        int, typer.Option(help="Episodes at a time. They share one model, which serves one of them at a time.")
    ] = 1,
    batch: Annotated[
        bool,
        typer.Option(
            "--batch",
            help="Decode the workers' episodes in one pass over the model: much quicker, but rounding then depends on "
            "who else plays, and a reply may differ in a near tie.",
        ),
    ] = False,
    limit: Annotated[int, typer.Option(help="At most so many tasks, from each site in turn; 0: all.")] = 0,
    tasks: Annotated[
        str, typer.Option("--tasks", help="Only tasks that these words name: ids, parts of ids, or patterns with *.")
    ] = "",
    agent: Annotated[
        str,
        typer.Option(
            help="model; or without one: oracle (solves), noop (does nothing), random (valid actions by chance)."
        ),
    ] = "model",
    history: Annotated[
        list[str] | None,
        typer.Option(help="persistent: one KV session an episode; reprefill: all fed anew each turn; or both."),
    ] = None,
    max_turns: MaxTurns = 30,
    max_new_tokens: MaxNewTokens = 256,
    temperature: Temperature = 0.0,
    observation: Observation = "aria",
    dtype: Dtype = "auto",
    device: Device = "cpu",
    chunk: Chunk = 512,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the grid. Default: runs/eval-SUITE-WHO-TIME.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the grid in --out.")] = False,
    screenshots: Annotated[bool, typer.Option(help="Keep a screenshot of each action.")] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Play on a Ray cluster: HOST:PORT, auto, or local for one on this machine. Each worker loads a model.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the summary as one JSON object; progress stays on stderr.")
    ] = False,
) -> None:
    """Play every task of a suite under every policy, and compare success, bytes and time."""
    from tasks.grid.report import show
    from tasks.grid.run import Options, prepare, run

    if agent != "model" and (policies or model or history):
        print(f"confkv: agent {agent} has no model; --policies, --model and --history are not used", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        if json:
            stack.enter_context(stdout_for_result_only())
        stack.enter_context(handled(interrupt, signal.SIGTERM, signal.SIGHUP))
        plan = prepare(
            Options(
                suite=suite,
                policies=policies or ("full", "confkv"),
                models=model or (default_model(),),
                seeds=seeds,
                workers=workers,
                batch=batch,
                limit=limit,
                tasks=tasks,
                agent=agent,
                histories=history or ("persistent",),
                max_turns=max_turns,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                observation=observation,
                dtype=dtype,
                device=device,
                chunk=chunk,
                out=out,
                resume=resume,
                screenshots=screenshots,
                ray=ray,
            )
        )
        try:
            summary = run(plan, plain=json)
        except KeyboardInterrupt:
            print(_how_to_go_on(plan), file=sys.stderr, flush=True)
            raise typer.Exit(130) from None
    if json:
        print(summary.model_dump_json(), flush=True)
        return
    show(summary)
    print(f"files: {plan.out} (report.html, summary.json, results.jsonl, traces/)", flush=True)


def _how_to_go_on(plan: Plan) -> str:
    words = ["confkv", *sys.argv[1:]]
    if "--resume" not in words:
        words.append("--resume")
    if plan.options.out is None:
        words += ["--out", str(plan.out)]
    return f"confkv: what was over is in {plan.out}; go on with: {shlex.join(words)}"
