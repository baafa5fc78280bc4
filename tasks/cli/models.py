"""``confkv models``: the models that have a short name, and fetching one."""

from __future__ import annotations

import json as jsonlib
from typing import Annotated

import typer


def models(
    json: Annotated[bool, typer.Option("--json", help="One JSON list instead of a table.")] = False,
    fetch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Fetch and convert this model now ('default' for the default one)."),
    ] = None,
) -> None:
    """List the models by short name. --model also takes a hub id, a model folder, or a GGUF file."""
    from confkv.models.aliases import ALIASES, DEFAULT_ALIAS
    from confkv.models.source import ready_folder, resolve

    if fetch is not None:
        source = resolve(DEFAULT_ALIAS if fetch == "default" else fetch)
        if json:
            print(jsonlib.dumps({"name": source.name, "path": str(source.path)}))
        else:
            print(f"{source.name} is ready in {source.path}")
        return
    rows = []
    for name, alias in ALIASES.items():
        folder = ready_folder(alias)
        rows.append(
            {
                "name": name,
                "default": name == DEFAULT_ALIAS,
                "hub_id": alias.hub_id,
                "summary": alias.summary,
                "licence": alias.licence,
                "download_bytes": alias.gguf_bytes,
                "disk_bytes": alias.ready_bytes,
                "path": str(folder) if folder else None,
            }
        )
    if json:
        print(jsonlib.dumps(rows, indent=2))
        return
    for row in rows:
        mark = " (default)" if row["default"] else ""
        print(f"{row['name']}{mark}: {row['summary']}")
        print(f"    {row['hub_id']}, {row['licence']}")
        if row["path"]:
            print(f"    ready in {row['path']}")
        else:
            gigabytes = int(str(row["download_bytes"])) / 1e9
            print(f"    not here yet, {gigabytes:.1f} GB to fetch: confkv models --fetch {row['name']}")
    print("\n--model also takes a hub id, a model folder or a GGUF file.")
