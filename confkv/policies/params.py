"""Parameters of named policies: their declaration, and the checks that several policies share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confkv.errors import PolicyError
from confkv.policies.base import Policy, Scope, Storage
from confkv.policies.budget import Fixed
from confkv.policies.ranker import Ranker

Value = int | float | str


@dataclass(frozen=True)
class PolicyInfo:
    """One line of ``confkv policies``."""

    name: str
    summary: str
    params: Mapping[str, Value]
    paper: str | None
    positional: str | None = None


@dataclass(frozen=True)
class Entry:
    """A named policy: what is said about it, and how it is composed from its name, spec and parameters."""

    info: PolicyInfo
    build: Callable[[str, str, dict[str, Value]], Policy]


#: How kept positions are stored: ``int8`` for those older than the newest ``w``.
STORAGE: dict[str, Value] = {"int8": 0, "w": 128}


def storage(p: Mapping[str, Value], window: str = "w") -> Storage:
    """The storage axis; ``window`` names the parameter that holds its window."""
    return Storage(int8=bool(p["int8"]), window=int(p[window]))


def scope(p: Mapping[str, Value]) -> Scope:
    """The scope axis."""
    value = p["scope"]
    if value == "layer":
        return "layer"
    if value == "head":
        return "head"
    raise PolicyError(f"scope={value} is not a scope; use scope=layer or scope=head")


def fraction(p: Mapping[str, Value], key: str) -> float:
    """A parameter that lies between 0 and 1."""
    value = float(p[key])
    if not 0.0 <= value <= 1.0:
        raise PolicyError(f"{key}={value:g} must lie between 0 and 1")
    return value


def flag(p: Mapping[str, Value], key: str) -> bool:
    """A parameter that is 0 or 1."""
    if p[key] not in (0, 1):
        raise PolicyError(f"{key}={p[key]} must be 0 or 1")
    return bool(p[key])


def at_least(p: Mapping[str, Value], key: str, least: int) -> int:
    """A whole number with a lower end."""
    value = int(p[key])
    if value < least:
        raise PolicyError(f"{key}={value} must be at least {least}")
    return value


def fixed(ranker: Ranker, name: str, spec: str, p: Mapping[str, Value]) -> Policy:
    """``n`` positions by a ranker, ``protect`` and ``sinks`` among them."""
    return Policy(name, spec, Fixed(int(p["n"])), ranker, scope(p), storage(p), int(p["protect"]), int(p["sinks"]))
