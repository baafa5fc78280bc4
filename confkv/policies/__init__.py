"""Eviction policies: each is a composition of five choices (trigger, budget, ranker, scope, storage)."""

from confkv.policies.base import Policy, Storage
from confkv.policies.params import PolicyInfo
from confkv.policies.registry import list_policies, parse_policy

__all__ = ["Policy", "PolicyInfo", "Storage", "list_policies", "parse_policy"]
