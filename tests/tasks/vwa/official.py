"""The official evaluators, imported without their network, models and paid services.

What is stubbed here is never called by an evaluation that needs no language model and no captioner.
"""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path
from typing import Any

STUBS = ("evaluate", "openai", "aiolimiter", "tiktoken", "text_generation", "flask", "transformers")
SITES = {name: f"http://{name.lower()}.test" for name in ("REDDIT", "SHOPPING", "WIKIPEDIA", "HOMEPAGE", "CLASSIFIEDS")}
PLACEHOLDERS = {f"__{name}__": url for name, url in SITES.items()}


class _Anything:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes all."""


class _Stub(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything


def load() -> Any:
    """The module of the official evaluators, with NLTK's sentence splitter fed from a package instead of a download."""
    import nltk.tokenize
    import punkt.data.english as model
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    parameters = PunktParameters()
    parameters.abbrev_types = set(model.ABBREV_TYPES)
    parameters.collocations = set(model.COLLOCATIONS)
    parameters.sent_starters = set(model.SENT_STARTERS)
    parameters.ortho_context.update(model.ORTHO_CONTEXT)
    splitter = PunktSentenceTokenizer()
    splitter._params = parameters
    environment = {"DATASET": "visualwebarena", "CLASSIFIEDS_RESET_TOKEN": "none", "OPENAI_API_KEY": "none"} | SITES
    before = {name: os.environ.get(name) for name in environment}
    present = {name: sys.modules[name] for name in STUBS if name in sys.modules}
    os.environ.update(environment)
    sys.modules.update({name: _Stub(name) for name in STUBS})
    try:
        from visualwebarena.evaluation_harness import evaluators, helper_functions
    finally:
        for name in STUBS:
            sys.modules.pop(name, None)
        sys.modules.update(present)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
    nltk.tokenize._get_punkt_tokenizer = lambda language="english": splitter
    evaluators.time = types.SimpleNamespace(sleep=lambda seconds: None)
    evaluators.helpers = helper_functions
    return evaluators


def write(config: dict[str, Any], path: Path) -> Path:
    """A task as the official evaluators read it."""
    path.write_text(json.dumps(config))
    return path


def trajectory(answer: str) -> list[Any]:
    """What ends an episode."""
    return [{}, {"answer": answer}]
