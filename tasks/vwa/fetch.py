"""One HTTP request, outside of any browser."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

from tasks.errors import TaskError


class FetchError(TaskError):
    """No answer, or one that says no; one line."""


def fetch(
    url: str, *, data: bytes | None = None, headers: Mapping[str, str] | None = None, timeout: float = 30.0
) -> bytes:
    """The body of what a GET (with ``data``: a POST) brings.

    Args:
        timeout: seconds without an answer until it is given up.

    Raises:
        FetchError: the address is none, nothing answers, or the status is an error.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise FetchError(f"{url} is not an http address")
    request = urllib.request.Request(url, data=data, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        raise FetchError(f"{url} answers with status {error.code}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise FetchError(f"{url} does not answer ({str(reason) or type(error).__name__})") from error


def status(url: str, *, timeout: float) -> int:
    """The HTTP status that an address answers with, errors included; redirects are followed.

    Raises:
        FetchError: the address is none, or nothing answers within ``timeout`` seconds.
    """
    try:
        fetch(url, timeout=timeout)
    except FetchError as error:
        cause = error.__cause__
        if isinstance(cause, urllib.error.HTTPError):
            return cause.code
        raise
    return 200
