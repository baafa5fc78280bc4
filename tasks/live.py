"""What a person sees on stderr while an episode runs: a panel on a terminal, one line a turn elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

HEARTBEAT_SECONDS = 15.0
FETCH_SECONDS = 10.0


def megabytes(count: float) -> str:
    """Bytes as a person reads them: ``812 kB``, ``14.0 MB``, ``1.25 GB`` (decimal units)."""
    if count < 1e6:
        return f"{count / 1e3:.0f} kB"
    return f"{count / 1e6:.1f} MB" if count < 1e9 else f"{count / 1e9:.2f} GB"


def times(full: float, held: float) -> str:
    """How full KV compares with what was held, e.g. ``4.1x less``; "" where there is nothing to compare."""
    if not full or not held:
        return ""
    ratio = full / held
    if ratio >= 1.05:
        return f"{ratio:.1f}x less"
    return "about the same" if ratio > 0.95 else f"{1 / ratio:.1f}x more"


def call_text(action: dict[str, Any], limit: int = 80) -> str:
    """An action as the model writes it, cut to ``limit`` characters: ``click(id='e5')``."""
    given = (action.get("args") or {}).items()
    arguments = ", ".join(f"{key}={value!r}" for key, value in given if value is not None)
    return shorten(f"{action.get('name', '?')}({arguments})", limit)


def shorten(text: str, limit: int) -> str:
    """One line of at most ``limit`` characters, printable on any terminal."""
    flat = " ".join(text.encode("utf-8", "replace").decode("utf-8").split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def fetch_progress() -> bool | Callable[[str, int, int | None], None]:
    """How a model's download reports: True (a bar) on a terminal, else a line for each part and each 10 s."""
    if sys.stderr.isatty():
        return True
    last: dict[str, Any] = {"what": "", "at": 0.0}

    def report(what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if what == last["what"] and now - last["at"] < FETCH_SECONDS:
            return
        last.update(what=what, at=now)
        share = f" {done / total:.0%}" if total else ""
        print(f"... {what}{share}", file=sys.stderr, flush=True)

    return report


class SessionLike(Protocol):
    """What the views read of a ``confkv`` session."""

    @property
    def seen(self) -> int: ...

    @property
    def stats(self) -> Any: ...

    @property
    def steps(self) -> Any: ...


@dataclass
class State:
    """The figures on display; bytes are allocated KV bytes."""

    heading: str
    max_turns: int
    phase: str = "starting"
    phase_since: float = field(default_factory=time.monotonic)
    started: float = field(default_factory=time.monotonic)
    turn: int = 0
    turn_since: float = field(default_factory=time.monotonic)
    title: str = ""
    url: str = ""
    said: str = ""
    action: str = ""
    effect: str = ""
    confidence: float | None = None
    confidences: list[float] = field(default_factory=list)
    budget: int | None = None
    kept: float = 0.0
    seen: int = 0
    bytes: int = 0
    peak: int = 0
    full: int = 0


class View:
    """Keeps the state from the loop's events; subclasses show it. Use as a context manager."""

    def __init__(self, heading: str, max_turns: int) -> None:
        self.state = State(heading, max_turns)
        self._session: SessionLike | None = None
        self._full_bytes: Callable[[int], int] = lambda seen: 0

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def attach(self, session: SessionLike, full_bytes: Callable[[int], int]) -> None:
        """From here on figures come from this session; ``full_bytes(seen)`` is what full KV would hold."""
        self._session, self._full_bytes = session, full_bytes

    def phase(self, text: str) -> None:
        """Say what is being waited for."""
        self.state.phase, self.state.phase_since = text, time.monotonic()

    def event(self, event: dict[str, Any]) -> None:
        """Take in one event of ``agent.loop.run_episode``."""
        state, kind = self.state, event.get("type")
        if kind == "turn_start":
            state.turn, state.turn_since = int(event["turn"]), time.monotonic()
            state.said, state.confidences = "", []
            self._page(event["obs"])
            self.phase("reading the page")
        elif kind == "token":
            token = event["token"]
            if state.phase != "thinking":
                self.phase("thinking")
            state.said += token.text
            state.confidence, state.budget, state.kept = token.confidence, token.budget, token.kept
            state.confidences.append(token.confidence)
            self._figures()
        elif kind == "reply":
            self.phase("acting")
            if event.get("error"):
                state.action, state.effect = "(no valid action)", str(event["error"])
        elif kind == "action":
            state.action = call_text(event["action"])
            state.effect = event["obs"].get("error") or event["obs"].get("effect") or ""
            self._page(event["obs"])
        elif kind == "turn_end":
            self._figures(whole=True)

    def close(self) -> None:
        """Stop showing; safe to call twice."""

    def _page(self, observation: dict[str, Any]) -> None:
        self.state.title, self.state.url = str(observation.get("title", "")), str(observation.get("url", ""))

    def _figures(self, whole: bool = False) -> None:
        """Read the session: the last step's record, or (``whole``) its full statistics."""
        session, state = self._session, self.state
        if session is None:
            return
        state.seen = session.seen
        state.full = self._full_bytes(state.seen)
        if whole:
            stats = session.stats
            state.bytes, state.peak, state.full = (
                stats.bytes,
                max(state.peak, stats.peak_bytes),
                stats.full_bytes,
            )
        elif session.steps:
            state.bytes = session.steps[-1].bytes
            state.peak = max(state.peak, state.bytes)


class PlainView(View):
    """One line a phase and a turn, for pipes and logs; long waits say that they go on."""

    def __init__(self, heading: str, max_turns: int, stream: TextIO | None = None) -> None:
        super().__init__(heading, max_turns)
        self._stream = stream or sys.stderr
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="progress", daemon=True)

    def __enter__(self) -> PlainView:
        self._say(self.state.heading)
        self._thread.start()
        return self

    def close(self) -> None:
        """End the heartbeat."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)

    def phase(self, text: str) -> None:
        """Announce waits outside the turns; inside a turn the turn's own line is enough."""
        super().phase(text)
        if not self.state.turn:
            self._say(f"... {text}")

    def event(self, event: dict[str, Any]) -> None:
        """Print a line at the end of each turn."""
        super().event(event)
        if event.get("type") != "turn_end":
            return
        state = self.state
        mean = sum(state.confidences) / len(state.confidences) if state.confidences else None
        parts = [
            f"turn {state.turn}: {state.action or '(no action)'}",
            f"-> {shorten(state.effect, 90)}" if state.effect else "",
            f"| confidence {mean:.2f}" if mean is not None else "",
            f"| tokens {state.kept:,.0f} kept of {state.seen:,} seen",
            f"| KV {megabytes(state.bytes)}, full {megabytes(state.full)}",
            f"| {time.monotonic() - state.turn_since:.1f} s",
        ]
        self._say(" ".join(part for part in parts if part))

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            waited = time.monotonic() - self.state.phase_since
            if waited >= HEARTBEAT_SECONDS:
                where = f"turn {self.state.turn}: " if self.state.turn else ""
                self._say(f"... {where}{self.state.phase}, {waited:.0f} s so far")

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class RichView(View):
    """A panel that redraws itself, also while the model loads or reads (its own thread, 4 a second)."""

    def __init__(self, heading: str, max_turns: int) -> None:
        super().__init__(heading, max_turns)
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(
            console=Console(stderr=True),
            get_renderable=self.render,
            refresh_per_second=4,
            redirect_stdout=False,
            transient=True,
        )

    def __enter__(self) -> RichView:
        self._live.start()
        return self

    def close(self) -> None:
        """Take the panel away: the summary follows."""
        self._live.stop()

    def render(self) -> Any:
        """The panel as it stands."""
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        state, now = self.state, time.monotonic()
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True, min_width=10)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        table.add_row("turn", f"{state.turn} of {state.max_turns}")
        table.add_row("page", Text.assemble(shorten(state.title, 60), ("  " + shorten(state.url, 60), "dim")))
        effect = ("  -> " + shorten(state.effect, 90)) if state.effect else ""
        table.add_row("last act", Text.assemble((state.action, "bold"), effect))
        table.add_row("says", Text(shorten(state.said[-160:], 110), style="italic"))
        table.add_row("confidence", self._gauge())
        table.add_row("tokens", f"{state.kept:,.0f} kept of {state.seen:,} seen")
        less = times(state.full, state.peak)
        table.add_row(
            "KV cache",
            f"{megabytes(state.bytes)} now, {megabytes(state.peak)} peak; "
            f"full would hold {megabytes(state.full)}" + (f" (peak: {less})" if less else ""),
        )
        self._spinner.text = Text(f"{state.phase}  {now - state.phase_since:.0f} s")
        table.add_row("doing", self._spinner)
        elapsed = int(now - state.started)
        return Panel(
            table,
            title=Text(state.heading, style="bold"),
            subtitle=f"{elapsed // 60}:{elapsed % 60:02d}  Ctrl-C stops and keeps what was played",
            border_style="cyan",
        )

    def _gauge(self) -> Any:
        from rich.text import Text

        value = self.state.confidence
        if value is None:
            return Text("-", style="dim")
        filled = round(max(0.0, min(1.0, value)) * 24)
        colour = "green" if value >= 0.7 else "yellow" if value >= 0.4 else "red"
        budget = "unlimited" if self.state.budget is None else f"{self.state.budget:,}"
        rest = 24 - filled
        return Text.assemble(("█" * filled, colour), ("░" * rest, "dim"), f" {value:.2f}   budget {budget}")


def make_view(heading: str, max_turns: int, *, plain: bool) -> View:
    """The panel where stderr is a terminal and ``plain`` is not asked for, else lines."""
    if not plain and sys.stderr.isatty():
        return RichView(heading, max_turns)
    return PlainView(heading, max_turns)
