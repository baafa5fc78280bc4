"""Whether a call is one of the tools', checked before a benchmark's executor hears of it."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from envs.tools.world import CallError

MAX_ARGUMENTS = 32_768  # characters of all arguments of a call, written as JSON
MAX_DEPTH = 16
MAX_INTEGER = 10**18  # beyond what any tool can mean; larger ones are only good for using up time


def check_call(
    name: Any, args: Any, tools: Sequence[Mapping[str, Any]], hidden: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The arguments of a call, plain JSON values, once the call is known to be one of ``tools`` or ``hidden``.

    What is wrong with a call is said in words that name no hidden tool.

    Raises:
        CallError: there is no such tool, an argument is unknown, missing, too large or no JSON value.
    """
    schemas = {tool["function"]["name"]: tool["function"] for tool in (*hidden, *tools)}
    if not isinstance(name, str) or name not in schemas:
        shown = str(name)[:60]
        told = [tool["function"]["name"] for tool in tools]
        near = difflib.get_close_matches(shown, told, 3, 0.5)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"The tools are {', '.join(told)}."
        raise CallError(f"There is no tool {shown!r}. {hint}")
    if not isinstance(args, dict):
        raise CallError(f"The arguments of {name} must be a JSON object.")
    _check_value(name, args, 0)
    try:
        size = len(json.dumps(args))
    except (ValueError, RecursionError) as error:
        raise CallError(f"The arguments of {name} cannot be written as JSON.") from error
    if size > MAX_ARGUMENTS:
        raise CallError(f"The arguments of {name} take {size:,} characters; at most {MAX_ARGUMENTS:,} are allowed.")
    parameters = schemas[name].get("parameters") or {}
    known = parameters.get("properties") or {}
    unknown = [key for key in args if key not in known or not key.isidentifier()]
    missing = [key for key in parameters.get("required") or () if key not in args]
    if unknown or missing:
        problem = f"has no argument {unknown[0][:60]!r}" if unknown else f"needs {', '.join(missing)}"
        raise CallError(f"{name} {problem}. Its arguments are: {', '.join(known) or 'none'}.")
    return args


def _check_value(name: str, value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise CallError(f"The arguments of {name} are nested too deeply.")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise CallError(f"The keys in the arguments of {name} must be strings.")
            _check_value(name, item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_value(name, item, depth + 1)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise CallError(f"The arguments of {name} must be finite numbers.")
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise CallError(f"A number in the arguments of {name} is too large.")
    elif value is not None and not isinstance(value, str):
        raise CallError(f"The arguments of {name} must be JSON values.")
