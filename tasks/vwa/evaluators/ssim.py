"""Structural similarity of two pictures (Wang et al. 2004, doi:10.1109/TIP.2003.819861), windows of 7 by 7 pixels."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

WINDOW = 7
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2


def similarity(one: bytes, other: bytes) -> float:
    """SSIM of two encoded pictures in grey, each stretched to the larger width and height; at most 1.

    Raises:
        PIL.UnidentifiedImageError: one of them is not a picture.
    """
    first, second = Image.open(io.BytesIO(one)), Image.open(io.BytesIO(other))
    size = max(first.width, second.width, WINDOW), max(first.height, second.height, WINDOW)
    return ssim(_grey(first, size), _grey(second, size))


def ssim(x: Any, y: Any) -> float:
    """Mean over all windows that lie within the picture; variances are those of a sample."""
    spread = WINDOW**2 / (WINDOW**2 - 1)
    mean_x, mean_y = _means(x), _means(y)
    var_x = spread * (_means(x * x) - mean_x * mean_x)
    var_y = spread * (_means(y * y) - mean_y * mean_y)
    both = spread * (_means(x * y) - mean_x * mean_y)
    above = (2 * mean_x * mean_y + _C1) * (2 * both + _C2)
    below = (mean_x**2 + mean_y**2 + _C1) * (var_x + var_y + _C2)
    return float(np.mean(above / below))


def _grey(image: Image.Image, size: tuple[int, int]) -> Any:
    stretched = image.resize(size, Image.Resampling.LANCZOS).convert("L")
    return np.asarray(stretched, dtype=np.float64)


def _means(values: Any) -> Any:
    """The mean of each window, by sums over rectangles."""
    sums = np.zeros((values.shape[0] + 1, values.shape[1] + 1))
    sums[1:, 1:] = values.cumsum(0).cumsum(1)
    n = WINDOW
    return (sums[n:, n:] - sums[:-n, n:] - sums[n:, :-n] + sums[:-n, :-n]) / n**2
