"""What a model's files ask of a weight loader, and what a loader says that it reads."""

from __future__ import annotations

from dataclasses import dataclass

from core.specs import PluginSpec, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightLoaderRequirements:
    """The files that there are: `suffixes` of the one file, or of the files in the folder, in lower case."""

    suffixes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightLoaderCapabilities:
    """What a weight loader reads.

    Attributes:
        suffixes: it needs a file with one of these endings; empty means that it needs no weights at all.
    """

    suffixes: frozenset[str]

    def mismatches(self, requirements: WeightLoaderRequirements) -> list[Reason]:
        """Every reason why this loader cannot read the model; empty means that it can."""
        if not self.suffixes or self.suffixes & requirements.suffixes:
            return []
        found = ", ".join(sorted(requirements.suffixes)) or "no files"
        return [Reason("FILES", found, ", ".join(sorted(self.suffixes)), "try another --load-format")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightLoaderSpec(PluginSpec[WeightLoaderCapabilities]):
    """A weight loader. The factory takes a `WeightLoaderContext` and returns a `WeightLoader`."""
