"""Pictures in words, and marks on screenshots."""

from __future__ import annotations

import io

from PIL import Image, PngImagePlugin

from envs.browser.captions import Captions, described
from envs.browser.marks import COLOURS, draw
from envs.errors import ProbeError


def png(size: tuple[int, int] = (200, 100), description: str = "") -> bytes:
    info = PngImagePlugin.PngInfo()
    if description:
        info.add_text("Description", description)
    buffer = io.BytesIO()
    Image.new("RGB", size, "white").save(buffer, "PNG", pnginfo=info)
    return buffer.getvalue()


def pixel(image: bytes, x: int, y: int) -> str:
    return "#{:02x}{:02x}{:02x}".format(*Image.open(io.BytesIO(image)).convert("RGB").getpixel((x, y)))


def test_marks_lie_on_the_boxes_in_css_pixels() -> None:
    boxes = {"e1": [20, 40, 60, 30], "e7": [120, 2, 40, 30]}
    marked = draw(png(), boxes, width=200)
    assert Image.open(io.BytesIO(marked)).size == (200, 100)
    assert pixel(marked, 79, 69) == pixel(marked, 20, 69) == COLOURS[0]
    assert pixel(marked, 21, 27) == COLOURS[0]  # the id stands above the box
    assert pixel(marked, 121, 3) == COLOURS[1]  # or inside, where there is no room
    assert pixel(marked, 50, 55) == pixel(marked, 190, 90) == "#ffffff"
    twice = draw(png((400, 200)), boxes, width=200)  # two pixels for each of the page's
    assert pixel(twice, 159, 139) == COLOURS[0] and pixel(twice, 79, 69) == "#ffffff"


def test_what_a_picture_says_of_itself() -> None:
    assert described(png(description="a red\nkayak")) == "a red kayak"
    assert described(png()) == described(b"no picture") == ""
    photo = Image.new("RGB", (8, 8))
    exif = photo.getexif()
    exif[0x010E] = "two boats"
    buffer = io.BytesIO()
    photo.save(buffer, "JPEG", exif=exif)
    assert described(buffer.getvalue()) == "two boats"


def test_captions_of_the_goal() -> None:
    images = [png(description="a red kayak"), png()]
    assert Captions().of_inputs(images) == ["Image 1: a red kayak", "Image 2: (no description)"]
    assert Captions(lambda image: "a boat").of_inputs(images)[0] == "Image 1: a boat"


def test_captions_of_a_page_are_asked_for_once() -> None:
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        if "gone" in url:
            raise ProbeError("gone")
        return png(description=url)

    shown = [
        {"src": "http://a.test/1.png?x", "alt": "A kayak", "hint": ""},
        {"src": "http://a.test/gone.png", "alt": "", "hint": ""},
        {"src": "http://a.test/3.png", "alt": "", "hint": "Fig. 3"},
    ]
    assert Captions().of_page(shown, fetch) == ["Pictures:", 'image 2 "gone.png"', 'image 3 "Fig. 3"']
    assert Captions().of_page(shown[:1], fetch) == [] and asked == []
    captions = Captions(described)
    lines = [
        "Pictures:",
        'image 1 "A kayak": http://a.test/1.png?x',
        'image 2 "gone.png"',
        'image 3 "Fig. 3": http://a.test/3.png',
    ]
    assert captions.of_page(shown, fetch) == captions.of_page(shown, fetch) == lines
    assert asked == [picture["src"] for picture in shown]
