"""What a policy is: orthogonal choices, no state. State lives in the session's store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from confkv.errors import PolicyError
from confkv.policies.budget import Budget, Unlimited
from confkv.policies.ranker import Ranker, Recency
from confkv.policies.recall import Recall

if TYPE_CHECKING:
    from confkv.policies.adakv import HeadShares

Scope = Literal["layer", "head"]


@dataclass(frozen=True)
class Storage:
    """How kept positions are stored.

    Attributes:
        int8: keep positions older than the window as INT8 codes; otherwise everything stays in the model's dtype.
        window: newest positions that always stay in the model's dtype (W in the paper).
    """

    int8: bool = False
    window: int = 128


@dataclass(frozen=True)
class Policy:
    """One composition of the axes.

    Attributes:
        name: name in the registry.
        spec: canonical command-line form, parameters included.
        budget: how many competing positions each layer may keep.
        ranker: which of them.
        scope: whether the heads of a layer share one kept set.
        storage: precision of what is kept.
        protect: newest positions that are never evicted (P in the paper).
        sinks: first positions of the session that are never evicted.
        block: positions of one aligned block of so many are evicted together (1: each on its own).
        cache_positions: attention sees a key at its index in the cache, not at its position in the text.
        recall: when and how evicted positions come back; None: never.
        guard: share of each layer's budget that is spent on the rarest tokens (:class:`confkv.rarity.Rarity`), whatever
            the ranker says; of each head's, where those have budgets of their own.
        shares: how the heads of a layer share its budget; None: each gets as much as the others.
    """

    name: str
    spec: str
    budget: Budget = field(default_factory=Unlimited)
    ranker: Ranker = field(default_factory=Recency)
    scope: Scope = "layer"
    storage: Storage = field(default_factory=Storage)
    protect: int = 32
    sinks: int = 4
    block: int = 1
    cache_positions: bool = False
    recall: Recall | None = None
    guard: float = 0.0
    shares: HeadShares | None = None

    def __post_init__(self) -> None:
        if self.protect < 1:
            raise PolicyError(f"policy {self.name}: protect={self.protect} must be at least 1")
        if self.sinks < 0:
            raise PolicyError(f"policy {self.name}: sinks={self.sinks} must not be negative")
        if self.storage.window < 1:
            raise PolicyError(f"policy {self.name}: w={self.storage.window} must be at least 1")
        if self.block < 1:
            raise PolicyError(f"policy {self.name}: block={self.block} must be at least 1")
        if self.block > 1 and self.scope == "head":
            # Blocks differ in how many of their positions compete, so the heads of a layer would differ in length.
            raise PolicyError(f"policy {self.name}: block={self.block} needs scope=layer")
        smallest = self.budget.smallest
        # A block that reaches into what is protected cannot leave yet.
        cut = self.block if self.block > 1 else 0
        if smallest is not None and cut and smallest < self.protect + self.sinks + cut:
            raise PolicyError(
                f"policy {self.name}: the smallest budget ({smallest}) is below protect + sinks + block "
                f"({self.protect} + {self.sinks} + {cut}); raise the budget or lower one of them"
            )
        if smallest is not None and smallest < self.protect + self.sinks:
            raise PolicyError(
                f"policy {self.name}: the smallest budget ({smallest}) is below protect + sinks "
                f"({self.protect} + {self.sinks}); raise the budget or lower protect or sinks"
            )
        left = smallest - int(self.guard * smallest) if smallest is not None else 0
        if smallest is not None and left < self.protect + self.sinks + cut:
            raise PolicyError(
                f"policy {self.name}: guard={self.guard:g} leaves {left} of the smallest "
                f"budget ({smallest}), less than protect + sinks + block ({self.protect} + {self.sinks} + {cut}); "
                "raise the budget or lower one of them"
            )
        if self.recall is not None and self.recall.page > self.protect:
            # Pages are archived whole, before the first of their positions can be evicted.
            raise PolicyError(f"policy {self.name}: page={self.recall.page} must not exceed protect={self.protect}")
        if self.shares is not None and self.scope == "layer":
            raise PolicyError(f"policy {self.name}: heads=ada needs scope=head; heads that share one set keep as much")
        if self.shares is not None and (self.recall is not None or self.cache_positions):
            # Both take it that the heads of a layer hold equally many.
            raise PolicyError(f"policy {self.name}: heads with budgets of their own go with neither recall nor -rel")

    def guarded(self, budget: int) -> int:
        """Positions that are guarded, at most, of a layer's budget, or of a head's.

        A share may leave a head little more than what it cannot drop; no more than the rest is guarded there.
        """
        return min(int(self.guard * budget), budget - self.reserve)

    @property
    def looks(self) -> bool:
        """Whether uncertain tokens are run again with recalled positions."""
        return self.recall is not None and self.recall.look

    @property
    def uneven(self) -> bool:
        """Whether layers, or the heads of a layer, may differ in how many positions they keep."""
        return self.budget.uneven or self.shares is not None

    @property
    def reserve(self) -> int:
        """The part of a budget that no head can put to another use: the newest positions and the sinks."""
        return self.protect + self.sinks

    @property
    def evicts(self) -> bool:
        """Whether the policy can ever drop a position."""
        return self.budget.smallest is not None
