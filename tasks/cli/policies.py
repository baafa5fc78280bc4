"""``confkv policies``: what the cache can be told to keep."""

from __future__ import annotations

import json as jsonlib
from typing import Annotated

import typer


def policies(
    json: Annotated[
        bool, typer.Option("--json", help="A JSON list of {name, summary, params, paper} on stdout.")
    ] = False,
) -> None:
    """List the cache policies that `confkv run --policy` takes, each with its parameters, defaults and paper.

    Write name or name:key=value,... as in confkv:n_high=256,int8=1 or window:512.
    """
    from confkv.policies import list_policies

    known = list_policies()
    if json:
        rows = [{"name": p.name, "summary": p.summary, "params": dict(p.params), "paper": p.paper} for p in known]
        print(jsonlib.dumps(rows, indent=1))
        return
    wide = max(len(p.name) for p in known)
    for p in known:
        print(f"{p.name:<{wide}} {p.summary}")
        print(f"{'':<{wide}} {', '.join(f'{key}={value}' for key, value in p.params.items())}")
        print(f"{'':<{wide}} {p.paper or 'no paper: the reference the others are compared with'}\n")
