"""The shop's server: standard library, a thread, a random port on the loopback address."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tasks.demo import pages
from tasks.demo.catalogue import Catalogue, Product


@dataclass(frozen=True)
class Order:
    """An order the shop has accepted."""

    slug: str
    code: str


class Shop:
    """Serves one catalogue at a time and remembers the orders; ``stock`` begins anew."""

    def __init__(self, shop: Catalogue) -> None:
        self._lock = threading.Lock()
        self._orders: list[Order] = []
        self.catalogue = shop
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def orders(self) -> list[Order]:
        """What was ordered since the shelf was last stocked."""
        with self._lock:
            return list(self._orders)

    def stock(self, shop: Catalogue) -> None:
        """A new shelf, no orders."""
        with self._lock:
            self.catalogue, self._orders = shop, []

    def get(self, path: str) -> tuple[int, str]:
        """Status and page of an address."""
        parts = [part for part in path.split("/") if part]
        if not parts:
            return 200, pages.home(self.catalogue)
        item = self._find(parts[1]) if len(parts) == 2 else None
        if item is not None and parts[0] == "product":
            return 200, pages.product(item)
        if item is not None and parts[0] == "order":
            return 200, pages.order(item)
        if item is not None and parts[0] == "done" and self.orders:
            return 200, pages.done(item, len(self.orders))
        return 404, pages.missing()

    def post(self, path: str, form: dict[str, list[str]]) -> tuple[int, str]:
        """Try to order: (303, address of the confirmation) or the form with the reason."""
        parts = [part for part in path.split("/") if part]
        item = self._find(parts[1]) if len(parts) == 2 and parts[0] == "order" else None
        if item is None:
            return 404, pages.missing()
        code = " ".join(form.get("code", [""])).strip()
        if not code:
            return 200, pages.order(item, "Please enter the pickup code.")
        if code.lower() != self.catalogue.code:
            return 200, pages.order(item, f"{code} is not the pickup code.")
        with self._lock:
            self._orders.append(Order(item.slug, code))
        return 303, f"/done/{item.slug}"

    def _find(self, slug: str) -> Product | None:
        return next((item for item in self.catalogue.products if item.slug == slug), None)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def _handler(shop: Shop) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            self._send(*shop.get(urlsplit(self.path).path))

        def do_POST(self) -> None:
            length = min(int(self.headers.get("Content-Length") or 0), 10_000)
            form = parse_qs(self.rfile.read(length).decode("utf-8", "replace"), keep_blank_values=True)
            self._send(*shop.post(urlsplit(self.path).path, form))

        def _send(self, status: int, body: str) -> None:
            data = b"" if status == 303 else body.encode()
            self.send_response(status)
            if status == 303:
                self.send_header("Location", body)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """The terminal belongs to the live view."""

    return Handler
