"""demo/shop: order one product with a code that only an earlier page shows."""

from __future__ import annotations

from envs.records import TaskSpec
from tasks.demo.catalogue import catalogue
from tasks.demo.server import Shop

HOST = "shop.example"
SUMMARY = "order a product in a small shop; the order form needs a code that only the home page shows"


class ShopTask:
    """Scored on what the server has accepted, not on what a page or the agent says."""

    def __init__(self) -> None:
        self._shop: Shop | None = None

    @property
    def shop(self) -> Shop:
        """The running shop (after ``start``)."""
        if self._shop is None:
            raise RuntimeError("start() opens the shop")
        return self._shop

    def start(self, seed: int) -> TaskSpec:
        """Stock the shelf; a host name hides the port, so that pages read the same on every machine."""
        stock = catalogue(seed)
        if self._shop is None:
            self._shop = Shop(stock)
        else:
            self._shop.stock(stock)
        return {
            "goal": f"Order the {stock.wanted.name} with the pickup code in the notice.",
            "url": f"http://{HOST}/",
            "hosts": {HOST: f"127.0.0.1:{self._shop.port}"},
            "seed": seed,
        }

    def score(self, answer: str | None) -> tuple[float, bool]:
        """1 if the first accepted order is the right product; over with the first order (or an answer)."""
        orders = self.shop.orders
        right = bool(orders) and orders[0].slug == self.shop.catalogue.wanted.slug
        return (1.0 if right else 0.0), bool(orders)

    def close(self) -> None:
        """Close the shop."""
        if self._shop is not None:
            self._shop.close()
            self._shop = None
