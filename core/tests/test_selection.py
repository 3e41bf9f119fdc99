"""Who is selected, and how that is explained; each test installs its own plugins."""

from __future__ import annotations

import itertools
import json
import logging
import pickle
from typing import Any

import pytest

from core.config import AttentionConfig, CacheConfig, EngineConfig, ModelConfig, PluginConfig, SamplingConfig
from core.errors import ConfigError, PluginError, SelectionError
from core.hookspecs import ATTENTION, KV_POOL, SAMPLER, WEIGHT_LOADER
from core.mem_cache.geometry import KVGroupGeometry
from core.plugins import PluginRegistry
from core.selection import Chosen, Selection, select_runtime, select_weight_loader
from core.specs import DeviceInfo

CPU = DeviceInfo("cpu")
GROUP = KVGroupGeometry(num_layers=2, num_qo_heads=8, num_kv_heads=2, head_dim=80, v_head_dim=80, scale=1.0)
LOADER = Chosen("weight_loader", "files", "dist-files", "1.0", "files.hooks", "core.weight_loader.v1")


def config(**components: Any) -> EngineConfig:
    return EngineConfig(model=ModelConfig(model="m"), **components)


def attention(name: str = "auto", **fields: Any) -> EngineConfig:
    return config(attention=AttentionConfig(attention_backend=name, **fields))


def select(registry: PluginRegistry, configuration: EngineConfig, groups: Any = (GROUP,)) -> Selection:
    return select_runtime(registry, configuration, CPU, "float32", groups, LOADER)


@pytest.fixture
def basics(site: Any) -> Any:
    """A site with one pool and one sampler."""
    site.plugin(KV_POOL, "pages", distribution="dist-pages")
    site.plugin(SAMPLER, "draw", distribution="dist-draw")
    return site


def test_auto_takes_the_highest_priority_then_the_name_whatever_the_order_of_discovery(basics: Any) -> None:
    basics.plugin(ATTENTION, "slow", priority=1)
    basics.plugin(ATTENTION, "zeta", priority=9)
    basics.plugin(ATTENTION, "beta", priority=9)
    basics.plugin(ATTENTION, "never", priority=None)
    entries = basics.registry().entries
    backends = [found for found in entries if found.kind == "attention"]
    others = [found for found in entries if found.kind != "attention"]
    tables = set()
    for order in itertools.permutations(backends):
        selection = select(PluginRegistry([*order, *others]), config())
        assert selection.decode_attention.name == selection.prefill_attention.name == "beta"
        tables.add(selection.table())
    assert len(tables) == 1


def test_the_table_tells_what_became_of_each(basics: Any, caplog: pytest.LogCaptureFixture) -> None:
    basics.plugin(ATTENTION, "best", priority=100, version="0.1.0")
    basics.plugin(ATTENTION, "good", priority=50)
    basics.plugin(ATTENTION, "byname", priority=None)
    basics.plugin(ATTENTION, "acme", priority=200, head_dims=frozenset({64, 128}), axis_orders=frozenset({"HND"}))
    basics.plugin(ATTENTION, "twice", distribution="one")
    basics.plugin(ATTENTION, "twice", distribution="two")
    basics.plugin(ATTENTION, "off")
    basics.install("acme-old", ATTENTION.group, "old", "import libold", version="0.2.0")
    basics.install("acme-next", "core.attention.v2", "next", "")
    selection = select(basics.registry(disabled=("attention:off",)), config())
    assert selection.table() == "\n".join(
        [
            "attention  best    chosen    dist-best 0.1.0  float32",
            "           good    able      priority 50 < 100 (dist-good 1.0)",
            "           byname  able      only by name (dist-byname 1.0)",
            "           acme    rejected  KV_LAYOUT wanted NHD, supported HND (try another --kv-pool)",
            "                             HEAD_DIM wanted 80, supported 64, 128 (dist-acme 1.0)",
            "           old     broken    ModuleNotFoundError: No module named 'libold' (acme-old 0.2.0)",
            "           twice   conflict  two 1.0 has the same name: write one:twice to select this (one 1.0)",
            "           twice   conflict  one 1.0 has the same name: write two:twice to select this (two 1.0)",
            "           next    incompatible  built for API v2, this core has v1 (acme-next 1.0)",
            "           off     disabled  --plugins-disable (dist-off 1.0)",
            "kv_pool    pages   chosen    dist-pages 1.0  float32, page size 16",
            "sampler    draw    chosen    dist-draw 1.0",
        ]
    )
    assert "attention plugin 'old' (acme-old 0.2.0) is broken" in caplog.text
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


def test_an_explicit_choice_wins_over_priorities(basics: Any) -> None:
    basics.plugin(ATTENTION, "best", priority=100)
    basics.plugin(ATTENTION, "byname", priority=None)
    selection = select(basics.registry(), attention("byname"))
    assert selection.decode_attention.name == "byname"
    assert "best    able      priority 100 (dist-best 1.0)" in selection.table()


def test_an_explicit_choice_fails_closed_with_every_reason(basics: Any) -> None:
    basics.plugin(ATTENTION, "best")
    basics.plugin(ATTENTION, "acme", head_dims=frozenset({64}), modes=("extend",))
    with pytest.raises(SelectionError) as refusal:
        select(basics.registry(), attention("acme"))
    message = str(refusal.value)
    for reason in ("HEAD_DIM wanted 80, supported 64", "MODE wanted decode", "MODE wanted mixed", "dist-acme 1.0"):
        assert reason in message
    assert "best  able" in message


def test_auto_without_an_able_plugin_fails_with_the_table(basics: Any) -> None:
    basics.plugin(ATTENTION, "acme", head_dims=frozenset({64}))
    basics.plugin(ATTENTION, "byname", priority=None)
    with pytest.raises(SelectionError) as refusal:
        select(basics.registry(), config())
    assert "acme    rejected  HEAD_DIM" in str(refusal.value)
    assert "byname  able      only by name" in str(refusal.value)


def test_nothing_installed(site: Any) -> None:
    with pytest.raises(SelectionError, match=r"No KV pool is installed.*core.kv_pool.v1, such as plugin-kv-pool-mha"):
        select(site.registry(), config())


def test_an_unknown_name_is_refused_with_the_valid_ones(basics: Any) -> None:
    basics.plugin(ATTENTION, "acme")
    with pytest.raises(SelectionError, match=r"Unknown attention backend 'amce'.*takes: auto, acme"):
        select(basics.registry(), attention("amce"))
    with pytest.raises(SelectionError, match=r"Unknown sampler 'x'.*takes: auto, draw"):
        select(basics.registry(), config(sampling=SamplingConfig(sampler="x")))
    with pytest.raises(SelectionError, match=r"Unknown KV pool 'x'.*takes: auto, pages"):
        select(basics.registry(), config(cache=CacheConfig(kv_pool="x")))


@pytest.mark.parametrize("source", ["import libold", "raise SystemExit(1)"])
def test_broken_and_selected_is_an_error_with_the_cause(basics: Any, source: str) -> None:
    basics.plugin(ATTENTION, "acme")
    basics.install("acme-old", ATTENTION.group, "old", source, version="0.2.0")
    with pytest.raises(SelectionError, match=r"'old' is broken: (ModuleNotFound|SystemExit).*acme-old 0.2.0"):
        select(basics.registry(), attention("old"))


def test_strict_fails_on_any_broken_plugin_of_any_kind(basics: Any) -> None:
    basics.plugin(ATTENTION, "acme")
    basics.install("acme-old", WEIGHT_LOADER.group, "old", "raise SystemExit(1)", version="0.2.0")
    select(basics.registry(), config())
    with pytest.raises(PluginError, match=r"--strict-plugins:\n.*weight_loader plugin 'old' \(acme-old 0.2.0\)"):
        select(basics.registry(), config(plugins=PluginConfig(strict_plugins=True)))


def test_one_of_two_equal_names_is_picked_by_its_distribution(basics: Any) -> None:
    basics.plugin(ATTENTION, "acme", distribution="one")
    basics.plugin(ATTENTION, "acme", distribution="two")
    with pytest.raises(SelectionError, match=r"ambiguous: one 1.0 and two 1.0"):
        select(basics.registry(), attention("acme"))
    selection = select(basics.registry(), attention("two:acme"))
    assert selection.decode_attention.distribution == "two"
    with pytest.raises(SelectionError, match="conflict"):
        select(basics.registry(), config())


def test_a_probe_rejects_or_breaks(basics: Any) -> None:
    basics.plugin(ATTENTION, "acme")
    basics.plugin(
        ATTENTION,
        "chip",
        priority=99,
        probe="from core import Reason; return [Reason('DRIVER', '12', device.type, 'update it')]",
    )
    basics.plugin(ATTENTION, "exits", priority=98, probe="raise SystemExit(4)")
    basics.plugin(ATTENTION, "forgets", priority=97, probe="return None")
    selection = select(basics.registry(), config())
    table = selection.table()
    assert selection.decode_attention.name == "acme"
    assert "chip     rejected  DRIVER wanted 12, supported cpu (update it) (dist-chip 1.0)" in table
    assert "exits    broken    SystemExit: 4 (dist-exits 1.0)" in table
    assert "forgets  broken    TypeError" in table
    with pytest.raises(PluginError, match=r"--strict-plugins"):
        select(basics.registry(), config(plugins=PluginConfig(strict_plugins=True)))


def test_auto_takes_a_pool_that_an_able_backend_can_read(site: Any) -> None:
    site.plugin(SAMPLER, "draw")
    site.plugin(KV_POOL, "fast", priority=99, axis_order="HND")
    site.plugin(KV_POOL, "plain", priority=1, axis_order="NHD")
    site.plugin(ATTENTION, "acme", axis_orders=frozenset({"NHD"}))
    selection = select(site.registry(), config())
    assert (selection.kv_pool.name, selection.decode_attention.name) == ("plain", "acme")
    assert "fast   rejected  no attention backend that may be chosen reads its layout HND" in selection.table()
    with pytest.raises(SelectionError, match=r"KV_LAYOUT wanted HND, supported NHD"):
        select(site.registry(), config(cache=CacheConfig(kv_pool="fast")))


def test_without_any_matching_pair_the_preferred_pool_explains(site: Any) -> None:
    site.plugin(SAMPLER, "draw")
    site.plugin(KV_POOL, "fast", priority=99, axis_order="HND")
    site.plugin(KV_POOL, "plain", priority=1, axis_order="NHD")
    site.plugin(ATTENTION, "acme", axis_orders=frozenset({"XYZ"}))
    with pytest.raises(SelectionError, match=r"KV_LAYOUT wanted HND, supported XYZ"):
        select(site.registry(), attention("acme"))


def test_a_pool_that_cannot_store_the_dtype_is_refused(basics: Any) -> None:
    basics.plugin(ATTENTION, "acme")
    basics.plugin(KV_POOL, "half", priority=99, kv_dtypes=frozenset({"float16"}))
    assert select(basics.registry(), config()).kv_pool.name == "pages"
    assert select(basics.registry(), config(cache=CacheConfig(kv_cache_dtype="float16"))).kv_pool.name == "half"
    with pytest.raises(SelectionError, match=r"KV_DTYPE wanted float32, supported float16 \(try another --kv-cache-"):
        select(basics.registry(), config(cache=CacheConfig(kv_pool="half")))


def test_every_kv_group_must_be_served(basics: Any) -> None:
    basics.plugin(ATTENTION, "acme", head_dims=frozenset({64, 80}))
    other = KVGroupGeometry(num_layers=2, num_qo_heads=8, num_kv_heads=2, head_dim=96, v_head_dim=96, scale=1.0)
    with pytest.raises(SelectionError, match="HEAD_DIM wanted 96, supported 64, 80"):
        select(basics.registry(), config(), (GROUP, other))


def test_decode_and_prefill_may_use_different_backends(basics: Any) -> None:
    basics.plugin(ATTENTION, "steps", modes=("decode",), options="tile: int = 1; shared: int = 0")
    basics.plugin(ATTENTION, "prompts", modes=("extend", "mixed"), options="chunk: int = 1; shared: int = 0")
    with pytest.raises(SelectionError, match="MODE wanted decode"):
        select(basics.registry(), config())
    fields = {"decode_attention_backend": "steps", "prefill_attention_backend": "prompts"}
    options = {"tile": "2", "chunk": "3", "shared": "4"}
    selection = select(basics.registry(), attention(**fields, attention_option=options))
    assert selection.decode_attention.options == {"tile": "2", "shared": "4"}
    assert selection.prefill_attention.options == {"chunk": "3", "shared": "4"}
    assert "attention decode   steps    chosen    dist-steps 1.0  float32" in selection.table()
    assert "attention prefill  prompts  chosen    dist-prompts 1.0  float32" in selection.table()
    with pytest.raises(ConfigError, match=r"--attention-option width: known neither to .*'steps'.* nor to .*'prompts'"):
        select(basics.registry(), attention(**fields, attention_option={"width": "1"}))


def test_only_decode_may_be_set_apart(basics: Any) -> None:
    basics.plugin(ATTENTION, "steps", modes=("decode",), priority=None)
    basics.plugin(ATTENTION, "all")
    selection = select(basics.registry(), attention(decode_attention_backend="steps"))
    assert (selection.decode_attention.name, selection.prefill_attention.name) == ("steps", "all")


def test_options_are_checked_before_anything_is_loaded(basics: Any) -> None:
    basics.plugin(ATTENTION, "acme", options="tile: int = 1")
    assert select(basics.registry(), attention(attention_option={"tile": "7"})).decode_attention.options == {
        "tile": "7"
    }
    with pytest.raises(ConfigError, match=r"'acme' \(dist-acme 1.0\), which knows: tile"):
        select(basics.registry(), attention(attention_option={"tile": "wide"}))
    with pytest.raises(ConfigError, match=r"'draw' \(dist-draw 1.0\), which knows: none"):
        select(basics.registry(), config(sampling=SamplingConfig(sampler_option={"hot": 1})))
    with pytest.raises(ConfigError, match=r"'pages' \(dist-pages 1.0\), which knows: none"):
        select(basics.registry(), config(cache=CacheConfig(kv_pool_option={"hot": 1})))


def test_the_weight_loader_is_found_by_the_files(site: Any) -> None:
    site.plugin(WEIGHT_LOADER, "one-file", suffixes=(".gguf",))
    site.plugin(WEIGHT_LOADER, "shards", suffixes=(".safetensors",))
    site.plugin(WEIGHT_LOADER, "noise", suffixes=(), priority=None)
    registry = site.registry()
    gguf, safetensors = frozenset({".gguf"}), frozenset({".json", ".safetensors"})
    assert select_weight_loader(registry, "auto", gguf, CPU).name == "one-file"
    assert select_weight_loader(registry, "auto", safetensors, CPU).name == "shards"
    assert select_weight_loader(registry, "noise", frozenset(), CPU).name == "noise"
    with pytest.raises(SelectionError, match=r"FILES wanted .gguf, supported .safetensors \(try another --load-format"):
        select_weight_loader(registry, "shards", gguf, CPU)
    with pytest.raises(SelectionError, match=r"be chosen automatically \(--load-format names one\)"):
        select_weight_loader(registry, "auto", frozenset({".bin"}), CPU)
    with pytest.raises(SelectionError, match=r"Unknown weight loader 'shard'. Did you mean shards\?"):
        select_weight_loader(registry, "shard", safetensors, CPU)


def test_a_selection_crosses_processes_and_turns_into_json(basics: Any) -> None:
    basics.plugin(ATTENTION, "acme", options="tile: int = 1")
    site_registry = basics.registry()
    selection = select(site_registry, attention(attention_option={"tile": 2}))
    copy = pickle.loads(pickle.dumps(selection))
    assert copy == selection
    assert (copy.digest, copy.table()) == (selection.digest, selection.table())
    told = json.loads(json.dumps(selection.to_json()))
    assert told["digest"] == selection.digest
    assert told["chosen"]["decode_attention"] == {
        "name": "acme",
        "distribution": "dist-acme",
        "version": "1.0",
        "options": {"tile": 2},
    }
    assert [row["role"] for row in told["table"]] == ["attention", "kv_pool", "sampler"]
    assert select(site_registry, attention(attention_option={"tile": 3})).digest != selection.digest
