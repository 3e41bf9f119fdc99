"""What a configuration asks of a sampler, and what a sampler says that it does."""

from __future__ import annotations

from dataclasses import dataclass

from core.specs import Anything, PluginSpec, Reason, check_member


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerRequirements:
    """What the engine asks of its sampler."""

    device_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerCapabilities:
    """What a sampler does. Every field is required.

    Attributes:
        device_types: torch's names of device types.
        seeded: it draws with the noise of `core.sampling.noise`, so that a seeded request gives the tokens of every
            other seeded sampler.
        cuda_graph: `sample` may be captured in a CUDA graph.
    """

    device_types: frozenset[str] | Anything
    seeded: bool
    cuda_graph: bool

    def mismatches(self, requirements: SamplerRequirements) -> list[Reason]:
        """Every reason why this sampler cannot serve `requirements`; empty means that it can."""
        reasons: list[Reason] = []
        check_member(reasons, "DEVICE", requirements.device_type, self.device_types)
        return reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSpec(PluginSpec[SamplerCapabilities]):
    """A sampler. The factory takes a `SamplerContext` and returns a `Sampler`."""
