"""Places at a time of day with a number of things in them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from PIL import Image, ImageDraw

from tasks.sites.pictures.outdoors import sailboat, umbrella
from tasks.sites.pictures.pen import COLOURS, RGB, Pen, dark, light, mix

SKIES: dict[str, tuple[RGB, RGB]] = {
    "day": ((118, 176, 222), (222, 238, 246)),
    "sunset": ((120, 92, 150), (250, 178, 112)),
    "night": ((18, 24, 52), (62, 74, 112)),
}
TIMES = {"day": "in daylight", "sunset": "at sunset", "night": "at night"}


@dataclass(frozen=True)
class Place:
    """What is counted in a place and where it is."""

    one: str
    many: str
    where: str


PLACES: dict[str, Place] = {
    "harbour": Place("sailboat", "sailboats", "in a harbour"),
    "mountains": Place("snowy peak", "snowy peaks", "above a valley"),
    "forest": Place("pine tree", "pine trees", "in a clearing"),
    "village": Place("house", "houses", "along a village street"),
    "beach": Place("striped umbrella", "striped umbrellas", "on a beach"),
    "meadow": Place("tulip", "tulips", "in a meadow"),
    "city": Place("tower", "towers", "in a city"),
    "balloons": Place("hot-air balloon", "hot-air balloons", "over fields"),
}


def _ground(draw: ImageDraw.ImageDraw, size: tuple[int, int], top: float, colour: RGB, time: str) -> None:
    shade = {"day": 0.0, "sunset": 0.25, "night": 0.6}[time]
    draw.rectangle([0, size[1] * top, *size], fill=mix(colour, (24, 22, 48), shade))


def _sky(image: Image.Image, time: str) -> ImageDraw.ImageDraw:
    draw = ImageDraw.Draw(image)
    (width, height), (above, below) = image.size, SKIES[time]
    for row in range(0, height, 2):
        draw.rectangle([0, row, width, row + 1], fill=mix(above, below, row / height))
    disc: RGB = {"day": (255, 240, 190), "sunset": (255, 214, 140), "night": (238, 238, 224)}[time]
    x, y = {"day": (0.82, 0.18), "sunset": (0.7, 0.48), "night": (0.2, 0.2)}[time]
    radius = width * 0.06
    draw.ellipse([x * width - radius, y * height - radius, x * width + radius, y * height + radius], fill=disc)
    if time == "night":
        dice = random.Random("stars")
        for _ in range(60):
            sx, sy = dice.random() * width, dice.random() * height * 0.55
            draw.ellipse([sx, sy, sx + 3, sy + 3], fill=(230, 230, 220))
    return draw


def _thing(place: str, pen: Pen, nth: int, time: str) -> None:
    hue = list(COLOURS.values())[(nth * 5 + len(place)) % 8]
    hue = mix(hue, (24, 22, 48), {"day": 0.0, "sunset": 0.15, "night": 0.4}[time])
    lit: RGB = (252, 224, 140) if time != "day" else (214, 228, 238)
    if place == "harbour":
        sailboat(pen, hue)
    elif place == "beach":
        umbrella(pen, hue)
    elif place == "mountains":
        pen.shape([(50, 0), (108, 100), (-8, 100)], mix((104, 112, 130), (24, 22, 48), 0.3 if time == "night" else 0))
        pen.shape([(50, 0), (68, 32), (56, 26), (48, 36), (42, 26), (32, 32)], (246, 248, 250))
    elif place == "forest":
        green = mix((58, 112, 76), (24, 22, 48), 0.35 if time == "night" else 0.05 * (nth % 3))
        pen.box(45, 84, 55, 100, (108, 78, 54))
        for y in (4, 26, 48):
            pen.shape([(50, y), (66 + y / 3, y + 40), (34 - y / 3, y + 40)], green)
    elif place == "village":
        pen.box(14, 46, 86, 100, light(hue, 0.4))
        pen.shape([(50, 12), (94, 48), (6, 48)], dark(hue, 0.35))
        pen.box(42, 70, 58, 100, dark(hue, 0.5))
        pen.box(22, 56, 36, 70, lit)
        pen.box(64, 56, 78, 70, lit)
    elif place == "meadow":
        pen.line([(50, 40), (50, 100)], (70, 128, 70), 4)
        pen.oval(54, 66, 74, 76, (84, 146, 92))
        pen.shape([(34, 20), (42, 30), (50, 14), (58, 30), (66, 20), (64, 48), (36, 48)], hue)
    elif place == "city":
        top = 10 + (nth * 37) % 40
        pen.box(20, top, 80, 100, mix((92, 104, 124), hue, 0.25))
        for y in range(top + 8, 94, 14):
            for x in (28, 44, 60):
                pen.box(x, y, x + 9, y + 7, lit)
    else:
        pen.oval(16, 4, 84, 72, hue)
        pen.oval(38, 4, 62, 72, light(hue, 0.5))
        pen.line([(34, 66), (43, 84)], (60, 52, 48), 1.5)
        pen.line([(66, 66), (57, 84)], (60, 52, 48), 1.5)
        pen.box(42, 82, 58, 96, (134, 96, 66), 2)


def scene(place: str, time: str, count: int, size: tuple[int, int]) -> Image.Image:
    """Draw ``count`` things of a place side by side, somewhat scattered."""
    image = Image.new("RGB", size)
    draw = _sky(image, time)
    width, height = size
    grounds: dict[str, tuple[float, RGB]] = {
        "harbour": (0.62, (70, 128, 160)), "mountains": (0.8, (104, 150, 98)), "forest": (0.7, (116, 158, 98)),
        "village": (0.76, (150, 146, 138)), "beach": (0.66, (232, 210, 164)), "meadow": (0.55, (128, 176, 104)),
        "city": (0.84, (84, 88, 96)), "balloons": (0.8, (168, 178, 96)),
    }  # fmt: skip
    top, ground = grounds[place]
    if place == "beach":
        _ground(draw, size, 0.52, (84, 152, 180), time)
    if place != "mountains":
        _ground(draw, size, top, ground, time)
    dice = random.Random(f"{place}-{time}-{count}")
    side = min(width / (count + 0.4), height * (0.62 if place != "meadow" else 0.5))
    step = width / count
    for nth in range(count):
        left = step * (nth + 0.5) - side / 2 + dice.uniform(-0.06, 0.06) * side
        base = height * (top + (0.16 if place in ("harbour", "beach", "meadow", "forest") else 0.06))
        if place == "balloons":
            base = height * dice.uniform(0.62, 0.78)
        base += dice.uniform(-0.03, 0.03) * height
        _thing(place, Pen(draw, left, base - side, side), nth, time)
    if place == "mountains":
        _ground(draw, size, top, ground, time)
    return image
