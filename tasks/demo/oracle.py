"""Plays demo/shop without a model: reads the code on the home page and orders what the goal names."""

from __future__ import annotations

import re

from envs.records import Action, Observation
from tasks.grid.agents import action, element


class ShopOracle:
    """One order; keeps the code between pages, which is what the task is about."""

    def __init__(self) -> None:
        self._code = ""
        self._filled = False

    def act(self, observation: Observation) -> Action:
        """The next of four actions.

        Raises:
            LookupError: the page has not what it should have.
        """
        text = observation["text"]
        if notice := re.search(r"the pickup code is (\w+)\.", text):
            self._code = notice[1]
            wanted = re.fullmatch(r"Order the (.+) with the pickup code in the notice\.", observation["goal"])
            if wanted is None:
                raise LookupError(f"the goal names no product: {observation['goal']}")
            return action("click", id=element(text, "link", wanted[1]))
        if "/product/" in observation["url"]:
            return action("click", id=element(text, "link", "Order this"))
        if not self._filled:
            self._filled = True
            return action("fill", id=element(text, "textbox", "Pickup code"), text=self._code)
        return action("click", id=element(text, "button", "Place order"))
