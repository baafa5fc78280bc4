"""What a Magento shop says of itself through its REST interface, asked as its administrator."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from tasks.vwa.evaluators.verdict import CannotScore
from tasks.vwa.fetch import FetchError, fetch

_TOKEN = "/rest/default/V1/integration/admin/token"


@dataclass
class Magento:
    """The shop at ``url``; the token is asked for once."""

    url: str
    username: str = "admin"
    password: str = field(default="admin1234", repr=False)  # the official container's
    _token: str = field(default="", repr=False)

    def _get(self, path: str) -> Any:
        try:
            if not self._token:
                account = json.dumps({"username": self.username, "password": self.password}).encode()
                headers = {"Content-Type": "application/json"}
                self._token = str(json.loads(fetch(self.url + _TOKEN, data=account, headers=headers)))
            return json.loads(fetch(self.url + path, headers={"Authorization": f"Bearer {self._token}"}))
        except (FetchError, ValueError) as error:
            raise CannotScore(f"the shop at {self.url} does not answer its REST interface ({error})") from error

    def latest_order_url(self) -> str:
        """Address of the newest order's page.

        Raises:
            CannotScore: the shop does not answer, or has no orders.
        """
        order = "searchCriteria[sortOrders][0]"
        query = {f"{order}[field]": "created_at", f"{order}[direction]": "DESC", "searchCriteria[pageSize]": "1"}
        orders = self._get("/rest/V1/orders?" + urlencode(query)).get("items") or []
        if not orders:
            raise CannotScore(f"the shop at {self.url} has no orders")
        return f"{self.url}/sales/order/view/order_id/{int(orders[0]['increment_id'])}/"

    def latest_review(self, sku: str) -> dict[str, Any]:
        """The newest review of a product, {} where it has none."""
        reviews = self._get(f"/rest/V1/products/{quote(sku, safe='')}/reviews")
        return dict(reviews[-1]) if reviews else {}

    def latest_review_author(self, sku: str) -> str:
        """Nickname."""
        return str(self.latest_review(sku).get("nickname", ""))

    def latest_review_text(self, sku: str) -> str:
        """Text without its title."""
        return str(self.latest_review(sku).get("detail", ""))

    def latest_review_rating(self, sku: str) -> str:
        """Percent of the stars, as digits."""
        ratings = self.latest_review(sku).get("ratings") or []
        return str(ratings[0]["percent"]) if ratings else ""
