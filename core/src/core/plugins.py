"""Which plugins are installed, and which one a name means.

The entry-point groups are scanned here and not by pluggy, whose loader stops at the first broken plugin and drops
duplicate names silently.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable
from enum import Enum
from importlib.metadata import Distribution, distributions
from typing import Any, TypeVar

from core.errors import ConfigError, SelectionError
from core.hookspecs import KINDS, PluginKind, kind_named
from core.plugin_loading import (
    AUTO,
    BrokenPlugin,
    FoundPlugin,
    attempt,
    import_factory,
    load,
    load_chosen,
    validate_options,
)
from core.specs import PluginSpec

__all__ = [
    "AUTO",
    "BrokenPlugin",
    "FoundPlugin",
    "PluginRegistry",
    "Status",
    "discover",
    "import_factory",
    "load",
    "load_chosen",
    "validate_options",
]

logger = logging.getLogger(__name__)

_GROUP = re.compile(r"core\.(?P<kind>[a-z][a-z_]*)\.v(?P<major>\d+)")

T = TypeVar("T")


class Status(Enum):
    """What metadata alone tells about an installed plugin."""

    FOUND = "found"
    CONFLICT = "conflict"
    INCOMPATIBLE = "incompatible"
    DISABLED = "disabled"


def discover(disabled: Iterable[str] = ()) -> PluginRegistry:
    """Read the metadata of every installed distribution. Imports no plugin.

    Args:
        disabled: plugins to leave out, `KIND:NAME` or `KIND:DISTRIBUTION:NAME`.

    Raises:
        ConfigError: an element of `disabled` has another form, or names no kind.
    """
    found: dict[tuple[str, str, str], FoundPlugin] = {}
    for distribution in distributions():
        for entry in distribution.entry_points:
            if match := _GROUP.fullmatch(entry.group):
                name, version = _metadatum(distribution, "Name"), _metadatum(distribution, "Version")
                plugin = FoundPlugin(match["kind"], entry.name, name, version, entry.value, entry.group)
                # Of two copies of one distribution, Python imports the one that comes first on the path.
                found.setdefault((_normal(name), entry.group, entry.name), plugin)
    return PluginRegistry(found.values(), disabled)


class PluginRegistry:
    """The installed plugins. Loads each at most once, and remembers the broken ones.

    Attributes:
        entries: all of them, by kind, name and distribution; the order of discovery plays no role.
    """

    def __init__(self, found: Iterable[FoundPlugin], disabled: Iterable[str] = ()) -> None:
        order = [kind.name for kind in KINDS]
        self.entries: tuple[FoundPlugin, ...] = tuple(
            sorted(found, key=lambda f: (f.kind not in order, f.kind, f.name, _normal(f.distribution), f.group))
        )
        self._disabled: set[FoundPlugin] = set()
        for text in disabled:
            self._disabled.update(self._named_by(text))
        self._loaded: dict[FoundPlugin, PluginSpec[Any] | BrokenPlugin] = {}
        self._warned: set[FoundPlugin] = set()

    def status(self, found: FoundPlugin) -> Status:
        """What is known of `found` without importing it."""
        if found in self._disabled:
            return Status.DISABLED
        if not any(kind.group == found.group for kind in KINDS):
            return Status.INCOMPATIBLE
        rivals = [other for other in self.entries if (other.group, other.name) == (found.group, found.name)]
        return Status.CONFLICT if len(set(rivals) - self._disabled) > 1 else Status.FOUND

    def explain(self, found: FoundPlugin) -> str:
        """Why `status` is not `FOUND`; empty if it is."""
        match self.status(found):
            case Status.FOUND:
                return ""
            case Status.DISABLED:
                return "--plugins-disable"
            case Status.CONFLICT:
                others = [
                    other.source
                    for other in self.entries
                    if (other.group, other.name) == (found.group, found.name) and other != found
                ]
                return f"{', '.join(others)} has the same name: write {found.distribution}:{found.name} to select this"
            case Status.INCOMPATIBLE:
                kind = kind_named(found.kind)
                if kind is None:
                    return "a kind unknown to this core: upgrade core"
                return f"built for API v{found.group.rpartition('.v')[2]}, this core has v{kind.api[0]}"

    def of_kind(self, kind: PluginKind) -> list[FoundPlugin]:
        """The installed plugins of one kind, whatever their status."""
        return [found for found in self.entries if found.kind == kind.name]

    def find(self, kind: PluginKind, wanted: str) -> FoundPlugin:
        """The plugin that a user means by `wanted`: a name, or `distribution:name`. Imports nothing.

        Raises:
            SelectionError: nothing has that name (lists those that there are), several distributions have it (names
                them), or it is disabled or built for another version of the API.
        """
        matching = [found for found in self.of_kind(kind) if _matches(found, wanted)]
        allowed = [found for found in matching if self.status(found) in (Status.FOUND, Status.CONFLICT)]
        if len(allowed) == 1:
            return allowed[0]
        if allowed:
            sources = " and ".join(found.source for found in allowed)
            choices = " or ".join(f"{kind.flag} {found.distribution}:{found.name}" for found in allowed)
            raise SelectionError(f"The {kind.title} {wanted!r} is ambiguous: {sources} both have it. Write {choices}.")
        if matching:
            reasons = "; ".join(f"{found.source}: {self.explain(found)}" for found in matching)
            raise SelectionError(f"The {kind.title} {wanted!r} cannot be used: {reasons}.")
        names = sorted({f.name for f in self.of_kind(kind) if self.status(f) in (Status.FOUND, Status.CONFLICT)})
        raise SelectionError(_unknown(kind, wanted, names))

    def load(self, found: FoundPlugin) -> PluginSpec[Any] | BrokenPlugin:
        """The spec of `found`, or how it is broken. Imports its hooks module, once."""
        if found not in self._loaded:
            self._loaded[found] = load(found)
        return self._loaded[found]

    def attempt(self, found: FoundPlugin, action: Callable[[], T]) -> T | BrokenPlugin:
        """Run code of `found`; if it fails, `found` counts as broken from now on."""
        result = attempt(found, action)
        if isinstance(result, BrokenPlugin):
            self._loaded[found] = result
        return result

    def load_all(self) -> None:
        """Load every plugin that could be selected, so that `broken` is complete."""
        for found in self.entries:
            if self.status(found) in (Status.FOUND, Status.CONFLICT):
                self.load(found)

    @property
    def broken(self) -> list[BrokenPlugin]:
        """Those that were loaded so far and failed."""
        return [result for result in self._loaded.values() if isinstance(result, BrokenPlugin)]

    def warn_broken(self) -> None:
        """Log one warning for each broken plugin; each only once."""
        for broken in self.broken:
            if broken.found not in self._warned:
                self._warned.add(broken.found)
                logger.warning("%s. It was not selected.", broken)

    def _named_by(self, text: str) -> list[FoundPlugin]:
        kind_name, _, wanted = text.partition(":")
        if kind_named(kind_name) is None or not wanted:
            valid = ", ".join(kind.name for kind in KINDS)
            raise ConfigError(f"--plugins-disable {text}: expected KIND:NAME, where KIND is one of {valid}.")
        named = [found for found in self.entries if found.kind == kind_name and _matches(found, wanted)]
        if not named:
            logger.warning("--plugins-disable %s: no such plugin is installed.", text)
        return named


def _metadatum(distribution: Distribution, key: str) -> str:
    """A damaged distribution, without a METADATA file, has neither name nor version; it is still listed."""
    metadata = distribution.metadata
    return metadata[key] if key in metadata else "unknown"  # noqa: SIM401  `get` is no part of the interface in 3.11


def _matches(found: FoundPlugin, wanted: str) -> bool:
    """The one place where a plugin's name is compared, with what a user typed."""
    if found.name == wanted:
        return True
    distribution, _, name = wanted.rpartition(":")
    return found.name == name and _normal(found.distribution) == _normal(distribution)


def _normal(distribution: str) -> str:
    """A distribution's name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _unknown(kind: PluginKind, wanted: str, names: list[str]) -> str:
    if not names:
        return (
            f"No {kind.title} is installed, {wanted!r} was asked for. Install a distribution with an entry point in "
            f"the group {kind.group}, such as {kind.example}."
        )
    close = difflib.get_close_matches(wanted, names, n=1)
    guess = f" Did you mean {close[0]}?" if close else ""
    return f"Unknown {kind.title} {wanted!r}.{guess} {kind.flag} takes: {', '.join([AUTO, *names])}."
