"""Errors meant for the person at the terminal: one line, the cause and the mend."""

from __future__ import annotations


class ConfkvError(Exception):
    """Base of all user-facing errors; ``str(error)`` is one line that names the cause and the next step."""

    user_facing = True


class ModelError(ConfkvError):
    """A model cannot be found, fetched, verified or loaded."""


class PolicyError(ConfkvError):
    """A policy string names an unknown policy, parameter or value."""


class SessionFileError(ConfkvError):
    """A saved session cannot be read, or belongs to another model or policy."""
