"""Sizes by share: the largest size at which a policy never allocates more than a part of what full KV holds."""

from __future__ import annotations

from collections.abc import Callable

from confkv.errors import PolicyError
from confkv.policies import Policy
from tasks.bench.matching import Candidate
from tasks.bench.model import Model
from tasks.errors import TaskError

_PROBES = 6
#: Room below the target that is not worth another probe.
_SLACK = 0.01


def peak(model: Model, policy: Policy, before: list[int], after: list[int], segment: str, question: str) -> int:
    """Peak bytes of a session over a text, by as much of it as fills the budget.

    What evicts allocates most when a chunk comes on top of a full budget, or with the question, both of which
    come once the text is longer than the budget by some chunks; the rest of the text changes nothing.
    """
    # A pyramid gives single layers up to twice the nominal budget.
    budget = (policy.budget.at(None) or len(before)) * (2 if policy.budget.uneven else 1)
    session = model.engine(policy).session()
    session.extend(before[: budget + 4 * model.chunk], segment)
    # As the bench asks: in a fork, whose store begins without room to spare.
    twin = session.fork()
    twin.extend(after, question)
    for _ in twin.generate(3, temperature=0.0, stop_ids=[]):
        pass
    return twin.stats.peak_bytes


def largest(measure: Callable[[int], int], target: float, guess: int) -> int:
    """The largest size found whose peak does not exceed the target; bytes over size are very nearly a line.

    Args:
        measure: peak bytes at a size; PolicyError where the size is too small to be built.
        target: bytes.
        guess: where to begin.

    Raises:
        PolicyError, TaskError: nothing fits, and why.
    """
    known: dict[int, int] = {}
    size = max(1, guess)
    for _ in range(_PROBES):
        try:
            known[size] = measure(size)
        except PolicyError:
            if not known:
                raise
            break
        if target * (1 - _SLACK) <= known[size] <= target:
            return size
        # Through the two nearest sizes known; through the origin until there are two.
        near = sorted(known, key=lambda n: abs(known[n] - target))[:2]
        if len(near) == 2 and known[near[0]] != known[near[1]]:
            slope = (known[near[0]] - known[near[1]]) / (near[0] - near[1])
        else:
            slope = known[size] / size
        size = int(near[0] + (target - known[near[0]]) / slope)
        if size in known:
            break
        if size < 1:
            break
    fits = [n for n, found in known.items() if found <= target]
    if not fits:
        raise TaskError(
            f"{min(known.values()):,} bytes at a size of {min(known):,} exceed the share of {target:,.0f}; "
            "lower --chunk (it comes on top of the budget) or --share"
        )
    return max(fits)


def sized(chosen: Candidate, measure: Callable[[Policy], int], target: float, guess: int) -> Policy:
    """The candidate at the largest size within the target; as written where it has no size.

    Raises:
        TaskError: no size fits.
    """
    at = chosen.at
    if at is None or chosen.size is None:
        return chosen.policy

    try:
        return at(largest(lambda size: measure(at(size)), target, guess))
    except PolicyError as error:
        raise TaskError(f"no size of {chosen.label} fits the share ({error}); lower --chunk or --share") from error
    except TaskError as error:
        raise TaskError(f"{chosen.label}: {error}") from error
