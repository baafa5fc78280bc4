"""Kernels of the mixed KV store.

One function per operation. ``reference`` holds the torch implementation of each; it runs on every device and is what
the faster versions are tested against.
"""

from confkv_kernels.reference.attention import History, attend, attention_mass, attention_probabilities
from confkv_kernels.reference.confidence import confidence
from confkv_kernels.reference.pages import page_scores
from confkv_kernels.reference.quantise import calibrate, dequantise, quantise
from confkv_kernels.reference.select import keep_indices, take_rows

__all__ = [
    "History",
    "attend",
    "attention_mass",
    "attention_probabilities",
    "calibrate",
    "confidence",
    "dequantise",
    "keep_indices",
    "page_scores",
    "quantise",
    "take_rows",
]
