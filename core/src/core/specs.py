"""What a plugin says about itself: one frozen spec a plugin, compared with what a model and configuration ask for.

This module and all that it imports load neither torch nor a kernel library, so that a plugin's hooks module, which
imports it, stays light.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

API_MAJOR = 1
API_MINOR = 0

Anything = Literal["any"]
"""A capability without limit: every value is supported."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One mismatch between what is asked for and what a plugin does.

    `code` is a stable identifier in upper case, such as `HEAD_DIM`; the other fields are for people.
    """

    code: str
    wanted: str
    supported: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.code} wanted {self.wanted}, supported {self.supported}"
        return f"{text} ({self.hint})" if self.hint else text


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """The device that the engine is to run on, known without initialising it.

    `type` is torch's name of the device type (`cpu`, `cuda`); `compute_capability` is None where the type has none or
    nobody could tell without a driver call.
    """

    type: str
    name: str = ""
    compute_capability: tuple[int, int] | None = None


class NoOptions(BaseModel):
    """The options model of a plugin that has none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


R_contra = TypeVar("R_contra", contravariant=True)


class Capabilities(Protocol[R_contra]):
    """What a plugin can do, comparable with what is asked for."""

    def mismatches(self, requirements: R_contra) -> list[Reason]:
        """Every reason why the requirements are not met; empty means that they are. Mutates nothing."""
        ...


def no_probe(device: DeviceInfo) -> list[Reason]:
    """The probe of a plugin that needs nothing but what its capabilities say."""
    return []


C = TypeVar("C", bound=Capabilities[Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSpec(Generic[C]):
    """What every kind of plugin declares.

    Attributes:
        name: what users type; equals the entry point's name.
        api: (major, minor) of the plugin API that it was written for.
        capabilities: what it can do; every field is required.
        factory: `package.module:callable`, imported only when the plugin is selected.
        probe: says why the plugin cannot run on a device (a missing library, an old driver), empty if it can. Cheap,
            and never initialises the device.
        options: pydantic model of the plugin's own settings.
        auto_priority: `auto` takes the highest among the able; None means never.
        distribution: name and version of the distribution that it came from, for messages. The loader fills it in;
            what a plugin writes here is overwritten.
    """

    name: str
    api: tuple[int, int]
    capabilities: C
    factory: str
    probe: Callable[[DeviceInfo], list[Reason]] = field(default=no_probe)
    options: type[BaseModel] = NoOptions
    auto_priority: int | None = None
    distribution: str = field(default="", compare=False)


def check_member(
    reasons: list[Reason], code: str, wanted: Any, supported: frozenset[Any] | Anything, hint: str = ""
) -> None:
    """Append a `Reason` to `reasons` unless `wanted` is among `supported`."""
    if supported != "any" and wanted not in supported:
        listed = ", ".join(str(value) for value in sorted(supported)) or "none"
        reasons.append(Reason(code, str(wanted), listed, hint))


def check_flag(reasons: list[Reason], code: str, wanted: object, supported: bool, hint: str = "") -> None:
    """Append a `Reason` to `reasons` if something is wanted (`wanted` is neither None nor False) and not supported."""
    if wanted is not None and wanted is not False and not supported:
        reasons.append(Reason(code, "yes" if wanted is True else str(wanted), "no", hint))
