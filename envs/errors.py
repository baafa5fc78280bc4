"""Errors of the environments meant for the person at the terminal."""

from __future__ import annotations


class EnvError(Exception):
    """The environment cannot start or go on; ``str(error)`` is one line that names the cause and the mend."""

    user_facing = True


class ProbeError(EnvError):
    """A page cannot be looked at for scoring; one line that says which and why."""
