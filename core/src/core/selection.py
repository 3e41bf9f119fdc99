"""Decides once, in the parent process, which plugins run a model, and explains why.

The result is sent to every child process, which loads exactly what it names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from core.attention.capabilities import AttentionCapabilities, AttentionRequirements, CudaGraphSupport
from core.candidates import Candidate, Contest, Row, hold_contest, render
from core.config import EngineConfig
from core.errors import ConfigError, PluginError, SelectionError
from core.hookspecs import ATTENTION, KV_POOL, SAMPLER, WEIGHT_LOADER
from core.loading.capabilities import WeightLoaderCapabilities, WeightLoaderRequirements
from core.mem_cache.capabilities import KVPoolCapabilities, KVPoolRequirements
from core.mem_cache.geometry import KVGroupGeometry
from core.model_executor.forward_mode import ForwardMode
from core.plugins import AUTO, FoundPlugin, PluginRegistry, validate_options
from core.sampling.capabilities import SamplerCapabilities, SamplerRequirements
from core.specs import DeviceInfo, Reason

_DECODE = frozenset({ForwardMode.DECODE.value})
_PREFILL = frozenset({ForwardMode.EXTEND.value, ForwardMode.MIXED.value})


@dataclass(frozen=True, slots=True)
class Chosen(FoundPlugin):
    """A plugin that was selected; picklable. `rows` tell what it was chosen from, and why."""

    options: dict[str, Any] = field(default_factory=dict)
    rows: tuple[Row, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Selection:
    """The plugins that run a model; picklable. One plugin may serve both decode and prefill attention."""

    weight_loader: Chosen
    kv_pool: Chosen
    decode_attention: Chosen
    prefill_attention: Chosen
    sampler: Chosen

    @property
    def rows(self) -> tuple[Row, ...]:
        """The explanation: every installed plugin of every kind, and what became of it."""
        chosen = (self.decode_attention, self.prefill_attention, self.kv_pool, self.sampler, self.weight_loader)
        return tuple(dict.fromkeys(row for one in chosen for row in one.rows))

    @property
    def digest(self) -> str:
        """Equal for equal selections, with equal versions and options, also in another process."""
        return hashlib.sha256(json.dumps(self._chosen(), sort_keys=True, default=str).encode()).hexdigest()[:16]

    def table(self) -> str:
        """The explanation as plain text."""
        return render(self.rows)

    def to_json(self) -> dict[str, Any]:
        """The explanation as JSON values."""
        table = [
            {
                "role": row.role,
                "name": row.name,
                "outcome": row.outcome,
                "distribution": row.distribution,
                "version": row.version,
                "notes": list(row.notes),
            }
            for row in self.rows
        ]
        return {"digest": self.digest, "chosen": self._chosen(), "table": table}

    def _chosen(self) -> dict[str, Any]:
        chosen = {
            "weight_loader": self.weight_loader,
            "kv_pool": self.kv_pool,
            "decode_attention": self.decode_attention,
            "prefill_attention": self.prefill_attention,
            "sampler": self.sampler,
        }
        return {
            role: {"name": one.name, "distribution": one.distribution, "version": one.version, "options": one.options}
            for role, one in chosen.items()
        }


def select_weight_loader(
    registry: PluginRegistry, load_format: str, suffixes: frozenset[str], device: DeviceInfo
) -> Chosen:
    """Who reads the model's files.

    Args:
        load_format: `auto`, or a plugin's name.
        suffixes: of the model's files, in lower case.

    Raises:
        SelectionError: nobody can, or not the one that was named.
    """
    requirements = WeightLoaderRequirements(suffixes=suffixes)

    def judge(capabilities: WeightLoaderCapabilities) -> list[Reason]:
        return capabilities.mismatches(requirements)

    contest = hold_contest(registry, WEIGHT_LOADER, WEIGHT_LOADER.name, load_format, device, judge)
    chosen = _chosen_from(contest, {})
    registry.warn_broken()
    return chosen


def select_runtime(
    registry: PluginRegistry,
    config: EngineConfig,
    device: DeviceInfo,
    dtype: str,
    kv_groups: Sequence[KVGroupGeometry],
    weight_loader: Chosen,
) -> Selection:
    """Who runs the model whose files `weight_loader` reads.

    Args:
        dtype: of the model's activations, by torch's name without the prefix.
        kv_groups: each must be served by the same plugins.

    Raises:
        SelectionError: nobody can, or not those that were named; the message has every reason.
        ConfigError: the options do not fit a plugin that was selected.
        PluginError: a plugin is broken, and the configuration is strict.
    """
    kv_dtype = dtype if config.cache.kv_cache_dtype == AUTO else config.cache.kv_cache_dtype
    pool, attention = _pool_and_attention(registry, config, device, dtype, kv_dtype, kv_groups)
    kv_pool = _chosen_from(pool, config.cache.kv_pool_option, f"{kv_dtype}, page size {config.cache.page_size}")
    decode, prefill = _chosen_attention(attention, config.attention.attention_option, dtype)

    def judge(capabilities: SamplerCapabilities) -> list[Reason]:
        return capabilities.mismatches(SamplerRequirements(device_type=device.type))

    contest = hold_contest(registry, SAMPLER, SAMPLER.name, config.sampling.sampler, device, judge)
    sampler = _chosen_from(contest, config.sampling.sampler_option)
    if config.plugins.strict_plugins:
        registry.load_all()
        if registry.broken:
            raise PluginError("\n".join(["--strict-plugins:", *(f"  {broken}" for broken in registry.broken)]))
    registry.warn_broken()
    return Selection(weight_loader, kv_pool, decode, prefill, sampler)


def _pool_and_attention(
    registry: PluginRegistry,
    config: EngineConfig,
    device: DeviceInfo,
    dtype: str,
    kv_dtype: str,
    kv_groups: Sequence[KVGroupGeometry],
) -> tuple[Contest, list[Contest]]:
    """The most preferred pool that the attention backends, as configured, can read; and their contests with it."""
    page_size = config.cache.page_size

    def judge(capabilities: KVPoolCapabilities) -> Iterator[Reason]:
        for group in kv_groups:
            yield from capabilities.mismatches(
                KVPoolRequirements(device_type=device.type, kv_dtype=kv_dtype, page_size=page_size, mla=group.mla)
            )

    wanted = config.attention
    decode = wanted.decode_attention_backend or wanted.attention_backend
    prefill = wanted.prefill_attention_backend or wanted.attention_backend
    roles = [("attention", decode, _DECODE | _PREFILL)]
    if decode != prefill:
        roles = [("attention decode", decode, _DECODE), ("attention prefill", prefill, _PREFILL)]

    def judge_attention(
        axis_order: str, modes: frozenset[str], capabilities: AttentionCapabilities
    ) -> Iterator[Reason]:
        for group in kv_groups:
            yield from capabilities.mismatches(
                AttentionRequirements(
                    device_type=device.type,
                    dtype=dtype,
                    kv_dtype=kv_dtype,
                    kv_axis_order=axis_order,
                    head_dim=group.head_dim,
                    v_head_dim=group.v_head_dim,
                    num_qo_heads=group.num_qo_heads,
                    num_kv_heads=group.num_kv_heads,
                    page_size=page_size,
                    window=group.window,
                    soft_cap=group.soft_cap,
                    sinks=group.sinks,
                    mla=group.mla,
                    cuda_graph=CudaGraphSupport.NEVER,
                    modes=modes,
                )
            )

    pools = hold_contest(registry, KV_POOL, KV_POOL.name, config.cache.kv_pool, device, judge)
    refusal: SelectionError | None = None
    while True:
        if refusal is not None and pools.winner is None:
            raise refusal
        pool = pools.require()
        assert pool.spec is not None
        axis_order = pool.spec.capabilities.axis_order
        contests = [
            hold_contest(registry, ATTENTION, role, name, device, partial(judge_attention, axis_order, modes))
            for role, name, modes in roles
        ]
        try:
            for contest in contests:
                contest.require()
            return pools, contests
        except SelectionError as error:
            # The refusal for the most preferred pool is the one that a user can do most with.
            refusal = refusal or error
            pools = pools.reject(pool, f"no attention backend that may be chosen reads its layout {axis_order}")


def _chosen_attention(contests: list[Contest], options: dict[str, Any], dtype: str) -> tuple[Chosen, Chosen]:
    """Decode and prefill. Where two plugins share the work, each gets those of the options that it knows."""
    decode, prefill = contests[0], contests[-1]
    first, second = decode.require(), prefill.require()
    if first.found == second.found:
        return _chosen_from(decode, options, dtype), _chosen_from(prefill, options, dtype)
    for_decode, for_prefill = _known(first, options), _known(second, options)
    if unknown := options.keys() - for_decode.keys() - for_prefill.keys():
        raise ConfigError(
            f"--attention-option {', '.join(sorted(unknown))}: known neither to {first.found} nor to {second.found}"
        )
    return _chosen_from(decode, for_decode, dtype), _chosen_from(prefill, for_prefill, dtype)


def _known(candidate: Candidate, options: dict[str, Any]) -> dict[str, Any]:
    assert candidate.spec is not None
    return {key: value for key, value in options.items() if key in candidate.spec.options.model_fields}


def _chosen_from(contest: Contest, options: dict[str, Any], detail: str = "") -> Chosen:
    """The winner, after its options were validated, so that a mistake ends the start here."""
    winner = contest.require()
    assert winner.spec is not None
    validate_options(winner.spec, options)
    found = winner.found
    return Chosen(
        kind=found.kind,
        name=found.name,
        distribution=found.distribution,
        version=found.version,
        value=found.value,
        group=found.group,
        options=options,
        rows=contest.rows(detail),
    )
