"""The plugins of one kind compared with what is asked for, and the one that wins."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from core.errors import SelectionError
from core.hookspecs import PluginKind
from core.plugins import AUTO, BrokenPlugin, FoundPlugin, PluginRegistry, Status
from core.specs import DeviceInfo, PluginSpec, Reason

Judge = Callable[[Any], Iterable[Reason]]
"""Compares a plugin's capabilities with what is asked for; empty means that it is able."""


class Outcome(Enum):
    """What became of an installed plugin, in the order of the table."""

    CHOSEN = "chosen"
    ABLE = "able"
    REJECTED = "rejected"
    BROKEN = "broken"
    CONFLICT = "conflict"
    INCOMPATIBLE = "incompatible"
    DISABLED = "disabled"


_NOT_EXAMINED = {
    Status.CONFLICT: Outcome.CONFLICT,
    Status.INCOMPATIBLE: Outcome.INCOMPATIBLE,
    Status.DISABLED: Outcome.DISABLED,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table that explains a selection.

    `role` is what was to be filled, `notes` say why the outcome is what it is.
    """

    role: str
    name: str
    outcome: str
    distribution: str
    version: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One installed plugin. `spec` is None where it was not, or could not be, loaded."""

    found: FoundPlugin
    outcome: Outcome
    spec: PluginSpec[Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def priority(self) -> int | None:
        """Its `auto_priority`."""
        return None if self.spec is None else self.spec.auto_priority


@dataclass(frozen=True, slots=True)
class Contest:
    """Who could fill one role, in the order of preference; the first that may be taken wins.

    `asked` is the plugin that the user named, or None for `auto`.
    """

    kind: PluginKind
    role: str
    asked: FoundPlugin | None
    candidates: tuple[Candidate, ...]

    @property
    def winner(self) -> Candidate | None:
        """The plugin that was asked for, if it is able; else the able one with the highest priority, then by name."""
        able = (candidate for candidate in self.candidates if candidate.outcome is Outcome.ABLE)
        if self.asked is not None:
            return next((candidate for candidate in able if candidate.found == self.asked), None)
        return next((candidate for candidate in able if candidate.priority is not None), None)

    def reject(self, loser: Candidate, note: str) -> Contest:
        """This contest with one candidate less that is able."""
        rejected = dataclasses.replace(loser, outcome=Outcome.REJECTED, notes=(note,))
        return dataclasses.replace(self, candidates=_ordered([rejected if c is loser else c for c in self.candidates]))

    def rows(self, detail: str = "") -> tuple[Row, ...]:
        """The table of this contest. `detail` says how the winner will be used."""
        winner = self.winner
        rows = []
        for candidate in self.candidates:
            outcome, notes = candidate.outcome, candidate.notes
            if candidate is winner:
                outcome, notes = Outcome.CHOSEN, (detail,) if detail else ()
            elif outcome is Outcome.ABLE:
                notes = (_why_not(candidate, winner, self.asked is None),)
            found = candidate.found
            rows.append(Row(self.role, found.name, outcome.value, found.distribution, found.version, notes))
        return tuple(sorted(rows, key=lambda row: row.outcome != Outcome.CHOSEN.value))

    def require(self) -> Candidate:
        """The winner.

        Raises:
            SelectionError: there is none. The message has every reason and the table.
        """
        winner = self.winner
        if winner is None:
            raise SelectionError(self._refusal())
        return winner

    def _refusal(self) -> str:
        if not self.candidates:
            return (
                f"No {self.kind.title} is installed. Install a distribution with an entry point in the group "
                f"{self.kind.group}, such as {self.kind.example}."
            )
        table = render(self.rows())
        asked = next((c for c in self.candidates if c.found == self.asked), None)
        if asked is None:
            return (
                f"No installed {self.kind.title} can do what the model and the configuration ask for, and be chosen "
                f"automatically ({self.kind.flag} names one):\n{table}"
            )
        reasons = "; ".join(asked.notes)
        if asked.outcome is Outcome.BROKEN:
            return (
                f"The {self.kind.title} {asked.found.name!r} is broken: {reasons}. Repair or upgrade "
                f"{asked.found.source}, or choose another with {self.kind.flag}:\n{table}"
            )
        return (
            f"The {self.kind.title} {asked.found.name!r} ({asked.found.source}) cannot do what the model and the "
            f"configuration ask for: {reasons}. Choose another with {self.kind.flag}, or auto:\n{table}"
        )


def hold_contest(
    registry: PluginRegistry, kind: PluginKind, role: str, wanted: str, device: DeviceInfo, judge: Judge
) -> Contest:
    """Compare every installed plugin of a kind with what is asked for.

    Loads all their hooks modules, so that the table is complete; those that break are remembered by `registry`.

    Raises:
        SelectionError: `wanted`, unless `auto`, is unknown, ambiguous, disabled or of another API version.
    """
    asked = None if wanted == AUTO else registry.find(kind, wanted)
    candidates = []
    for found in registry.of_kind(kind):
        not_examined = _NOT_EXAMINED.get(registry.status(found))
        if not_examined and found != asked:
            candidates.append(Candidate(found, not_examined, notes=(registry.explain(found),)))
        else:
            candidates.append(_examine(registry, found, device, judge))
    return Contest(kind, role, asked, _ordered(candidates))


def render(rows: Iterable[Row]) -> str:
    """The rows as plain text in columns; the role is written once."""
    rows = list(rows)
    role_width = max((len(row.role) for row in rows), default=0)
    name_width = max((len(row.name) for row in rows), default=0)
    lines, role = [], ""
    for row in rows:
        shown, role = ("" if row.role == role else row.role), row.role
        head = f"{shown:{role_width}}  {row.name:{name_width}}  {row.outcome:{_OUTCOME_WIDTH}}  "
        source = f"{row.distribution} {row.version}"
        if row.outcome == Outcome.CHOSEN.value:
            told = ["  ".join([source, *row.notes])]
        else:
            told = [*row.notes[:-1], f"{row.notes[-1]} ({source})"]
        lines.append(head + told[0])
        lines.extend(" " * len(head) + note for note in told[1:])
    return "\n".join(lines)


_OUTCOME_WIDTH = max(len(outcome.value) for outcome in Outcome if outcome is not Outcome.INCOMPATIBLE)


def _examine(registry: PluginRegistry, found: FoundPlugin, device: DeviceInfo, judge: Judge) -> Candidate:
    spec = registry.load(found)
    if isinstance(spec, BrokenPlugin):
        return Candidate(found, Outcome.BROKEN, notes=(spec.cause,))
    capabilities, probe = spec.capabilities, spec.probe
    reasons = registry.attempt(found, lambda: [str(reason) for reason in (*judge(capabilities), *probe(device))])
    if isinstance(reasons, BrokenPlugin):
        return Candidate(found, Outcome.BROKEN, notes=(reasons.cause,))
    if reasons:
        return Candidate(found, Outcome.REJECTED, spec, tuple(dict.fromkeys(reasons)))
    return Candidate(found, Outcome.ABLE, spec)


def _ordered(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    places = {outcome: place for place, outcome in enumerate(Outcome)}

    def preference(candidate: Candidate) -> tuple[int, float, str, str]:
        priority = candidate.priority
        lower = float("inf") if priority is None else -priority
        return places[candidate.outcome], lower, candidate.found.name, candidate.found.distribution

    return tuple(sorted(candidates, key=preference))


def _why_not(candidate: Candidate, winner: Candidate | None, auto: bool) -> str:
    if candidate.priority is None:
        return "only by name"
    if not auto or winner is None or winner.priority is None:
        return f"priority {candidate.priority}"
    if candidate.priority == winner.priority:
        return f"priority {candidate.priority} too, later by name"
    return f"priority {candidate.priority} < {winner.priority}"
