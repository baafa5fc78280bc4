"""BFCL multi-turn (Berkeley Function Calling Leaderboard, v3 paper: Patil et al., ICML 2025) on its own executor.

https://github.com/ShishirPatil/gorilla/tree/main/berkeley-function-call-leaderboard
"""

from __future__ import annotations

import ast
import atexit
import copy
import json
import math
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from envs.records import Action
from envs.tools.env import RESPOND
from envs.tools.world import CallError, Opening, Result, ToolsMissing

CATEGORIES = ("base", "long_context", "miss_func", "miss_param")
SYSTEM = (
    "You help the user by calling tools. Call the tools that the request needs, look at what they give, and go on "
    "until the request is met. Then say so in one sentence, without a call. If no tool can do it, or a needed value "
    "is missing, say that instead."
)
MAX_PRECISION = 1000  # digits; the executor would compute any number of them
MAX_POWER_BITS = 65_536
_REFUSED = "refused_call()"  # no such function: to the executor a call that fails


@cache
def load(category: str) -> dict[str, tuple[dict[str, Any], list[list[str]]]]:
    """Id -> (the entry, its gold calls by turn), in the benchmark's order.

    Raises:
        ToolsMissing: the package is not installed.
    """
    prepare()
    from bfcl_eval.utils import load_dataset_entry, load_ground_truth_entry

    name = f"multi_turn_{category}"
    entries, gold = load_dataset_entry(name), load_ground_truth_entry(name)
    found = {entry["id"]: (entry, truth["ground_truth"]) for entry, truth in zip(entries, gold, strict=True)}
    assert all(entry["id"] == truth["id"] for entry, truth in zip(entries, gold, strict=True))
    return found


@cache
def prepare() -> None:
    """Import the package, which makes folders where it is told, and beside itself where it is not."""
    if "BFCL_PROJECT_ROOT" not in os.environ:
        root = tempfile.mkdtemp(prefix="confkv-bfcl-")
        atexit.register(shutil.rmtree, root, ignore_errors=True)
        os.environ["BFCL_PROJECT_ROOT"] = root
    try:
        import bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker
        import bfcl_eval.utils  # noqa: F401
    except ImportError as error:
        raise ToolsMissing("bfcl-eval", error) from error


def call_source(name: str, args: Mapping[str, Any]) -> str:
    """A checked call as the Python the executor evaluates: ``name(key=literal, ...)``.

    An opening parenthesis inside a string is written as an escape: the executor rewrites ``word(`` wherever it stands.
    """
    return f"{name}({', '.join(f'{key}={_literal(value)}' for key, value in args.items())})"


def _literal(value: Any) -> str:
    return repr(value).replace("(", "\\x28")  # JSON values have parentheses in strings only


def gold_action(source: str, tools: Sequence[Mapping[str, Any]]) -> Action:
    """A gold call of the benchmark as an action; positional arguments get their names from the schema."""
    node = ast.parse(source, mode="eval").body
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    name = node.func.id
    schema = next(tool["function"] for tool in tools if tool["function"]["name"] == name)
    names = list(schema["parameters"]["properties"])
    args = {key: ast.literal_eval(value) for key, value in zip(names, node.args, strict=False)}
    args |= {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    return {"name": name, "args": args}


def openai_schema(function: Mapping[str, Any]) -> dict[str, Any]:
    """A function of the benchmark's documents as OpenAI's schema: its types by their JSON names, no response."""
    kept = {key: function[key] for key in ("name", "description", "parameters")}
    return {"type": "function", "function": _json_types(kept)}


def _json_types(node: Any) -> Any:
    from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI

    if isinstance(node, list):
        return [_json_types(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: GORILLA_TO_OPENAPI.get(value, value) if key == "type" and isinstance(value, str) else _json_types(value)
        for key, value in node.items()
    }


class BfclWorld:
    """One entry: simulated interfaces of its own for each episode, removed when it is over.

    Args:
        entry_id: as the benchmark writes it, e.g. ``multi_turn_base_0``.

    Raises:
        KeyError: there is no such entry.
        ToolsMissing: the package is not installed.
    """

    def __init__(self, entry_id: str) -> None:
        category = entry_id.removeprefix("multi_turn_").rpartition("_")[0]
        self.name, self.category = entry_id, category
        self.entry, self.truth = load(category)[entry_id]
        missed = self.entry.get("missed_function", {})
        self._added = {int(turn): [openai_schema(doc) for doc in docs] for turn, docs in missed.items()}
        self._first = [openai_schema(doc) for doc in self.entry["function"]]
        self._owner = ""
        self._begin()

    def _begin(self) -> None:
        self._turn, self._tools = 0, list(self._first)
        self._calls: list[list[list[str]]] = [[]]
        self._over = False

    @property
    def tools(self) -> Sequence[dict[str, Any]]:
        """See :class:`envs.tools.world.World`."""
        return self._tools

    @property
    def hidden(self) -> Sequence[dict[str, Any]]:
        """See :class:`envs.tools.world.World`. The official executor has what is held out from the beginning."""
        return [tool for turn, added in self._added.items() if turn > self._turn for tool in added]

    @property
    def turn(self) -> int:
        """See :class:`envs.tools.world.World`."""
        return self._turn

    def start(self) -> Opening:
        """See :class:`envs.tools.world.World`."""
        self.close()
        self._begin()
        # The executor keeps its instances by this name: an episode shares none with another.
        self._owner = f"confkv{uuid.uuid4().hex}"
        return Opening(SYSTEM, self._message(), tuple(self._tools))

    def call(self, name: str, args: Mapping[str, Any]) -> Result:
        """See :class:`envs.tools.world.World`."""
        _check_cost(name, args)
        source = call_source(name, args)
        (content,) = self._execute([source])
        self._calls[-1].append([source])
        return Result(content)

    def refused(self) -> None:
        """See :class:`envs.tools.world.World`. The official protocol counts a failed call too: the turn has a step."""
        self._calls[-1].append([_REFUSED])

    def respond(self, text: str) -> str | None:
        """See :class:`envs.tools.world.World`. The text itself counts for nothing, as in the official protocol."""
        if self._turn + 1 == len(self.entry["question"]):
            self._over = True
            return None
        self._turn += 1
        self._calls.append([])
        self._tools += self._added.get(self._turn, [])
        return self._message()

    def turns_ok(self) -> int:
        """Turns from the first on that the official checker holds right."""
        done = len(self._calls) - (not self._over)
        for turns in range(1, done + 1):
            if not self._check(turns)["valid"]:
                return turns - 1
        return done

    def score(self) -> tuple[float, str]:
        """See :class:`envs.tools.world.World`. The official checker's verdict; all turns have to be right."""
        total = len(self.truth)
        verdict = self._check(total) if self._over else {"valid": False, "error_type": "not played to its end"}
        if verdict["valid"]:
            return 1.0, ""
        return 0.0, f"turns_ok {self.turns_ok()} of {total}: {verdict.get('error_type', 'wrong')}"

    def gold(self) -> list[Action]:
        """See :class:`envs.tools.world.World`."""
        tools = [*self._first, *(tool for added in self._added.values() for tool in added)]
        actions: list[Action] = []
        for turn in self.truth:
            actions += [gold_action(source, tools) for source in turn]
            actions.append({"name": RESPOND, "args": {"text": "Done."}})
        return actions

    def close(self) -> None:
        """See :class:`envs.tools.world.World`."""
        if self._owner:
            _forget(self._owner)
        self._owner = ""

    def _message(self) -> str:
        question = self.entry["question"][self._turn]
        if question:
            return "\n".join(str(message["content"]) for message in question)
        from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING as ADDED

        # The session is only ever appended to, so new tools come with the message, as to models without `tools=`.
        docs = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in self._added.get(self._turn, []))
        return ADDED.format(functions=docs)

    def _execute(self, sources: list[str]) -> list[str]:
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call as execute

        entry = self.entry
        found, _ = execute(
            sources,
            copy.deepcopy(entry["initial_config"]),
            entry["involved_classes"],
            self._owner,
            entry["id"],
            long_context=self.category == "long_context",
        )
        return list(found)

    def _check(self, turns: int) -> dict[str, Any]:
        """The official checker's verdict on the first ``turns`` turns."""
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

        judge = f"confkv{uuid.uuid4().hex}"
        try:
            return dict(
                multi_turn_checker(
                    self._calls[:turns], self.truth[:turns], self.entry, f"multi_turn_{self.category}", judge
                )
            )
        finally:
            _forget(judge)


def _forget(owner: str) -> None:
    """Delete the instances that the executor keeps for ``owner``."""
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils

    kept = vars(multi_turn_utils)
    for name in [name for name in list(kept) if name.startswith(owner)]:
        del kept[name]


def _check_cost(name: str, args: Mapping[str, Any]) -> None:
    """The executor has no deadline: refuse the arguments with which its arithmetic would not come to an end.

    Raises:
        CallError: it would not.
    """
    for key in ("precision", "decimal_places"):
        value = args.get(key)
        if isinstance(value, int | float) and abs(value) > MAX_PRECISION:
            raise CallError(f"{key} must be at most {MAX_PRECISION}.")
    base, exponent = args.get("base"), args.get("exponent")
    if name == "power" and isinstance(base, int | float) and isinstance(exponent, int | float):
        bits = math.log2(max(2.0, abs(base))) * abs(exponent)
        if bits > MAX_POWER_BITS:
            raise CallError("The result of power would be too large.")
