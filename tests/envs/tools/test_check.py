"""Calls are checked without any benchmark."""

from __future__ import annotations

import pytest

from envs.tools.check import MAX_ARGUMENTS, check_call
from envs.tools.world import CallError

TOOL = {
    "type": "function",
    "function": {
        "name": "book",
        "parameters": {"type": "object", "properties": {"city": {}, "nights": {}}, "required": ["city"]},
    },
}
HELD = {"type": "function", "function": {"name": "cancel", "parameters": {"properties": {}}}}


def test_a_good_call_passes_as_it_is():
    args = {"city": "Ulm", "nights": 2}
    assert check_call("book", args, [TOOL]) == args
    assert check_call("cancel", {}, [TOOL], [HELD]) == {}


def test_an_error_names_no_hidden_tool():
    with pytest.raises(CallError, match=r"There is no tool 'cancell'\. The tools are book\."):
        check_call("cancell", {}, [TOOL], [HELD])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "book needs city. Its arguments are: city, nights."),
        ({"city": "Ulm", "stars": 4}, "has no argument 'stars'"),
        ({"city": "x" * MAX_ARGUMENTS}, "at most 32,768"),
        ({"city": float("inf")}, "finite"),
        ({"city": {1: 2}}, "keys"),
        ({"city": b"Ulm"}, "JSON values"),
        (None, "must be a JSON object"),
    ],
)
def test_a_bad_call_is_told_in_words(args, said):
    with pytest.raises(CallError, match=said):
        check_call("book", args, [TOOL])


def test_a_deep_value_is_refused():
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(CallError, match="nested"):
        check_call("book", {"city": deep}, [TOOL])
