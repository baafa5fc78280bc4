"""Equal bytes: a policy's size is solved so that its mean device bytes are those of another policy.

Nominal budgets do not compare: policies differ in precision, metadata, and in how long they stay below their budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from confkv.errors import PolicyError
from confkv.policies import Policy, list_policies, parse_policy
from tasks.errors import TaskError

#: Parameters that set a policy's size, the first set that it has all of. Sets are scaled together.
SIZES = (("n",), ("n_high", "n_low"))
#: How far a solved policy may lie above the target before the next smaller size is taken: rounding only, so that
#: "within 2%" does not become "2% more for everyone but the reference".
OVER = 0.001

Build = Callable[[int], Policy]


@dataclass(frozen=True)
class Candidate:
    """A policy to compare.

    Attributes:
        label: what the table calls it.
        policy: as it was written.
        size: its own size (the first size parameter); None where it has none (``full``).
        single: whether the budget is fixed: one size parameter, or all of them equal.
        at: the same policy at another size, its other size parameters scaled along; None where ``size`` is.
    """

    label: str
    policy: Policy
    size: int | None = None
    single: bool = False
    at: Build | None = None


def parameters(spec: str) -> dict[str, int | float | str]:
    """All parameters of a spec, those at their default too."""
    policy = parse_policy(spec)
    name, _, rest = policy.spec.partition(":")
    info = next(info for info in list_policies() if info.name == name)
    values = dict(info.params)
    for piece in filter(None, rest.split(",")):
        key, eq, text = piece.partition("=")
        if not eq:
            key, text = str(info.positional), piece
        values[key] = type(info.params[key])(text)
    return values


def candidate(spec: str, label: str | None = None) -> Candidate:
    """A spec as a candidate, e.g. ``confkv:tau=0.5``; its ratio of n_high to n_low is kept at every size.

    Raises:
        PolicyError: unknown policy or parameter.
    """
    policy = parse_policy(spec)
    name = policy.spec.partition(":")[0]
    values = parameters(policy.spec)
    names = next((names for names in SIZES if all(key in values for key in names)), None)
    if names is None:
        return Candidate(label or spec, policy)
    size = int(values[names[0]])
    shares = {key: int(values[key]) / size for key in names}

    def at(size: int) -> Policy:
        sized = values | {key: max(1, round(size * share)) for key, share in shares.items()}
        return parse_policy(f"{name}:{','.join(f'{key}={value}' for key, value in sized.items())}")

    return Candidate(label or spec, policy, size, set(shares.values()) == {1.0}, at)


@dataclass(frozen=True)
class Solution:
    """A solved size.

    Attributes:
        size: the size.
        value: mean bytes at that size.
        ratio: value / target.
        matched: whether the ratio is within the tolerance.
        probes: sizes that were tried.
    """

    size: int
    value: float
    ratio: float
    matched: bool
    probes: int


def fill(
    measure: Callable[[int], tuple[int, bool]], slots: int, guess: int, *, slack: float = 0.02, probes: int = 9
) -> int | None:
    """The size of a policy that fills an allocation of ``slots`` positions without outgrowing it.

    Use follows size one for one, but for what an uncertain stretch adds, so each probe corrects the next by what was
    left over or lacking; a bracket keeps that from going in circles.

    Args:
        measure: positions used at a size, and whether the allocation was outgrown; PolicyError: too small to be built.
        slots: positions allocated. guess: where to begin.
        slack: share of the slots that may stay empty.

    Returns:
        The largest size found that fits, None where none did.
    """
    low: int | None = None
    high: int | None = None
    fits: int | None = None
    reached, size = -1, guess
    for _ in range(probes):
        try:
            used, grown = measure(size)
        except PolicyError:
            used, grown, low = 0, False, size
        else:
            if grown:
                high = size
            else:
                if slots - used <= slack * slots or used == reached:
                    fits = size
                    break  # filled; or a larger size does not hold more, since the text is too short
                low, fits, reached = size, size, used
        nearer = size + (min(slots - used, -1) if grown else max(slots - used, 1))
        if high is not None and nearer >= high:
            nearer = ((low or 0) + high) // 2
        if low is not None and nearer <= low:
            nearer = (low + high) // 2 if high is not None else low + 1
        if nearer < 1:
            nearer = max(1, slots // 2)
        if nearer in (low, high):
            break
        size = nearer
    return fits


def solve(
    measure: Callable[[int], float],
    target: float,
    guess: int,
    *,
    tolerance: float = 0.02,
    accept: float | None = None,
    probes: int = 18,
    largest: int = 1 << 20,
) -> Solution:
    """The largest size whose measured bytes do not exceed the target, by bracketing and bisection.

    For policies whose store cannot be allocated at once (:func:`fill`). It grows in blocks, so bytes over size are a
    staircase: on one stair the largest size is the fair one, since the policy pays for the whole stair. Where that
    size is further below the target than the tolerance allows, the closest size that was tried is taken.

    Args:
        measure: mean bytes at a size, non-decreasing; may raise PolicyError where a size is too small for the policy.
        target: bytes to meet.
        guess: where to begin.
        tolerance: relative distance that counts as matched.
        accept: the guess itself is taken where it is this close.
        probes: sizes to try at most.
        largest: no size above.

    Raises:
        TaskError: no size that was tried can be built.
    """
    values: dict[int, float] = {}

    def fits(size: int) -> bool:
        if size not in values:
            try:
                values[size] = measure(size)
            except PolicyError:
                values[size] = float("-inf")  # too small to be built
        return values[size] <= target * (1 + OVER)

    low, high = (guess, None) if fits(guess) else (None, guess)
    if accept is not None and abs(values[guess] / target - 1) <= accept:
        return _solution(values, guess, target, tolerance)
    step = max(1, guess // 4)
    while low is not None and high is None and low < largest and len(values) < probes:
        size = min(low + step, largest)
        low, high, step = (size, None, 2 * step) if fits(size) else (low, size, step)
    while low is None and high is not None and high > 1 and len(values) < probes:
        size = max(high - step, 1)
        low, high, step = (size, high, step) if fits(size) else (None, size, 2 * step)
    while low is not None and high is not None and high - low > 1 and len(values) < probes:
        near = values[low] >= target * (1 - tolerance)
        if near and high - low <= low // 50:
            break
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    built = [size for size, value in values.items() if value > 0]
    if not built:
        raise TaskError("no size of the policy can be built near the match; match a larger one")
    if low is None or values[low] < target * (1 - tolerance):
        best = min(abs(values[size] / target - 1) for size in built)
        near_best = [size for size in built if abs(values[size] / target - 1) <= best + tolerance / 4]
        # Of two as far, one above and one below, the one below; of one stair, its largest.
        below = [size for size in near_best if values[size] <= target]
        low = max(below or near_best)
    return _solution(values, low, target, tolerance)


def _solution(values: dict[int, float], size: int, target: float, tolerance: float) -> Solution:
    ratio = values[size] / target
    return Solution(size, values[size], ratio, abs(ratio - 1) <= tolerance, len(values))
