"""A small site with a log-in, an order form and pictures; it counts what is asked of it."""

from __future__ import annotations

import io
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from PIL import Image, ImageDraw, PngImagePlugin

START = (
    "<form method=post action=/order><label>What <input name=what></label><button>Order</button></form>"
    "<a href=/orders>Orders</a><a href=/pictures>Pictures</a>"
)
USERNAME, PASSWORD = "mira.holt", "lantern-42"


def picture(name: str) -> bytes:
    """A drawing that the file itself describes (except "plain")."""
    image = Image.new("RGB", (120, 90), "white")
    pen = ImageDraw.Draw(image)
    if name.startswith("kayak"):
        pen.ellipse((10, 30, 110, 60), fill="red")
    else:
        for x in range(0, 120, 12):
            pen.rectangle((x, 0, x + 5, 90), fill="black")
    info = PngImagePlugin.PngInfo()
    if name != "plain":
        info.add_text("Description", f"a drawing of a {name}")
    buffer = io.BytesIO()
    image.save(buffer, "PNG", pnginfo=info)
    return buffer.getvalue()


class SmallSite:
    """Serves until closed; ``orders`` and ``requests`` tell what happened."""

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.requests: list[str] = []
        self.session = 1  # log-ins of other sessions do not count
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append(f"GET {self.path}")
                path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
                if path.startswith("/images/"):
                    name = path.removeprefix("/images/").removesuffix(".png")
                    self._send(b"" if name == "none" else picture(name), "image/png", 404 if name == "none" else 200)
                elif path == "/away":
                    self.send_error(404)
                else:
                    self._page(path, query)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = {key: values[0] for key, values in parse_qs(body).items()}
                site.requests.append(f"POST {self.path} {body}")
                if self.path == "/login":
                    right = (form.get("username"), form.get("password")) == (USERNAME, PASSWORD)
                    self._go("/", f"user=s{site.session}" if right else "user=")
                elif self.path == "/order":
                    site.orders.append(form.get("what", ""))
                    self._go("/orders")
                else:
                    self._send(b"reset", "text/plain")

            def _page(self, path: str, query: dict[str, list[str]]) -> None:
                known = f"user=s{site.session}" in (self.headers.get("Cookie") or "")
                state = "<button>Log out</button>" if known else "<a href='/login'>Log in</a>"
                body = {
                    "/login": "<form method=post><label>User name <input name=username></label>"
                    "<label>Password <input name=password type=password></label><button>Log in</button></form>",
                    "/orders": "".join(f"<p class=order>{order}</p>" for order in site.orders),
                    "/pictures": "<main class=photos><img src=/images/kayak.png alt='A red kayak' width=120 height=90>"
                    "<a href='/'><img src=/images/plain.png width=120 height=90></a><img src=/images/none.png></main>",
                    "/asks": "<script>confirm('Leave?'); window.open('/orders')</script><p class=price>$1,200.50</p>",
                }.get(path, START)
                self._send(f"<title>{path}</title><h1>Small site</h1>{state}{body}".encode(), "text/html")

            def _go(self, where: str, cookie: str = "") -> None:
                self.send_response(303)
                self.send_header("Location", where)
                if cookie:
                    self.send_header("Set-Cookie", cookie + "; Path=/")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def _send(self, body: bytes, kind: str, status: int = 200) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Silence."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.port = self._server.server_address[1]
        self.hosts = {"small.test": f"127.0.0.1:{self.port}"}
        self.urls = {"shopping": "http://small.test", "home": "http://small.test"}

    def reset(self) -> None:
        """Forget the orders; log-ins stay."""
        self.orders.clear()
        self.requests.append("RESET")

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
