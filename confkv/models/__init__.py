"""Models by hub id, folder, GGUF file or alias: found, fetched, verified, converted once, loaded."""

from confkv.models.aliases import ALIASES, DEFAULT_ALIAS, Alias
from confkv.models.loader import LoadedModel, load
from confkv.models.source import ModelSource, resolve

__all__ = ["ALIASES", "DEFAULT_ALIAS", "Alias", "LoadedModel", "ModelSource", "load", "resolve"]
