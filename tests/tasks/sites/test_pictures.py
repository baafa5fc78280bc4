"""Pictures: the same name, the same bytes, and words for what is drawn."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from tasks.sites.pictures import alt_text, picture
from tasks.sites.pictures.draw import SIZE, THINGS
from tasks.sites.pictures.pen import COLOURS
from tasks.sites.pictures.scenes import PLACES, TIMES


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mug-red-2", "Two red mugs"),
        ("umbrella-orange-1", "An orange umbrella"),
        ("watering-can-teal-3", "Three teal watering cans"),
        ("headphones-black-1", "A pair of black headphones"),
        ("shelf-white-4", "Four white shelves"),
        ("scene-harbour-sunset-3", "Three sailboats in a harbour at sunset"),
        ("scene-city-night-1", "One tower in a city at night"),
    ],
)
def test_alternative_text_tells_thing_colour_and_count(name, text):
    assert alt_text(name) == text
    assert Image.open(io.BytesIO(picture(name))).text["Description"] == text


def test_bytes_depend_on_the_name_alone():
    first = picture("teapot-blue-4")
    picture.cache_clear()
    assert picture("teapot-blue-4") == first
    assert len({picture(f"teapot-blue-{count}") for count in range(1, 7)}) == 6


def test_the_colour_named_is_the_colour_seen():
    """What differs between the red and the green mug is red in one and green in the other."""
    images = [Image.open(io.BytesIO(picture(f"mug-{colour}-1"))).convert("RGB") for colour in ("red", "green")]
    for image, colour in zip(images, ("red", "green"), strict=True):
        seen = image.getpixel((240, 230))
        assert sum(abs(a - b) for a, b in zip(seen, COLOURS[colour], strict=True)) < 40


def test_everything_can_be_drawn():
    names = [f"{thing}-{list(COLOURS)[nth % len(COLOURS)]}-{nth % 6 + 1}" for nth, thing in enumerate(THINGS)]
    names += [f"scene-{place}-{list(TIMES)[nth % 3]}-{nth % 5 + 1}" for nth, place in enumerate(PLACES)]
    assert all(Image.open(io.BytesIO(picture(name))).size == SIZE for name in names)


@pytest.mark.parametrize("name", ["mug-red-7", "mug-red", "dragon-red-1", "scene-mug-day-1", "../secret", ""])
def test_unknown_names_are_refused(name):
    with pytest.raises(KeyError):
        picture(name)
