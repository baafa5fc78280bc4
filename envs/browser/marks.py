"""Set-of-marks (Yang et al. 2023, arXiv 2310.11441): boxes with ids drawn on a screenshot."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from PIL import Image, ImageDraw, ImageFont

COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#b8860b", "#008b8b")
SIZE = 12  # of the ids, in CSS pixels


def draw(png: bytes, boxes: Mapping[str, Sequence[float]], width: int) -> bytes:
    """The screenshot with a box and an id for each element; colours go round, so that neighbours differ.

    Args:
        boxes: x, y, width, height in CSS pixels by id.
        width: of the page in CSS pixels; the screenshot may have more pixels than that.
    """
    image = Image.open(io.BytesIO(png)).convert("RGB")
    scale = image.width / width
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(size=SIZE * scale)
    for number, (name, (x, y, w, h)) in enumerate(boxes.items()):
        colour = COLOURS[number % len(COLOURS)]
        left, top, right, bottom = (value * scale for value in (x, y, x + w, y + h))
        pen.rectangle((left, top, right, bottom), outline=colour, width=max(1, round(2 * scale)))
        text = pen.textbbox((0, 0), name, font=font)
        tall, wide = text[3] + 2 * scale, text[2] + 4 * scale
        # The id stands on the box where there is room above it, else inside.
        label_top = top - tall if top >= tall else max(top, 0)
        label_left = min(max(left, 0), image.width - wide)
        pen.rectangle((label_left, label_top, label_left + wide, label_top + tall), fill=colour)
        pen.text((label_left + 2 * scale, label_top + scale), name, fill="white", font=font)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()
