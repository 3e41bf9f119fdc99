"""Loads one plugin: imports its hooks module, calls its hook, and checks what comes back.

Whatever goes wrong in a plugin's code becomes a `BrokenPlugin`; nothing that it raises reaches the caller.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import pluggy
from pydantic import BaseModel, ValidationError

from core import hookspecs
from core.errors import ConfigError, PluginError
from core.hookspecs import KINDS, PluginKind
from core.specs import PluginSpec

logger = logging.getLogger(__name__)

AUTO = "auto"
"""What a user types to leave the choice to the selection; no plugin can have this name."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FoundPlugin:
    """An entry point, read from a distribution's metadata. Nothing was imported.

    Attributes:
        kind: name of its `PluginKind`.
        name: what users type.
        distribution: name of the distribution.
        version: of the distribution.
        value: the hooks module, `package.module`.
        group: the entry-point group; carries the major version of the API that it was built for.
    """

    kind: str
    name: str
    distribution: str
    version: str
    value: str
    group: str

    @property
    def source(self) -> str:
        """The distribution and its version."""
        return f"{self.distribution} {self.version}"

    def __str__(self) -> str:
        return f"{self.kind} plugin {self.name!r} ({self.source})"


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """A plugin whose own code failed, and how."""

    found: FoundPlugin
    cause: str

    def __str__(self) -> str:
        return f"The {self.found} is broken: {self.cause}"


def attempt(found: FoundPlugin, action: Callable[[], T]) -> T | BrokenPlugin:
    """Run a plugin's code. Every exception but `KeyboardInterrupt` becomes a `BrokenPlugin`; `SystemExit` too."""
    try:
        return action()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may raise anything, and must not end the process
        logger.debug("%s failed", found, exc_info=True)
        told = str(error) if type(error) is PluginError else f"{type(error).__name__}: {error}"
        return BrokenPlugin(found, " ".join(told.split()).removesuffix(":"))


def load(found: FoundPlugin) -> PluginSpec[Any] | BrokenPlugin:
    """Import the hooks module of `found` and return the spec that its hook gives for it."""
    return attempt(found, lambda: _spec_of(found))


def load_chosen(chosen: FoundPlugin) -> PluginSpec[Any]:
    """The spec of a plugin that was selected before, maybe in another process; looks at no other plugin.

    Raises:
        PluginError: its code fails here.
    """
    spec = load(chosen)
    if isinstance(spec, BrokenPlugin):
        raise PluginError(str(spec))
    return spec


def import_factory(spec: PluginSpec[Any]) -> Callable[..., Any]:
    """Import what `spec.factory` names. This is where a plugin's kernels and libraries are first imported.

    Raises:
        PluginError: the module fails to import, or has nothing callable of that name. Names the distribution.
    """
    module, _, name = spec.factory.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise PluginError(
            f"The plugin {spec.name!r} ({spec.distribution}) does not load: its factory {spec.factory!r} raised "
            f"{type(error).__name__}: {error}. Repair or upgrade that distribution, or select another plugin."
        ) from error
    if not callable(factory):
        raise PluginError(
            f"The plugin {spec.name!r} ({spec.distribution}): its factory {spec.factory!r} is no callable."
        )
    made: Callable[..., Any] = factory
    return made


def validate_options(spec: PluginSpec[Any], options: dict[str, Any]) -> BaseModel:
    """The plugin's settings as an instance of its own model. Values may be text, as a command line gives them.

    Raises:
        ConfigError: a setting is unknown to the plugin, missing or wrong; names each.
        PluginError: the model itself fails.
    """
    try:
        return spec.options.model_validate(options)
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc']))}: {e['msg']} (got {e['input']!r})" for e in error.errors()]
        known = ", ".join(spec.options.model_fields) or "none"
        raise ConfigError(
            "\n".join([f"Wrong options for {spec.name!r} ({spec.distribution}), which knows: {known}", *lines])
        ) from None
    except Exception as error:
        raise PluginError(
            f"The plugin {spec.name!r} ({spec.distribution}) cannot read its options {options!r}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _spec_of(found: FoundPlugin) -> PluginSpec[Any]:
    """Raises whatever the plugin's code raises, and `PluginError` for an answer that does not fit the hook."""
    kind = next(kind for kind in KINDS if kind.group == found.group)
    manager = pluggy.PluginManager(hookspecs.PROJECT_NAME)
    manager.add_hookspecs(hookspecs)
    manager.register(importlib.import_module(found.value))
    manager.check_pending()
    answers = getattr(manager.hook, kind.hook)()
    if not answers:
        raise PluginError(f"{found.value} does not implement the hook {kind.hook}")
    specs = _checked_iterable(answers[0], kind)
    named = [spec for spec in specs if spec.name == found.name]
    if len(named) != 1:
        given = ", ".join(repr(spec.name) for spec in specs) or "nothing"
        raise PluginError(
            f"{kind.hook} of {found.value} must return exactly one spec named {found.name!r}, as its entry point is; "
            f"it returned {given}"
        )
    _check_api(named[0].api, kind)
    _check_fields(named[0], kind)
    return dataclasses.replace(named[0], distribution=found.source)


def _checked_iterable(answer: object, kind: PluginKind) -> list[PluginSpec[Any]]:
    if not isinstance(answer, Iterable):
        raise PluginError(f"{kind.hook} returned {type(answer).__name__}, expected an iterable of {kind.spec.__name__}")
    specs = list(answer)
    for spec in specs:
        if not isinstance(spec, kind.spec):
            raise PluginError(f"{kind.hook} returned a {type(spec).__name__}, expected {kind.spec.__name__}")
    return specs


def _check_api(api: object, kind: PluginKind) -> None:
    match api:
        case (int(major), int(minor)):
            pass
        case _:
            raise PluginError(f"its api is {api!r}, expected (major, minor), such as {kind.api}")
    wanted, have = f"{major}.{minor}", f"{kind.api[0]}.{kind.api[1]}"
    if major != kind.api[0]:
        raise PluginError(f"it is written for plugin API {wanted}, but registered in the group {kind.group}")
    if minor > kind.api[1]:
        raise PluginError(f"it needs plugin API {wanted}, this core has {have}: upgrade core")


def _check_fields(spec: PluginSpec[Any], kind: PluginKind) -> None:
    """A frozen dataclass checks no types; a wrong one would fail far from its cause."""
    expected = {
        "name other than 'auto'": spec.name != AUTO,
        f"capabilities of type {kind.capabilities.__name__}": isinstance(spec.capabilities, kind.capabilities),
        "factory of the form 'package.module:callable'": isinstance(spec.factory, str)
        and all(spec.factory.partition(":")),
        "callable probe": callable(spec.probe),
        "pydantic model as options": isinstance(spec.options, type) and issubclass(spec.options, BaseModel),
        "auto_priority that is an int or None": spec.auto_priority is None or isinstance(spec.auto_priority, int),
    }
    wrong = [what for what, fits in expected.items() if not fits]
    if wrong:
        raise PluginError(f"its spec needs: {', '.join(wrong)}")
