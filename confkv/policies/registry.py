"""The named policies and their command-line form ``name`` or ``name:key=value,...``."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from confkv.errors import PolicyError
from confkv.policies import adakv, controls, h2o, knorm, pyramidkv, scissorhands, snapkv, streaming, tova, zigzag
from confkv.policies.adakv import HEADS, with_shares
from confkv.policies.base import Policy
from confkv.policies.budget import Budget, ByConfidence, Fixed, Pyramid, Unlimited
from confkv.policies.mean import MeanMass
from confkv.policies.params import STORAGE, Entry, PolicyInfo, Value, at_least, flag, fraction, scope, storage
from confkv.policies.pyramidkv import ConfidentPyramid
from confkv.policies.ranker import Composite, Recency
from confkv.policies.recall import Gate, Recall
from confkv.policies.slow import SlowMass

_CONF_KV = "https://arxiv.org/abs/2605.24786"


def _full(name: str, spec: str, p: dict[str, Value]) -> Policy:
    return Policy(name, spec, Unlimited(), Recency(), storage=storage(p))


def _window(name: str, spec: str, p: dict[str, Value]) -> Policy:
    n, sinks = int(p["n"]), int(p["sinks"])
    protect = streaming.protected(n, sinks)
    return Policy(name, spec, Fixed(n), Recency(), storage=storage(p), protect=protect, sinks=sinks)


def _by_confidence(p: Mapping[str, Value]) -> ByConfidence:
    # tau may lie outside [0, 1]: above 1 never prunes to n_high, below 0 always does (the ablation's two ends).
    budget = ByConfidence(
        int(p["n_high"]), int(p["n_low"]), float(p["tau"]), fraction(p, "adaptive"), at_least(p, "shuffle", 0)
    )
    if budget.n_high > budget.n_low:
        raise PolicyError(
            f"n_high={budget.n_high} (budget when confident) exceeds n_low={budget.n_low} (when uncertain); swap them"
        )
    return budget


def _compose(name: str, spec: str, p: dict[str, Value], budget: Budget) -> Policy:
    ranker = Composite(fraction(p, "alpha"), fraction(p, "decay"))
    protect, sinks, block = int(p["protect"]), int(p["sinks"]), int(p["block"])
    guard = fraction(p, "guard")
    return Policy(name, spec, budget, ranker, scope(p), storage(p), protect, sinks, block, guard=guard)


def _confkv(name: str, spec: str, p: dict[str, Value]) -> Policy:
    return with_shares(_compose(name, spec, p, _by_confidence(p)), p)


def _confkv_l(name: str, spec: str, p: dict[str, Value]) -> Policy:
    base, budget = _by_confidence(p), Pyramid(_by_confidence(p), int(p["floor"]), fraction(p, "ratio"))
    if _one_of(p, "curve", "paper", "pyramidkv") == "paper":
        return with_shares(_compose(name, spec, p, budget), p)
    # The least that a layer can do with: all that does not compete, and a guard's share of the whole.
    block = int(p["block"]) if int(p["block"]) > 1 else 0
    least = math.ceil((int(p["protect"]) + int(p["sinks"]) + block) / (1.0 - min(fraction(p, "guard"), 0.99)))
    return with_shares(_compose(name, spec, p, ConfidentPyramid(base, least)), p)


def _confkv_mean(name: str, spec: str, p: dict[str, Value]) -> Policy:
    protect, sinks, ranker = int(p["protect"]), int(p["sinks"]), MeanMass(flag(p, "values"))
    guard = fraction(p, "guard")
    policy = Policy(name, spec, _by_confidence(p), ranker, scope(p), storage(p), protect, sinks, guard=guard)
    return with_shares(policy, p)


def _confkv_slow(name: str, spec: str, p: dict[str, Value]) -> Policy:
    budget, sinks = _by_confidence(p), int(p["sinks"])
    if float(p["horizon"]) <= 0:
        raise PolicyError(f"horizon={p['horizon']} must be above 0")
    ranker = SlowMass(float(p["horizon"]) * budget.n_high)
    newest = max(1, int(budget.n_high * fraction(p, "recent")) - sinks)
    policy = Policy(name, spec, budget, ranker, scope(p), storage(p), newest, sinks, guard=fraction(p, "guard"))
    return with_shares(policy, p)


def _one_of(p: Mapping[str, Value], key: str, *choices: str) -> Any:
    value = p[key]
    if value not in choices:
        raise PolicyError(f"{key}={value} is unknown; use one of {', '.join(f'{key}={x}' for x in choices)}")
    return value


def _recall(name: str, spec: str, p: dict[str, Value]) -> Policy:
    recall = Recall(
        look=name == "confkv-look",
        gate=_one_of(p, "gate", *get_args(Gate)),
        tau=float(p["tau"]),
        missing=fraction(p, "missing"),
        rate=fraction(p, "rate"),
        seed=int(p["seed"]),
        question=int(p["question"]),
        opening=int(p["opening"]),
        share=fraction(p, "share"),
        page=int(p["page"]),
        storage=_one_of(p, "archive", "int8", "fp"),
        megabytes=float(p["archive_mb"]),
        index=_one_of(p, "index", "host", "device"),
        reads=flag(p, "reads"),
    )
    policy = replace(_compose(name, spec, p, _by_confidence(p)), recall=recall)
    if recall.gate == "missing" and policy.storage.int8:
        raise PolicyError("gate=missing compares keys in full precision; leave int8=0")
    horizon = float(p["horizon"])
    if horizon < 0:
        raise PolicyError(f"horizon={horizon:g} must not be negative")
    return replace(policy, ranker=SlowMass(horizon * int(p["n_high"]))) if horizon else policy


_CONF: dict[str, Value] = {
    "n_high": 128,
    "n_low": 256,
    "tau": 0.7,
    "alpha": 0.65,
    "decay": 0.9,
    "protect": 32,
    "sinks": 4,
    "scope": "layer",
    "adaptive": 0.0,
    "shuffle": 0,
    "block": 1,
    "guard": 0.0,
    **STORAGE,
}

_MEAN: dict[str, Value] = {
    # One budget: what a confident step drops is gone for the uncertain one after it.
    "n_high": 192,
    "n_low": 192,
    "tau": 0.7,
    "protect": 64,
    "sinks": 4,
    "scope": "head",
    "values": 0,
    "adaptive": 0.0,
    "shuffle": 0,
    "guard": 0.0,
    **STORAGE,
    **HEADS,
}

_SLOW: dict[str, Value] = {
    # What a confident step drops is gone for the uncertain one after it, so the two differ by little.
    "n_high": 184,
    "n_low": 192,
    "tau": 0.7,
    "horizon": 2.0,
    "recent": 0.5,
    "sinks": 4,
    "scope": "head",
    "adaptive": 0.0,
    "shuffle": 0,
    "guard": 0.0,
    **STORAGE,
    **HEADS,
}

_RECALL: dict[str, Value] = {
    **_CONF,
    # One budget: what came back for the next token must survive a confident step to be of use to it.
    "n_high": 192,
    "n_low": 192,
    "scope": "head",
    # 0: confkv's own score, with alpha and decay.
    "horizon": 2.0,
    "share": 0.5,
    "gate": "confidence",
    "missing": 0.1,
    "rate": 0.5,
    "seed": 0,
    "question": 1,
    "opening": 32,
    "page": 2,
    "archive": "int8",
    "archive_mb": 1024.0,
    "index": "host",
    "reads": 1,
}

_REGISTRY: dict[str, Entry] = {
    "full": Entry(PolicyInfo("full", "keep every position", STORAGE, None), _full),
    "window": Entry(
        PolicyInfo(
            "window",
            "keep the newest N positions, nothing else (window:512)",
            {"n": 512, "sinks": 0, **STORAGE},
            "https://arxiv.org/abs/2004.05150",
            positional="n",
        ),
        _window,
    ),
    "confkv": Entry(
        PolicyInfo(
            "confkv",
            "budget by confidence, ranked by attention mass (EMA) and recency",
            {**_CONF, **HEADS},
            _CONF_KV,
        ),
        _confkv,
    ),
    "confkv-l": Entry(
        PolicyInfo(
            "confkv-l",
            "confkv with a pyramid over depth: deeper layers keep less (curve=pyramidkv: N on average)",
            {**_CONF, "floor": 96, "ratio": 0.5, "curve": "paper", **HEADS},
            _CONF_KV,
        ),
        _confkv_l,
    ),
    "confkv-mean": Entry(
        PolicyInfo(
            "confkv-mean",
            "confkv ranked, per head, by the mean attention mass over all queries that could see a position",
            _MEAN,
            _CONF_KV,
        ),
        _confkv_mean,
    ),
    "confkv-slow": Entry(
        PolicyInfo(
            "confkv-slow",
            "confkv ranked, per head, by attention mass that decays over `horizon` budgets; half is the newest",
            _SLOW,
            _CONF_KV,
        ),
        _confkv_slow,
    ),
    "confkv-recall": Entry(
        PolicyInfo(
            "confkv-recall",
            "confkv whose evicted positions come back from an archive in the pass after an uncertain step",
            _RECALL,
            _CONF_KV,
        ),
        _recall,
    ),
    "confkv-look": Entry(
        PolicyInfo(
            "confkv-look",
            "confkv-recall that runs an uncertain token again unless its pass had recalled for it",
            _RECALL,
            _CONF_KV,
        ),
        _recall,
    ),
    **{
        entry.info.name: entry
        for entry in (
            *streaming.ENTRIES,
            h2o.ENTRY,
            scissorhands.ENTRY,
            snapkv.ENTRY,
            pyramidkv.ENTRY,
            zigzag.ENTRY,
            adakv.ENTRY,
            tova.ENTRY,
            knorm.ENTRY,
            *controls.ENTRIES,
        )
    },
}


def list_policies() -> list[PolicyInfo]:
    """Every named policy with its parameters, defaults and paper."""
    return [entry.info for entry in _REGISTRY.values()]


def _value(key: str, text: str, default: Value) -> Value:
    if isinstance(default, str):
        return text
    try:
        value: Value = int(text) if isinstance(default, int) else float(text)
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise PolicyError(f"{key}={text!r} is not {kind}; the default is {key}={default}") from None
    if key == "int8" and value not in (0, 1):
        raise PolicyError(f"int8={text} must be 0 or 1")
    return value


def parse_policy(text: str) -> Policy:
    """The policy a command-line string names.

    Args:
        text: ``name``, ``name:key=value,...`` or, where there is one main parameter, ``name:value`` (``window:512``).

    Raises:
        PolicyError: unknown name or parameter, or a value out of range; one line that lists what is known.
    """
    name, _, rest = text.strip().partition(":")
    entry = _REGISTRY.get(name)
    if entry is None:
        near = difflib.get_close_matches(name, _REGISTRY, 1)
        hint = f"did you mean '{near[0]}'? (see `confkv policies`)" if near else f"known: {', '.join(_REGISTRY)}"
        raise PolicyError(f"unknown policy '{name}'; {hint}")
    info = entry.info
    params: dict[str, Value] = dict(info.params)
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, eq, value = part.partition("=")
        key, value = key.strip(), value.strip()
        if not eq:
            if info.positional is None:
                raise PolicyError(f"policy {name}: '{part}' should be key=value; keys: {', '.join(info.params)}")
            key, value = info.positional, part
        if key not in params:
            raise PolicyError(f"policy {name} has no parameter '{key}'; it has: {', '.join(info.params)}")
        params[key] = _value(key, value, info.params[key])
    changed = [f"{key}={value}" for key, value in params.items() if value != info.params[key]]
    spec = name if not changed else f"{name}:{','.join(changed)}"
    if name == "window":
        extra = [piece for piece in changed if not piece.startswith("n=")]
        spec = ",".join([f"window:{params['n']}", *extra])
    return entry.build(name, spec, params)
