"""`RowInit`: what the device must know of a row before its first step. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class RowInit:
    """A row that starts, or starts again after a retraction: the parameters that stay on the device until it ends.

    Attributes:
        row: index of the row.
        params: what the request asks for; `params.seed` is set.
        eos_token_ids: ids that end the request, unless it ignores them.
        prompt_ids: the prompt, for the repetition penalty.
        output_ids: tokens drawn before a retraction, for the penalties.
    """

    row: int
    params: SamplingParams
    eos_token_ids: tuple[int, ...]
    prompt_ids: npt.NDArray[np.int32]
    output_ids: npt.NDArray[np.int32]
