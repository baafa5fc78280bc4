"""The command ``confkv`` and what it does with errors: one line on stderr, never a traceback."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from tasks.cli import bench, doctor, eval, models, policies, report, run, sites, tasks

app = typer.Typer(
    name="confkv",
    help="Play web tasks with a language model whose KV cache is a managed resource.",
    epilog="Begin with: confkv doctor, then confkv run. Every command explains itself with --help.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib import metadata

        print(f"confkv {metadata.version('confkv')}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("eval", epilog=eval.EXAMPLES)(eval.evaluate)
app.command("report")(report.report)
app.command("tasks")(tasks.tasks)
app.command("policies")(policies.policies)
app.command("models")(models.models)
app.command("doctor")(doctor.doctor)
app.command("sites")(sites.sites)
app.add_typer(bench.bench, name="bench")


def _say(message: str) -> None:
    """One line on stderr, whatever the message holds."""
    print("confkv: " + " ".join(message.split()), file=sys.stderr, flush=True)


def _write_traceback() -> Path:
    """Keep the traceback of the exception under way; the file's path."""
    from confkv.cache_dir import cache_dir

    name = f"error-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.txt"
    text = f"confkv {' '.join(sys.argv[1:])}\n\n{traceback.format_exc()}"
    for folder in (cache_dir() / "logs", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        return folder / name
    return Path("(nowhere: no folder could be written)")


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code: 0 done, 1 a defect of ours, 2 bad input, 130 interrupted."""
    try:
        code = app(args=arguments, prog_name="confkv", standalone_mode=False)
        if code == 130:  # Ctrl-C: typer has caught it, or `run` has kept the episode so far
            _say("interrupted")
        return code if isinstance(code, int) else 0
    except TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)
            return 2
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "confkv"
        _say(f"{error.format_message().rstrip('.')}; see `{command} --help`")
        return 2
    except Abort:
        _say("interrupted")
        return 130
    except BrokenPipeError:
        # The reader of a pipe has left (confkv tasks | head): nothing to say, and nothing more to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Exception as error:
        if getattr(error, "user_facing", False):
            _say(str(error))
            return 2
        text = " ".join(str(error).split())[:300]
        where = _write_traceback()
        _say(f"unexpected {type(error).__name__}: {text}; this is a defect, the full traceback is in {where}")
        return 1


def main() -> None:
    """Console script ``confkv``."""
    sys.exit(invoke())


if __name__ == "__main__":
    main()
