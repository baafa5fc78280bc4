"""Show as much of a page as the token cap allows, and let scrolling reach the rest."""

from __future__ import annotations

from collections.abc import Callable


class Window:
    """A moving window over a page's lines. It starts at the top of each page."""

    def __init__(self, cap: int, count_tokens: Callable[[str], int]) -> None:
        self.cap, self.count_tokens = cap, count_tokens
        self.start, self.shown, self.total = 0, 0, 0
        self._url = ""

    def scroll(self, direction: str) -> bool:
        """Move by one window; False when there is nothing more in that direction."""
        before = self.start
        step = max(1, self.shown - 2)
        if direction == "down" and self.start + self.shown < self.total:
            self.start = min(self.start + step, self.total - 1)
        elif direction == "up":
            self.start = max(0, self.start - step)
        return self.start != before

    def reset(self) -> None:
        """Back to the top."""
        self.start, self._url = 0, ""

    def show(self, head: list[str], lines: list[str], url: str) -> str:
        """Header, the lines that fit in the cap, and a notice of what was cut on either side."""
        if url != self._url:
            self.start, self._url = 0, url
        self.total = len(lines)
        self.start = min(self.start, max(0, self.total - 1))
        rest = lines[self.start :]
        counts = [self.count_tokens(line) + 1 for line in rest]
        room = self.cap - sum(self.count_tokens(line) + 1 for line in head)
        if self.start or sum(counts) > room:
            room -= 60  # the notices
        used = fitting = 0
        for count in counts:
            if used + count > room and fitting:
                break
            used, fitting = used + count, fitting + 1
        self.shown = fitting
        body = rest[:fitting]
        if used > room and body:
            keep = max(80, len(body[0]) * max(room, 20) // max(1, used))
            body[0] = body[0][:keep] + " ... (line cut)"
        out = list(head)
        if self.start:
            out.append(f"(lines 1 to {self.start} of {self.total} are above; scroll up to see them)")
        out += body
        if fitting < len(rest):
            hidden = sum(counts[fitting:])
            out.append(f"({len(rest) - fitting} more lines, about {hidden} tokens, are cut; scroll down to see them)")
        return "\n".join(out)
