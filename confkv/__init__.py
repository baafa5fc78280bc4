"""confkv: an LLM session whose KV cache follows the model's confidence."""

from confkv.errors import ConfkvError, ModelError, PolicyError, SessionFileError

__all__ = ["ConfkvError", "Engine", "ModelError", "PolicyError", "Session", "SessionFileError"]


def __getattr__(name: str) -> object:
    # torch and transformers take seconds to import; `confkv --help` must not wait for them.
    if name == "Engine":
        from confkv.engine import Engine

        return Engine
    if name == "Session":
        from confkv.session import Session

        return Session
    raise AttributeError(f"module 'confkv' has no attribute '{name}'")
