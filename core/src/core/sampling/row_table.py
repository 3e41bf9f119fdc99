"""The numbers that a row keeps for sampling, packed so that one upload and one gather move all of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from core.sampling.params import SamplingParams

RowTable = np.ndarray[Any, np.dtype[np.void]]
"""`[n]` records of `_ROW`."""

_FLOATS = ("temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty")
_ROW = np.dtype(
    [("seed", np.int64), *((name, np.float32) for name in _FLOATS), ("top_k", np.int32), ("unused", np.int32)]
)
_WORD = np.dtype(np.int32)
_LARGEST = float(np.finfo(np.float32).max)
_TINIEST = float(np.finfo(np.float32).tiny)


class RowFlag(IntFlag):
    """What has an effect in a row; 8 bits."""

    RANDOM = 1
    TOP_K = 2
    TOP_P = 4
    MIN_P = 8
    PENALTY = 16
    BIAS = 32


def neutral_rows(num_rows: int, vocab_size: int) -> RowTable:
    """Rows that draw greedily and change nothing."""
    return pack_rows([SamplingParams(temperature=0.0, seed=0)] * num_rows, vocab_size)


def pack_rows(params: Sequence[SamplingParams], vocab_size: int) -> RowTable:
    """One record a request; `seed` is set. What has no effect is spelled as such, top-k and the like of greedy too.

    Numbers are brought into float32's range, so that a penalty may be absurd, but neither infinite nor a divisor 0.
    """
    table = np.zeros(len(params), _ROW)
    for name in _FLOATS:
        lowest = _TINIEST if name == "repetition_penalty" else -_LARGEST
        table[name] = np.clip([float(getattr(param, name)) for param in params], lowest, _LARGEST)
    table["seed"] = [param.seed for param in params]
    greedy = table["temperature"] < _TINIEST  # a denormal divisor could be flushed to 0
    table["temperature"][greedy] = 0
    top_k = np.array([param.top_k for param in params], np.int64)
    table["top_k"] = np.where((top_k <= 0) | (top_k > vocab_size) | greedy, vocab_size, top_k)
    table["top_p"][greedy] = 1
    table["min_p"][greedy] = 0
    return table


def flags_of(table: RowTable, has_bias: npt.NDArray[np.bool_], vocab_size: int) -> npt.NDArray[np.uint8]:
    """`[n]` `RowFlag` bits of rows."""
    penalty = (table["repetition_penalty"] != 1) | (table["frequency_penalty"] != 0) | (table["presence_penalty"] != 0)
    set_where = {
        RowFlag.RANDOM: table["temperature"] > 0,
        RowFlag.TOP_K: table["top_k"] < vocab_size,
        RowFlag.TOP_P: table["top_p"] < 1,
        RowFlag.MIN_P: table["min_p"] > 0,
        RowFlag.PENALTY: penalty,
        RowFlag.BIAS: has_bias,
    }
    flags = np.zeros(len(table), np.uint8)
    for flag, where in set_where.items():
        flags[where] |= np.uint8(flag)
    return flags


def words(table: RowTable) -> npt.NDArray[np.int32]:
    """The records as `[n, words a row]` int32, the form in which they travel and lie on the device; a view."""
    return table.view(_WORD).reshape(len(table), -1)


def columns(packed: torch.Tensor) -> dict[str, torch.Tensor]:
    """The fields in `[n, words a row]` int32 on the device, each `[n]` and of its own dtype; views."""
    fields: dict[str, torch.Tensor] = {"seed": packed[:, :2].view(torch.int64).squeeze(1)}
    floats = packed[:, 2 : 2 + len(_FLOATS)].view(torch.float32).unbind(1)
    fields.update(zip(_FLOATS, floats, strict=True))
    fields["top_k"] = packed[:, 2 + len(_FLOATS)]
    return fields
