"""``confkv sites``: the embedded sites for a person with a browser."""

from __future__ import annotations

import json as jsonlib
import signal
import threading
from typing import Annotated

import typer

from tasks.signals import handled


def sites(
    port: Annotated[
        int,
        typer.Option(
            help="Port of the home page; the three sites take the next ones. 0: any free ports.", min=0, max=65532
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(help="Which shelves, advertisements and posts there are.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object of site and address on stdout.")] = False,
) -> None:
    """Serve the classifieds, the shop and the forum of the tasks on this machine until Ctrl-C."""
    from tasks.sites import LocalSites
    from tasks.sites.store import PASSWORD, USERNAME

    served, ended = LocalSites(seed, port), threading.Event()
    try:
        if json:
            print(jsonlib.dumps(served.urls), flush=True)
        else:
            for name, url in served.urls.items():
                print(f"{name:<12} {url}/")
            print(f"Log in as {USERNAME} with {PASSWORD}. What you write is gone when this ends (Ctrl-C).", flush=True)
        # Not left to KeyboardInterrupt: a shell that starts this in the background has Ctrl-C ignored.
        with handled(lambda *_: ended.set(), signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            ended.wait()
    finally:
        served.close()
