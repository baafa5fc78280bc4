"""Errors of the tasks meant for the person at the terminal."""

from __future__ import annotations


class TaskError(Exception):
    """A task, or what a run needs, is not there; ``str(error)`` is one line: the cause and the mend."""

    user_facing = True
