"""``confkv doctor``: what is installed, what is missing, and the command that mends it."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tasks.doctor import Check


def doctor(
    json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
    vwa: Annotated[
        bool, typer.Option("--vwa", help="Look at the official VisualWebArena sites (VWA_* variables) instead.")
    ] = False,
) -> None:
    """Look at packages, browser, cache and models; exit code 2 where something needed is missing."""
    checks: list[Check] = []
    for check in _examine_vwa() if vwa else _examine():
        checks.append(check)
        if not json:
            _show(check)
    missing = [check for check in checks if check.needed and not check.ok]
    if json:
        print(jsonlib.dumps({"ok": not missing, "checks": [check.as_dict() for check in checks]}, indent=2))
    elif missing:
        print(f"\n{len(missing)} missing: {', '.join(check.name for check in missing)}")
        if vwa:
            print("Without them: confkv eval --suite vwa-mini plays on sites that are part of confkv.")
    elif vwa:
        print("\nAll sites answer. Try: confkv eval --suite visualwebarena --limit 5")
    else:
        print("\nAll that a run needs is here. Try: confkv run --task demo/shop")
    if missing:
        raise typer.Exit(2)


def _examine() -> Iterator[Check]:
    from tasks.doctor import examine

    return examine()


def _examine_vwa() -> Iterator[Check]:
    from tasks.vwa.doctor import examine

    return examine()


def _show(check: Check) -> None:
    from rich.console import Console
    from rich.text import Text

    mark, style = ("ok", "green") if check.ok else ("missing", "red") if check.needed else ("later", "yellow")
    console = Console(soft_wrap=True, highlight=False)
    console.print(Text(f"{mark:8}", style=style) + Text(f"{check.name:26}{check.detail}", style="default"))
    if check.mend:
        console.print(Text(f"{'':8}{'':26}mend: {check.mend}", style="bold"))
