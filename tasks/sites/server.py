"""The sites on a port of this machine, in a thread of this process."""

from __future__ import annotations

import socket
import threading
import time

import uvicorn
from starlette.types import ASGIApp

from tasks.errors import TaskError
from tasks.sites.app import HOSTS, SiteApp
from tasks.sites.store import Store

STARTUP = 10.0  # seconds


class Server:
    """An ASGI app on a port of the loopback address (0: a free one).

    Raises:
        TaskError: the port is taken, or the server does not start.
    """

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(("127.0.0.1", port))
        except OSError as error:
            self._socket.close()
            raise TaskError(f"port {port} cannot be used ({error.strerror}); choose another one") from error
        self._socket.listen(128)
        self.port = int(self._socket.getsockname()[1])

    def start(self, app: ASGIApp) -> None:
        """Serve; returns when requests are answered."""
        config = uvicorn.Config(
            app, lifespan="off", log_config=None, log_level="error", access_log=False, ws="none", http="h11",
            loop="asyncio",
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        arguments = {"sockets": [self._socket]}
        self._thread = threading.Thread(target=self._server.run, kwargs=arguments, daemon=True, name="sites")
        self._thread.start()
        deadline = time.monotonic() + STARTUP
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise TaskError("the sites' server does not start; run `confkv doctor`")
            time.sleep(0.005)

    def close(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        self._thread.join(timeout=5)
        self._socket.close()


class Sites:
    """Classifieds, shop and forum with a database of their own, found by host name on one port.

    ``urls`` says which site is where, ``hosts`` is what a browser's resolver has to be told.

    Raises:
        TaskError: the server does not start.
    """

    def __init__(self, seed: int = 0) -> None:
        self.store = Store(seed)
        self.urls = {name: f"http://{host}" for host, name in HOSTS.items()}
        self._server = Server()
        self.port = self._server.port
        self.hosts = {host: f"127.0.0.1:{self.port}" for host in HOSTS}
        self._server.start(SiteApp(self.store, self.urls))

    def reset(self) -> None:
        """Back to the seed's bytes."""
        self.store.reset()

    def close(self) -> None:
        """Stop serving and free the database."""
        self._server.close()
        self.store.close()


class LocalSites:
    """The same sites for a person: one port a site, ``urls`` says which.

    Args:
        seed: what is in the databases.
        port: the home page's port; the sites follow on the next three. 0: any free ones.

    Raises:
        TaskError: a port is taken, or a server does not start.
    """

    def __init__(self, seed: int = 0, port: int = 0) -> None:
        self.store = Store(seed)
        names = ("home", "classifieds", "shopping", "forum")
        self._servers: dict[str, Server] = {}
        try:
            for step, name in enumerate(names):
                self._servers[name] = Server(port + step if port else 0)
            self.urls = {name: f"http://127.0.0.1:{server.port}" for name, server in self._servers.items()}
            for name, server in self._servers.items():
                server.start(SiteApp(self.store, self.urls, name))
        except TaskError:
            self.close()
            raise

    def close(self) -> None:
        """Stop serving and free the databases."""
        for server in self._servers.values():
            server.close()
        self.store.close()
