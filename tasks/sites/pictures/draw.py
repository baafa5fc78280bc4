"""From a picture's name to its PNG and its alternative text.

Names: ``mug-red-2`` (thing, colour, how many) and ``scene-harbour-sunset-3`` (place, time of day, how many). The text
is also in the file, as the PNG keyword ``Description``, so that whoever has only the bytes can read what is drawn.
"""

from __future__ import annotations

import io
import zlib
from functools import lru_cache

from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from tasks.sites.pictures import household, outdoors
from tasks.sites.pictures.pen import COLOURS, Pen, light, mix
from tasks.sites.pictures.scenes import PLACES, TIMES, scene

SIZE = (480, 360)
MAX_COUNT = 6
THINGS = household.THINGS | outdoors.THINGS
PLURALS = {"radio": "radios", "bowl": "bowls", "shelf": "shelves", "headphones": "pairs of headphones"}
NUMBERS = ("", "One", "Two", "Three", "Four", "Five", "Six")
_BACKS = ((236, 228, 214), (222, 232, 234), (232, 226, 238), (226, 236, 222), (242, 226, 218), (226, 230, 242))


def _parts(name: str) -> tuple[str, str, int, bool]:
    """(what, colour or time, count, whether a scene).

    Raises:
        KeyError: no such picture.
    """
    front, _, number = name.rpartition("-")
    what, _, look = front.rpartition("-")
    is_scene = what.startswith("scene-")
    what = what.removeprefix("scene-")
    known = (PLACES, TIMES) if is_scene else (THINGS, COLOURS)
    if what not in known[0] or look not in known[1] or number not in list("123456"):
        raise KeyError(name)
    return what, look, int(number), is_scene


def alt_text(name: str) -> str:
    """What the picture shows: ``Two red mugs``.

    Raises:
        KeyError: no such picture.
    """
    what, look, count, is_scene = _parts(name)
    if is_scene:
        place = PLACES[what]
        return f"{NUMBERS[count]} {place.one if count == 1 else place.many} {place.where} {TIMES[look]}"
    word = what.replace("-", " ")
    many = PLURALS.get(what, word + "s")
    if count > 1:
        return f"{NUMBERS[count]} {look} {many}"
    article = "An" if look[0] in "aeiou" else "A"
    return f"A pair of {look} headphones" if what == "headphones" else f"{article} {look} {word}"


def _rows(count: int) -> list[int]:
    return {1: [1], 2: [2], 3: [3], 4: [2, 2], 5: [3, 2], 6: [3, 3]}[count]


def _things(what: str, colour: str, count: int, size: tuple[int, int]) -> Image.Image:
    paint = COLOURS[colour]
    back = _BACKS[zlib.crc32(what.encode()) % len(_BACKS)]
    if sum(abs(a - b) for a, b in zip(back, paint, strict=True)) < 90:
        back = (150, 166, 178)  # something white needs a darker wall
    image = Image.new("RGB", size, back)
    canvas = ImageDraw.Draw(image)
    width, height = size
    canvas.rectangle([0, height * 0.8, width, height], fill=mix(back, (90, 80, 70), 0.16))
    canvas.ellipse([width * 0.08, -height * 0.3, width * 0.92, height * 0.85], fill=light(back, 0.35))
    rows = _rows(count)
    side = min(width * 0.92 / max(rows), height * 0.88 / len(rows), height * 0.8)
    for row, number in enumerate(rows):
        bottom = height * (0.93 if len(rows) == 1 else 0.49 + 0.47 * row)
        for nth in range(number):
            left = width / 2 + (nth - number / 2) * side
            canvas.ellipse(
                [left + side * 0.1, bottom - side * 0.22, left + side * 0.9, bottom - side * 0.07],
                fill=mix(back, (60, 52, 46), 0.3),
            )
            THINGS[what](Pen(canvas, left + side * 0.06, bottom - side * 0.93, side * 0.88), paint)
    return image


@lru_cache(maxsize=2048)
def picture(name: str) -> bytes:
    """The PNG of a name, drawn at twice its size and scaled down.

    Raises:
        KeyError: no such picture.
    """
    what, look, count, is_scene = _parts(name)
    double = (SIZE[0] * 2, SIZE[1] * 2)
    drawn = scene(what, look, count, double) if is_scene else _things(what, look, count, double)
    words = PngInfo()
    words.add_text("Description", alt_text(name))
    held = io.BytesIO()
    drawn.reduce(2).save(held, "PNG", pnginfo=words)
    return held.getvalue()
