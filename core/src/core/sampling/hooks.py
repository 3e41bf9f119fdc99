"""The sampler that core brings, behind the same hook as everyone else's. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable

from core.hookspecs import hookimpl
from core.sampling.capabilities import SamplerCapabilities, SamplerSpec


@hookimpl
def core_samplers() -> Iterable[SamplerSpec]:
    return [
        SamplerSpec(
            name="torch",
            api=(1, 0),
            capabilities=SamplerCapabilities(device_types="any", seeded=True, cuda_graph=False),
            factory="core.sampling.torch_sampler:TorchSampler",
            auto_priority=10,
        )
    ]
