"""The loaders that core brings, as they are found and selected."""

from __future__ import annotations

from core.hookspecs import WEIGHT_LOADER
from core.loading.capabilities import WeightLoaderRequirements
from core.loading.hooks import core_weight_loaders
from core.loading.weight_loader import WeightLoader
from core.plugins import discover, import_factory


def test_factories_make_weight_loaders() -> None:
    for spec in core_weight_loaders():
        assert issubclass(import_factory(spec), WeightLoader)


def test_only_what_reads_the_files_is_picked_by_itself() -> None:
    safetensors, dummy = core_weight_loaders()
    weights, none = (WeightLoaderRequirements(suffixes=frozenset(s)) for s in ({".json", ".safetensors"}, {".json"}))
    assert safetensors.auto_priority is not None
    assert safetensors.capabilities.mismatches(weights) == []
    assert [reason.code for reason in safetensors.capabilities.mismatches(none)] == ["FILES"]
    assert dummy.auto_priority is None
    assert dummy.capabilities.mismatches(none) == []


def test_they_are_installed_under_their_names() -> None:
    found = {entry.name for entry in discover().of_kind(WEIGHT_LOADER) if entry.distribution == "core"}
    assert found == {spec.name for spec in core_weight_loaders()}
