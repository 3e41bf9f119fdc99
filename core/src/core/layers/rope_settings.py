"""`RopeSettings`: what a model's configuration says about its rotary position embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import PretrainedConfig

from core.errors import ModelError

ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn")
DEFAULT_THETA = 10000.0


@dataclass(frozen=True, slots=True)
class RopeSettings:
    """One reading of the two spellings: `rope_parameters`, or `rope_theta` beside `rope_scaling`.

    Attributes:
        rope_type: one of `ROPE_TYPES`.
        theta: base of the wavelengths.
        max_position_embeddings: of the configuration, in tokens.
        values: everything that the configuration says, under its own keys.
    """

    rope_type: str
    theta: float
    max_position_embeddings: int
    values: dict[str, Any]

    @property
    def original_max_position_embeddings(self) -> int:
        """Tokens that the model was first trained on, before it was stretched."""
        return int(self.values.get("original_max_position_embeddings") or self.max_position_embeddings)

    @property
    def factor(self) -> float:
        """How far the model is stretched. yarn may leave it to be told from the two lengths."""
        if self.rope_type == "yarn" and self.values.get("factor") is None:
            return self.max_position_embeddings / self.original_max_position_embeddings
        return self.number("factor")

    @property
    def longest_context(self) -> int:
        """Most tokens that the scaling is meant for."""
        match self.rope_type:
            case "linear" | "dynamic":
                return max(self.max_position_embeddings, int(self.factor * self.max_position_embeddings))
            case "yarn":
                return max(self.max_position_embeddings, int(self.factor * self.original_max_position_embeddings))
            case _:
                return self.max_position_embeddings

    @property
    def usual_context(self) -> int:
        """Most tokens unless more are asked for.

        The factor of `linear` does not tell whether `max_position_embeddings` already includes it (published models do
        both), and `dynamic` changes the model beyond it; `yarn` is unambiguous.
        """
        return self.longest_context if self.rope_type == "yarn" else self.max_position_embeddings

    def number(self, key: str) -> float:
        """A value that the type needs. Raises `ModelError` if it is absent or no number."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelError(
                f"config.json has RoPE of type {self.rope_type!r} with {key} {value!r}, expected a number; "
                "correct rope_parameters (or rope_scaling) there"
            )
        return float(value)


def read_rope_settings(config: PretrainedConfig) -> RopeSettings:
    """Raises `ModelError` for a type that is not known, or for settings that differ between layers."""
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    values: dict[str, Any] = dict(found)
    nested = sorted(key for key, value in values.items() if isinstance(value, dict))
    if nested:
        raise ModelError(
            f"config.json has different RoPE for {', '.join(nested)}; only one for all layers is supported"
        )
    rope_type = values.get("rope_type") or values.get("type") or "default"
    if rope_type not in ROPE_TYPES:
        raise ModelError(f"RoPE of type {rope_type!r} is not supported; known are {', '.join(ROPE_TYPES)}")
    if values.get("partial_rotary_factor") not in (None, 1.0):
        raise ModelError(f"partial_rotary_factor {values['partial_rotary_factor']} is not supported; only 1.0 is")
    values.setdefault("rope_theta", getattr(config, "rope_theta", None) or DEFAULT_THETA)
    length = getattr(config, "max_position_embeddings", None)
    if not isinstance(length, int) or length < 1:
        raise ModelError(f"config.json has max_position_embeddings {length!r}, expected a whole number above 0")
    theta = RopeSettings(rope_type, 0.0, length, values).number("rope_theta")
    return RopeSettings(rope_type, theta, length, values)
