"""A pen over one cell of a picture: coordinates run from 0 to 100 in both directions."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import ImageDraw

RGB = tuple[int, int, int]
Point = tuple[float, float]

COLOURS: dict[str, RGB] = {
    "red": (200, 62, 58), "orange": (226, 132, 52), "yellow": (232, 193, 66), "green": (84, 146, 92),
    "teal": (48, 139, 145), "blue": (62, 108, 178), "purple": (128, 88, 162), "pink": (222, 134, 160),
    "brown": (134, 96, 66), "white": (244, 241, 234), "grey": (136, 142, 148), "black": (52, 54, 60),
}  # fmt: skip
INK: RGB = (58, 52, 48)
WOOD: RGB = (168, 124, 82)
STEEL: RGB = (176, 184, 190)


def mix(one: RGB, other: RGB, share: float) -> RGB:
    """``share`` of ``other`` in ``one``, 0 to 1."""
    return (
        round(one[0] + (other[0] - one[0]) * share),
        round(one[1] + (other[1] - one[1]) * share),
        round(one[2] + (other[2] - one[2]) * share),
    )


def dark(colour: RGB, share: float = 0.28) -> RGB:
    """A shade of a colour."""
    return mix(colour, (20, 18, 24), share)


def light(colour: RGB, share: float = 0.35) -> RGB:
    """A tint of a colour."""
    return mix(colour, (255, 255, 255), share)


class Pen:
    """Draws into the square cell at (left, top) with the given side, all in pixels of the canvas."""

    def __init__(self, canvas: ImageDraw.ImageDraw, left: float, top: float, side: float) -> None:
        self.canvas, self.left, self.top, self.unit = canvas, left, top, side / 100

    def _at(self, x: float, y: float) -> Point:
        return self.left + x * self.unit, self.top + y * self.unit

    def _box(self, x: float, y: float, right: float, bottom: float) -> list[Point]:
        return [self._at(x, y), self._at(right, bottom)]

    def oval(self, x: float, y: float, right: float, bottom: float, fill: RGB) -> None:
        """A filled ellipse."""
        self.canvas.ellipse(self._box(x, y, right, bottom), fill=fill)

    def ring(self, x: float, y: float, right: float, bottom: float, colour: RGB, width: float = 3) -> None:
        """An ellipse's outline."""
        self.canvas.ellipse(self._box(x, y, right, bottom), outline=colour, width=max(1, round(width * self.unit)))

    def box(self, x: float, y: float, right: float, bottom: float, fill: RGB, round_: float = 0) -> None:
        """A filled rectangle, its corners rounded by ``round_``."""
        self.canvas.rounded_rectangle(self._box(x, y, right, bottom), round_ * self.unit, fill=fill)

    def shape(self, points: Sequence[Point], fill: RGB) -> None:
        """A filled polygon."""
        self.canvas.polygon([self._at(*point) for point in points], fill=fill)

    def line(self, points: Sequence[Point], colour: RGB, width: float = 3) -> None:
        """A line through points."""
        thick = max(1, round(width * self.unit))
        self.canvas.line([self._at(*point) for point in points], fill=colour, width=thick, joint="curve")

    def arc(
        self, x: float, y: float, right: float, bottom: float, start: int, end: int, colour: RGB, width: float = 3
    ) -> None:
        """Part of an ellipse's outline; degrees run clockwise from three o'clock."""
        thick = max(1, round(width * self.unit))
        self.canvas.arc(self._box(x, y, right, bottom), start, end, fill=colour, width=thick)

    def pie(self, x: float, y: float, right: float, bottom: float, start: int, end: int, fill: RGB) -> None:
        """A filled slice of an ellipse."""
        self.canvas.pieslice(self._box(x, y, right, bottom), start, end, fill=fill)
