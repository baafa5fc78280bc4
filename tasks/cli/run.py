"""``confkv run``: play one episode."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from tasks.cli.options import (
    Chunk,
    Device,
    Dtype,
    Json,
    MaxNewTokens,
    MaxTurns,
    Observation,
    Temperature,
    default_model,
    interrupt,
)
from tasks.cli.stdout import stdout_for_result_only
from tasks.signals import handled

EXAMPLES = """\
Examples:

\b
  confkv run
      the demo shop with the default model, policy confkv
\b
  confkv run --task miniwob/click-button --seed 1 --model qwen2.5-coder-1.5b
      a MiniWoB task (confkv tasks lists them)
\b
  confkv run --policy window:512
  confkv run --policy confkv:n_high=256,n_low=512,int8=1
      other caches (confkv policies lists them with their parameters)
\b
  confkv run --model ./my-model --policy full --json > result.json
      a folder, GGUF file or hub id; one JSON object on stdout

\b
The folder of a run holds:
  episode.json   the outcome        steps.jsonl   a line a turn
  decode.npz     a row a token      cache.png     what the cache held, and why
  screenshots/   one an action      error.txt     only if something broke
\b
Exit code: 0 played to its end, solved or not; 1 the episode broke;
2 bad input; 130 stopped by Ctrl-C, with the episode so far written.
"""


def run(
    task: Annotated[str, typer.Option("--task", "-t", help="Task to play; `confkv tasks` lists them.")] = "demo/shop",
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="Alias, folder, GGUF file or hub id; `confkv models` lists them, the default too.",
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option("--policy", "-p", help="What the cache keeps: name or name:key=value,...; see `confkv policies`."),
    ] = "confkv",
    seed: Annotated[
        int, typer.Option("--seed", "-s", help="The task's instance; the same seed plays the same one.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for the records; replaces a run in it. Default: runs/TASK-POLICY-SEED-TIME.",
        ),
    ] = None,
    json: Json = False,
    headed: Annotated[bool, typer.Option("--headed", help="Show the browser window.")] = False,
    max_turns: MaxTurns = 30,
    max_new_tokens: MaxNewTokens = 256,
    temperature: Temperature = 0.0,
    observation: Observation = "aria",
    dtype: Dtype = "auto",
    device: Device = "cpu",
    screenshots: Annotated[bool, typer.Option(help="Keep a screenshot of each action.")] = True,
    chunk: Chunk = 512,
) -> None:
    """Play one task in a real browser; one KV session carries it from the first turn to the last."""
    from tasks.episode import Options, play, prepare, summary
    from tasks.live import make_view

    with contextlib.ExitStack() as stack:
        if json:
            stack.enter_context(stdout_for_result_only())
        stack.enter_context(handled(interrupt, signal.SIGTERM, signal.SIGHUP))
        plan = prepare(
            Options(
                task=task,
                model=model or default_model(),
                policy=policy,
                seed=seed,
                out=out,
                headed=headed,
                max_turns=max_turns,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                observation=observation,
                dtype=dtype,
                device=device,
                chunk=chunk,
                screenshots=screenshots,
            )
        )
        with make_view(plan.heading, max_turns, plain=json) as view:
            episode = play(plan, view)
    print(episode.model_dump_json() if json else summary(episode), flush=True)
    if episode.stop_reason == "interrupted":
        raise typer.Exit(130)
    if episode.stop_reason == "error":
        print(f"confkv: the episode broke ({episode.error}); see {episode.out}", file=sys.stderr)
        raise typer.Exit(1)
