"""Plain records that cross the rooms: actions, observations, step information. No browser import."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, Protocol, TypedDict, runtime_checkable

#: What an agent gets of a page: the text; the text with a line for each picture that it leaves out; the text and a
#: picture of the page; the text and a picture that is marked with the text's ids.
Mode = Literal["aria", "aria+captions", "screenshot", "som"]


class Action(TypedDict):
    """One call of the closed action set, e.g. ``{"name": "click", "args": {"id": "e5"}}``."""

    name: str
    args: dict[str, Any]


class Observation(TypedDict):
    """What the agent is shown after a reset or a step; every value is text ("" if there is none)."""

    goal: str
    text: str
    url: str
    title: str
    error: str
    effect: str


class Info(TypedDict):
    """What is recorded beside an observation.

    ``image`` is the PNG that a model which sees is shown (in image modes), ``input_images`` are the goal's pictures
    (after a reset).
    """

    screenshot: bytes | None
    raw_reward: float
    seconds: float
    lines: int
    lines_shown: int
    answer: NotRequired[str]
    worker_restarted: NotRequired[bool]
    image: NotRequired[bytes | None]
    input_images: NotRequired[list[bytes]]


class LoginStep(TypedDict):
    """One step of logging in: ``open`` an address, ``fill`` or ``click`` what a selector of Playwright's finds.

    A click has to lead to another page.
    """

    do: Literal["open", "fill", "click"]
    target: str
    text: NotRequired[str]


class Login(TypedDict):
    """How an account logs in, and where the browser's state is kept that comes of it.

    It has worked if the page at ``check_url`` says ``check_text``, or (where that is "") is not left for another.
    """

    name: str
    state: str
    steps: list[LoginStep]
    check_url: str
    check_text: str


class TaskSpec(TypedDict, total=False):
    """What a worker needs to begin an episode: a page (``url``) or a BrowserGym task.

    ``more_urls`` are opened in further tabs; ``images`` are addresses of pictures that belong to the goal; a host in
    ``hosts`` is reached at its "ADDRESS:PORT"; ``geolocation`` (degrees) is where the browser says it is.
    """

    goal: str
    url: str
    more_urls: list[str]
    images: list[str]
    logins: list[Login]
    browsergym: str
    seed: int
    viewport: dict[str, int]
    geolocation: dict[str, float]
    hosts: dict[str, str]


class Probe(Protocol):
    """Looks at pages when an episode is over: the agent's own, or another in a tab that is only for that."""

    @property
    def url(self) -> str:
        """Address of the page the agent ended on."""

    def content(self, url: str | None) -> str:
        """HTML of a page (None: the agent's)."""

    def evaluate(self, url: str | None, script: str, argument: Any = None) -> Any:
        """What a JavaScript function gives on a page (None: the agent's); None where it throws."""

    def fetch(self, url: str) -> bytes:
        """What an address serves, asked with the browser's cookies."""


class Task(Protocol):
    """A task a browser environment plays; it lives in the parent process."""

    def start(self, seed: int) -> TaskSpec:
        """Prepare a fresh episode; the same seed prepares the same episode."""

    def score(self, answer: str | None) -> tuple[float, bool] | None:
        """Raw reward and whether the episode is over; None where the page itself is asked (BrowserGym)."""

    def close(self) -> None:
        """Free what ``start`` took."""


@runtime_checkable
class EndScored(Protocol):
    """A task that is scored once, when its episode is over, and not at every step."""

    def finish(self, answer: str | None, probe: Probe) -> tuple[float, str]:
        """Raw reward, and in one line why it is not 1 ("" where it is); never raises."""


REQUIRED = object()

ACTIONS: dict[str, dict[str, Any]] = {
    "click": {"id": REQUIRED},
    "fill": {"id": REQUIRED, "text": REQUIRED},
    "select_option": {"id": REQUIRED, "option": REQUIRED},
    "check": {"id": REQUIRED, "checked": True},
    "hover": {"id": REQUIRED},
    "press": {"key": REQUIRED, "id": None},
    "scroll": {"direction": "down", "id": None},
    "goto": {"url": REQUIRED},
    "back": {},
    "forward": {},
    "new_tab": {"url": None},
    "switch_tab": {"index": REQUIRED},
    "close_tab": {},
    "wait": {"seconds": 1.0},
    "answer": {"text": ""},
}
"""Name -> arguments with their defaults (``REQUIRED`` where there is none)."""


def complete(action: Any) -> tuple[str, dict[str, Any], str]:
    """Check an action against the closed set: name, arguments with defaults, and an error ("" if fine)."""
    if not isinstance(action, dict) or not isinstance(action.get("name"), str):
        return "", {}, "an action is {'name': ..., 'args': {...}}"
    name, given = action["name"], action.get("args") or {}
    if name not in ACTIONS:
        return name, {}, f"there is no action {name}; the actions are {', '.join(ACTIONS)}"
    if not isinstance(given, dict):
        return name, {}, f"the arguments of {name} must be named"
    known = ACTIONS[name]
    unknown = [key for key in given if key not in known]
    missing = [key for key, default in known.items() if default is REQUIRED and given.get(key) is None]
    if unknown or missing:
        signature = f"{name}({', '.join(known)})"
        problem = f"has no argument {unknown[0]}" if unknown else f"needs {', '.join(missing)}"
        return name, {}, f"{name} {problem}; write {signature}"
    return name, {key: given.get(key, default) for key, default in known.items()}, ""
