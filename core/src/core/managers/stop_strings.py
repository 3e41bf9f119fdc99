"""`StopStrings`: finds stop strings in a stream of text. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final


@final
class StopStrings:
    """Lets text through until a stop string is in it, and holds back what may be the beginning of one.

    The stop string that is complete first wins; of those that are complete at the same character, the longest. So the
    result does not depend on how the text is cut into pieces. Of overlapping ones (`abcd` and `bc` in `abcd`) it is the
    one that ends first, not the one that begins first, for the other is not there yet when the text has to end.

    At any time the longest end of the text that begins some stop string is held back, and nothing more.

    Args:
        stops: none is empty.
        include_stop: the text that is let through ends with the stop string rather than before it.
    """

    def __init__(self, stops: Sequence[str], include_stop: bool) -> None:
        assert all(stops), "an empty stop string"
        # Longest first, so that the longest is the first of those that end at one place.
        self._stops = sorted(dict.fromkeys(stops), key=len, reverse=True)
        self._include_stop = include_stop
        self._firsts = {stop[0] for stop in self._stops}
        self._longest = len(self._stops[0]) if self._stops else 0
        self._held = ""
        self._matched = False

    def push(self, text: str) -> tuple[str, str | None]:
        """Take text in. What may be let through, and the stop string that is now complete, or None.

        Nothing may be pushed after a match: the text ends there, and what follows it is dropped.
        """
        assert not self._matched, "text after the stop string"
        text = self._held + text
        found: tuple[int, str] | None = None
        for stop in self._stops:
            at = text.find(stop)
            if at >= 0 and (found is None or at + len(stop) < found[0]):
                found = at + len(stop), stop
        if found is not None:
            end, stop = found
            self._held, self._matched = "", True
            return text[: end if self._include_stop else end - len(stop)], stop
        start = self._start_of_held(text)
        self._held = text[start:]
        return text[:start], None

    def flush(self) -> str:
        """What is held back, for no more text comes."""
        held, self._held = self._held, ""
        return held

    def _start_of_held(self, text: str) -> int:
        """Where the longest end of `text` begins that is the beginning of a stop string, but no whole one."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[start] in self._firsts:
                end = text[start:]
                if any(stop.startswith(end) for stop in self._stops):
                    return start
        return len(text)
