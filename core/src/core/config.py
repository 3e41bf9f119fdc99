"""One frozen configuration per component. The command line, a YAML file and the environment are derived from them.

Imports no torch. `settings.py` reads the three sources; nothing else in the package reads the environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Config(BaseModel):
    """Base of the configurations: frozen, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class ModelConfig(Config):
    """Which model, and in which form."""

    model: str = Field(description="Hub id, folder or file of the model.")
    served_model_name: str | None = Field(None, description="Name under which clients ask for it; default: as given.")
    revision: str | None = Field(None, description="Revision of a hub id.")
    tokenizer: str | None = Field(None, description="Hub id or folder of another tokenizer than the model's own.")
    chat_template: Path | None = Field(None, description="File with a Jinja chat template to use instead.")
    load_format: str = Field("auto", description="Weight loader: auto or a plugin's name.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Of weights and activations; auto takes the model's own."
    )
    context_length: int | None = Field(None, ge=1, description="Most tokens of a request; default: the model's.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Device to run on.")
    seed: int = Field(0, description="Of random weights (--load-format dummy).")


class CacheConfig(Config):
    """The memory for keys and values."""

    kv_pool: str = Field("auto", description="KV memory pool: auto or a plugin's name.")
    kv_pool_option: dict[str, Any] = Field(default_factory=dict, description="Setting of the pool, KEY=VALUE.")
    kv_cache_dtype: str = Field("auto", description="Of keys and values; auto takes the model's.")
    page_size: int = Field(16, ge=1, description="Tokens a page.")
    max_total_tokens: int | None = Field(None, ge=1, description="Tokens that the pool holds; default: from memory.")
    mem_fraction: float = Field(
        0.85, gt=0, lt=1, description="Share of the memory left by the weights that the pool may take."
    )
    disable_radix_cache: bool = Field(False, description="Do not share prefixes between requests.")


class AttentionConfig(Config):
    """Which attention backend."""

    attention_backend: str = Field("auto", description="Attention backend: auto or a plugin's name.")
    decode_attention_backend: str | None = Field(None, description="Another one for decode.")
    prefill_attention_backend: str | None = Field(None, description="Another one for prefill.")
    attention_option: dict[str, Any] = Field(default_factory=dict, description="Setting of the backend, KEY=VALUE.")


class SamplingConfig(Config):
    """Which sampler."""

    sampler: str = Field("auto", description="Sampler: auto or a plugin's name.")
    sampler_option: dict[str, Any] = Field(default_factory=dict, description="Setting of the sampler, KEY=VALUE.")


class SchedulerConfig(Config):
    """What runs when."""

    max_running_requests: int = Field(256, ge=1, description="Most requests in one batch.")
    max_queued_requests: int = Field(2048, ge=0, description="Most requests that wait; one more is refused.")
    chunked_prefill_size: int = Field(2048, ge=1, description="Most prompt tokens a step.")
    schedule_policy: Literal["lpm", "fcfs"] = Field("lpm", description="Longest prefix match, or first come.")
    new_token_ratio: float = Field(
        0.5, gt=0, le=1, description="Share of their token limits that running requests are first expected to use."
    )
    disable_overlap_schedule: bool | None = Field(
        None,
        description="Read each step's tokens before the next is launched; default: where launches are synchronous.",
    )


class PluginConfig(Config):
    """How plugins are treated."""

    strict_plugins: bool = Field(False, description="Fail if any installed plugin is broken.")
    plugins_disable: list[str] = Field(default_factory=list, description="Plugin to leave out, KIND:NAME.")


class ServerConfig(Config):
    """The HTTP server."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(30000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    drain_timeout: float = Field(30.0, ge=0, description="Seconds that open requests get after SIGTERM.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")


class EngineConfig(Config):
    """All that an engine is made from, server aside."""

    model: ModelConfig
    cache: CacheConfig = CacheConfig()
    attention: AttentionConfig = AttentionConfig()
    sampling: SamplingConfig = SamplingConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    plugins: PluginConfig = PluginConfig()


COMPONENTS: dict[str, type[Config]] = {
    "model": ModelConfig,
    "cache": CacheConfig,
    "attention": AttentionConfig,
    "sampling": SamplingConfig,
    "scheduler": SchedulerConfig,
    "plugins": PluginConfig,
}
"""Field of `EngineConfig` -> its type; their field names are unique across components."""
