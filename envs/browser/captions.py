"""Pictures in words: what a captioner says of them, what their file says of itself, or their alternative text."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from PIL import Image, UnidentifiedImageError

from envs.errors import ProbeError

Captioner = Callable[[bytes], str]

IMAGE_DESCRIPTION = 0x010E  # the EXIF tag


def described(image: bytes) -> str:
    """What a picture's file says of itself (the PNG keyword ``Description``, EXIF's ImageDescription), or ""."""
    try:
        with Image.open(io.BytesIO(image)) as opened:
            text = opened.info.get("Description") or opened.getexif().get(IMAGE_DESCRIPTION) or ""
    except (UnidentifiedImageError, OSError):
        return ""
    return " ".join(str(text).split())


class Captions:
    """Captions of the pictures of an episode, each asked for once.

    Args:
        captioner: says what a picture shows; without one, only what pages and files say is told.
    """

    def __init__(self, captioner: Captioner | None = None) -> None:
        self._captioner = captioner
        self._known: dict[str, str] = {}

    def of_inputs(self, images: Sequence[bytes]) -> list[str]:
        """A line for each picture that belongs to the goal."""
        lines = []
        for number, image in enumerate(images, 1):
            caption = (self._captioner(image) if self._captioner else "") or described(image)
            lines.append(f"Image {number}: {caption or '(no description)'}")
        return lines

    def of_page(self, pictures: Sequence[dict[str, str]], fetch: Callable[[str], bytes]) -> list[str]:
        """Lines for the pictures of a page: captions, and names of those that have no alternative text.

        What the page's own lines already say of a picture (its alternative text) is not said again without a caption.
        """
        lines = []
        for number, picture in enumerate(pictures, 1):
            caption = self._caption(picture["src"], fetch)
            name = picture["hint"] or PurePosixPath(urlsplit(picture["src"]).path).name[:80]
            if caption:
                lines.append(f'image {number} "{picture["alt"] or picture["hint"]}": {caption}')
            elif not picture["alt"] and name:
                lines.append(f'image {number} "{name}"')
        return ["Pictures:", *lines] if lines else []

    def _caption(self, source: str, fetch: Callable[[str], bytes]) -> str:
        if self._captioner is None:
            return ""
        if source not in self._known:
            try:
                self._known[source] = " ".join(self._captioner(fetch(source)).split())
            except ProbeError:
                self._known[source] = ""  # a picture that is not served has nothing to say
        return self._known[source]
