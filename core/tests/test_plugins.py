"""Finding and loading plugins; each test installs its own."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from typing import Any

import pytest

from core.errors import ConfigError, PluginError, SelectionError
from core.hookspecs import ATTENTION, KINDS, SAMPLER, PluginKind
from core.plugins import BrokenPlugin, Status, discover, import_factory, load, load_chosen, validate_options

GROUP = SAMPLER.group


def only(site: Any) -> Any:
    (found,) = site.registry().entries
    return found


def cause(site: Any) -> str:
    """Why the only plugin is broken."""
    broken = site.registry().load(only(site))
    assert isinstance(broken, BrokenPlugin)
    return broken.cause


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_sound_plugin_of_each_kind_loads(site: Any, kind: PluginKind) -> None:
    site.plugin(kind, "acme", distribution="acme-dist", version="3.1")
    found = only(site)
    assert (found.kind, found.name, found.source) == (kind.name, "acme", "acme-dist 3.1")
    spec = load(found)
    assert isinstance(spec, kind.spec)
    assert spec.distribution == "acme-dist 3.1"


def test_a_module_may_bring_several_plugins(site: Any) -> None:
    source = """
from core import SamplerCapabilities, SamplerSpec, hookimpl

@hookimpl
def core_samplers():
    capabilities = SamplerCapabilities(device_types="any", seeded=True, cuda_graph=False)
    for name in ("first", "second"):
        yield SamplerSpec(name=name, api=(1, 0), capabilities=capabilities, factory=f"os:{name}")
"""
    site.install("pair", GROUP, "first", source, module="pair_hooks")
    site.install("pair", GROUP, "second", source, module="pair_hooks")
    assert [load(found).factory for found in site.registry().entries] == ["os:first", "os:second"]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise RuntimeError('two\\n  lines')", "RuntimeError: two lines"),
        ("class Odd(BaseException): pass\nraise Odd", "Odd"),
        ("this is no Python", "SyntaxError"),
        ("from core import hookimpl\n@hookimpl\ndef core_sampler(): return []", "unknown hook 'core_sampler'"),
        ("from core import hookimpl\n@hookimpl\ndef core_samplers(device): return []", "PluginValidationError"),
        ("def core_samplers(): return []", "does not implement the hook core_samplers"),
        ("from core import hookimpl\n@hookimpl\ndef core_samplers(): return 3", "returned int, expected an iterable"),
        ("from core import hookimpl\n@hookimpl\ndef core_samplers(): return ['x']", "a str, expected SamplerSpec"),
        ("from core import hookimpl\n@hookimpl\ndef core_samplers(): return []", "it returned nothing"),
        ("from core import hookimpl\n@hookimpl\ndef core_samplers():\n raise ValueError('x')", "ValueError: x"),
    ],
)
def test_what_goes_wrong_in_a_hooks_module_is_recorded(site: Any, source: str, told: str) -> None:
    site.install("acme", GROUP, "acme", source)
    assert told in cause(site)


def test_an_interrupt_is_not_swallowed(site: Any) -> None:
    site.install("acme", GROUP, "acme", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load(only(site))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"spec_name": "other"}, "exactly one spec named 'acme', as its entry point is; it returned 'other'"),
        ({"api": (1, 7)}, "needs plugin API 1.7, this core has 1.0: upgrade core"),
        ({"api": (2, 0)}, "written for plugin API 2.0, but registered in the group core.sampler.v1"),
        ({"api": "1.0"}, "its api is '1.0', expected (major, minor)"),
        ({"factory": "acme.sampler"}, "its spec needs: factory of the form 'package.module:callable'"),
        ({"priority": "high"}, "its spec needs: auto_priority that is an int or None"),
    ],
)
def test_a_spec_that_does_not_fit_counts_as_broken(site: Any, wrong: dict[str, Any], told: str) -> None:
    site.plugin(SAMPLER, "acme", **wrong)
    assert told in cause(site)


def test_capabilities_of_another_kind_count_as_broken(site: Any) -> None:
    site.install(
        "acme",
        GROUP,
        "acme",
        "from core import SamplerSpec, hookimpl\n@hookimpl\ndef core_samplers():\n"
        "    return [SamplerSpec(name='acme', api=(1, 0), capabilities=None, factory='os:getcwd')]",
    )
    assert "capabilities of type SamplerCapabilities" in cause(site)


def test_the_name_auto_is_taken(site: Any) -> None:
    site.plugin(SAMPLER, "auto")
    assert "name other than 'auto'" in cause(site)


def test_listing_imports_no_plugin(site: Any) -> None:
    site.install("acme", GROUP, "acme", "raise RuntimeError('imported')")
    code = (
        "import sys; from core.plugins import discover; r = discover(); "
        "print([f.name for f in r.entries if f.distribution == 'acme'], 'torch' in sys.modules, "
        "any(f.value in sys.modules for f in r.entries))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site.folder)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['acme'] False False"


def test_another_major_version_is_listed_and_refused_without_an_import(site: Any) -> None:
    site.install("acme", "core.sampler.v2", "acme", "raise RuntimeError('imported')")
    site.install("acme-new", "core.dreams.v1", "acme", "raise RuntimeError('imported')")
    registry = site.registry()
    assert [registry.status(found) for found in registry.entries] == [Status.INCOMPATIBLE, Status.INCOMPATIBLE]
    with pytest.raises(SelectionError, match=r"'acme' cannot be used: acme 1.0: built for API v2, this core has v1"):
        registry.find(SAMPLER, "acme")
    assert "upgrade core" in registry.explain(registry.entries[1])


def test_groups_of_other_programs_are_left_alone(site: Any) -> None:
    site.install("acme", "core.sampler", "acme", "")
    site.install("acme", "my.core.sampler.v1", "acme", "")
    assert site.registry().entries == ()


def test_of_two_copies_on_the_path_the_first_counts(site: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    later = type(site)(tmp_path / "later")
    later.folder.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(later.folder)])
    later.plugin(SAMPLER, "acme", distribution="Acme_Dist", version="9.0")
    site.plugin(SAMPLER, "acme", distribution="acme-dist", version="1.0")
    found = [f for f in discover().entries if f.name == "acme"]
    assert [f.version for f in found] == ["1.0"]


def test_an_unknown_name_lists_the_valid_ones(site: Any) -> None:
    site.plugin(SAMPLER, "acme")
    site.plugin(SAMPLER, "zeta")
    with pytest.raises(
        SelectionError, match=r"Unknown sampler 'acne'. Did you mean acme\? --sampler takes: auto, acme, zeta"
    ):
        site.registry().find(SAMPLER, "acne")


def test_with_none_installed_the_message_says_what_to_install(site: Any) -> None:
    with pytest.raises(SelectionError, match=r"entry point in the group core.attention.v1, such as plugin-attention-"):
        site.registry().find(ATTENTION, "acme")


def test_two_distributions_with_one_name_conflict_only_when_it_is_selected(site: Any) -> None:
    site.plugin(SAMPLER, "acme", distribution="Acme.One")
    site.plugin(SAMPLER, "acme", distribution="acme-two", version="2.0")
    site.plugin(SAMPLER, "zeta")
    registry = site.registry()
    assert [registry.status(f).value for f in registry.entries] == ["conflict", "conflict", "found"]
    assert registry.find(SAMPLER, "zeta").name == "zeta"
    with pytest.raises(SelectionError) as refusal:
        registry.find(SAMPLER, "acme")
    assert "Acme.One 1.0 and acme-two 2.0" in str(refusal.value)
    assert "--sampler acme-two:acme" in str(refusal.value)
    assert registry.find(SAMPLER, "acme-two:acme").version == "2.0"
    assert registry.find(SAMPLER, "acme_one:acme").distribution == "Acme.One"
    with pytest.raises(SelectionError, match="Unknown sampler 'acme-three:acme'"):
        registry.find(SAMPLER, "acme-three:acme")


def test_one_name_in_two_kinds_is_no_conflict(site: Any) -> None:
    site.plugin(SAMPLER, "acme", distribution="one")
    site.plugin(ATTENTION, "acme", distribution="two")
    registry = site.registry()
    assert {registry.status(f) for f in registry.entries} == {Status.FOUND}


def test_a_disabled_plugin_cannot_be_selected_and_resolves_a_conflict(site: Any) -> None:
    site.plugin(SAMPLER, "acme", distribution="one")
    site.plugin(SAMPLER, "acme", distribution="two")
    registry = site.registry(disabled=("sampler:one:acme",))
    assert registry.find(SAMPLER, "acme").distribution == "two"
    with pytest.raises(SelectionError, match="--plugins-disable"):
        site.registry(disabled=("sampler:acme",)).find(SAMPLER, "acme")


@pytest.mark.parametrize("text", ["acme", "sampling:acme", "sampler:"])
def test_disabling_needs_a_kind_and_a_name(site: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected KIND:NAME, where KIND is one of attention, kv_pool, sampler, wei"):
        site.registry(disabled=(text,))


def test_disabling_what_is_not_installed_warns(site: Any, caplog: pytest.LogCaptureFixture) -> None:
    site.registry(disabled=("sampler:acme",))
    assert "no such plugin is installed" in caplog.text


def test_a_broken_plugin_is_imported_and_warned_of_once(site: Any, caplog: pytest.LogCaptureFixture) -> None:
    site.install("acme", GROUP, "acme", "import builtins\nbuiltins.count_acme += 1\nraise SystemExit")
    import builtins

    builtins.count_acme = 0  # type: ignore[attr-defined]
    registry = site.registry()
    try:
        for _ in range(3):
            registry.load(registry.entries[0])
            registry.warn_broken()
        assert builtins.count_acme == 1  # type: ignore[attr-defined]
    finally:
        del builtins.count_acme  # type: ignore[attr-defined]
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage() == "The sampler plugin 'acme' (acme 1.0) is broken: SystemExit. It was not selected."


def test_a_child_process_loads_what_was_chosen_and_nothing_else(site: Any) -> None:
    site.plugin(SAMPLER, "acme")
    site.install("other", GROUP, "other", "raise SystemExit('imported')")
    found = pickle.loads(pickle.dumps(site.registry().find(SAMPLER, "acme")))
    assert load_chosen(found).name == "acme"
    assert not any(name.startswith("other") for name in sys.modules)


def test_a_choice_that_is_broken_here_raises(site: Any) -> None:
    site.install("acme", GROUP, "acme", "import no_such_library")
    with pytest.raises(PluginError, match=r"sampler plugin 'acme' \(acme 1.0\) is broken: ModuleNotFoundError"):
        load_chosen(only(site))


def test_the_factory_is_imported_on_demand(site: Any) -> None:
    site.plugin(SAMPLER, "acme", factory="acme_kernels:make")
    spec = load(only(site))
    with pytest.raises(PluginError, match=r"'acme' \(dist-acme 1.0\) does not load: .* No module named 'acme_kernels'"):
        import_factory(spec)
    (site.folder / "acme_kernels.py").write_text("def make(): return 42\nnumber = 3")
    assert import_factory(spec)() == 42


def test_a_factory_that_is_missing_or_not_callable_is_refused(site: Any) -> None:
    site.plugin(SAMPLER, "acme", factory="os:no_such_name")
    site.plugin(SAMPLER, "beta", factory="os:sep")
    first, second = (load(found) for found in site.registry().entries)
    with pytest.raises(PluginError, match=r"dist-acme 1.0.*AttributeError"):
        import_factory(first)
    with pytest.raises(PluginError, match=r"dist-beta 1.0.*is no callable"):
        import_factory(second)


def test_options_are_converted_and_errors_name_plugin_and_option(site: Any) -> None:
    site.plugin(SAMPLER, "acme", options="tile: int = 64; fast: bool = False")
    spec = load(only(site))
    options = validate_options(spec, {"tile": "128", "fast": "true"})
    assert (options.tile, options.fast) == (128, True)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError) as refusal:
        validate_options(spec, {"tile": "wide", "slow": "1"})
    message = str(refusal.value)
    assert "'acme' (dist-acme 1.0), which knows: tile, fast" in message
    assert "tile: Input should be a valid integer" in message
    assert "slow: Extra inputs are not permitted (got '1')" in message


def test_an_options_model_that_fails_is_the_plugins_fault(site: Any) -> None:
    site.plugin(SAMPLER, "acme", options="def model_post_init(self, context): raise OSError('no disk')")
    with pytest.raises(PluginError, match=r"dist-acme 1.0.*OSError: no disk"):
        validate_options(load(only(site)), {})


def test_a_distribution_without_metadata_is_still_listed(site: Any) -> None:
    site.plugin(SAMPLER, "acme")
    (site.folder / "dist_acme-1.0.dist-info" / "METADATA").unlink()
    assert [f.source for f in discover().entries if f.name == "acme"] == ["unknown unknown"]


def test_our_own_hooks_modules_load_without_torch() -> None:
    code = (
        "import sys; from core.plugins import discover, load\n"
        "ours = [f for f in discover().entries if f.distribution == 'core' or f.value.startswith('plugin_')]\n"
        "for found in ours: print(found.kind, found.name, type(load(found)).__name__)\n"
        "print([m for m in ('torch', 'transformers', 'gguf', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *loaded, heavy = done.stdout.splitlines()
    assert heavy == "[]"
    assert {
        "sampler torch SamplerSpec",
        "weight_loader dummy WeightLoaderSpec",
        "weight_loader safetensors WeightLoaderSpec",
    } <= set(loaded)
    assert not any("BrokenPlugin" in line for line in loaded)
