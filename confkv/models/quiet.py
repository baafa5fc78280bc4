"""Keeping transformers' own bars and warnings off the terminal: what is said about a model is said by confkv."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers while it loads, converts or writes a model."""
    from transformers import modeling_gguf_pytorch_utils as gguf
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    # The GGUF converter takes its bar from tqdm itself, where transformers' switch does not reach.
    module: Any = gguf
    bar = getattr(module, "tqdm", None)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if bar is not None:
        module.tqdm = partial(bar, disable=True)
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
        if bar is not None:
            module.tqdm = bar
