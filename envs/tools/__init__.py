"""Tool-use worlds behind gymnasium's ``reset`` and ``step``: BFCL multi-turn and tau2 telecom solo."""

from envs.tools.env import RESPOND, ToolEnv
from envs.tools.world import CallError, Opening, Result, World

__all__ = ["RESPOND", "CallError", "Opening", "Result", "ToolEnv", "World"]
