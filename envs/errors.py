"""Errors of the environments meant for the person at the terminal."""

from __future__ import annotations


class EnvError(Exception):
    """The environment cannot start or go on; ``str(error)`` is one line that names the cause and the mend."""

    user_facing = True
