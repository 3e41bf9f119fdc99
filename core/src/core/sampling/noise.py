"""The draw, defined: noise that depends on (seed, position, token) and on nothing else.

A sampler that declares `seeded` draws with exactly this noise, so that a seeded request gives the same tokens alone, in
any batch, after a retraction, and on any such sampler.

All integers below are unsigned with 32 bits and wrap around; `lo` and `hi` are a word's low and high 32 bits.

    mix(x):  x ^= x >> 16;  x *= 0x7feb352d;  x ^= x >> 15;  x *= 0x846ca68b;  x ^= x >> 16

    row      a = mix(lo(seed) ^ 0x9e3779b9)
             b = mix(hi(seed) ^ a)
             a = mix((a + b) ^ lo(position))
             b = mix(b ^ a)
    token    h = mix((mix(lo(token)) ^ a) + b) >> 9           23 bits
             u = (h + 0.5) * 2^-23                            exact in float32, 2^-24 <= u <= 1 - 2^-24
             noise = -log(-log(u))                            float32, from about -2.81 to 16.64

`mix` is Chris Wellons' lowbias32 (hash-prospector, https://nullprogram.com/blog/2018/07/31/, public domain). At one
position the step from seeds to pairs (a, b) loses nothing: different seeds have different pairs.

If u is uniform, -log(u) is exponential and the noise is Gumbel distributed, so that the token with the largest
`logit / temperature + noise` is a draw from the softmax (the Gumbel-max trick, Gumbel 1954). A token that is dropped by
top-k, top-p or min-p changes nobody else's noise.

The integers are the same everywhere. The two logarithms may differ in their last bits between devices, so two samplers
may disagree where the two best scores are that close.
"""

from __future__ import annotations

import torch

_WORD = 0xFFFFFFFF
_MULTIPLIER_1 = 0x7FEB352D
_MULTIPLIER_2 = 0x846CA68B - 2**32  # same low word; with |factor| < 2^31 no product leaves int64
_SEED_OFFSET = 0x9E3779B9  # so that seed 0 does not meet mix(0) = 0
_CHUNK_ELEMENTS_CPU = 1 << 18  # 2 MB of int64 stay in a CPU's cache
_CHUNK_ELEMENTS = 1 << 24  # elsewhere few launches matter more; 128 MB bound the intermediates


def gumbel_noise(seeds: torch.Tensor, positions: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
    """The noise of tokens, one row of tokens for each (seed, position).

    Args:
        seeds: `[n]` int64.
        positions: `[n]` int64, index in its row of the token to be drawn.
        token_ids: `[m]` int64, the same tokens for every row, or `[n, m]`.

    Returns:
        `[n, m]` float32 on the arguments' device, finite. Mutates nothing, never synchronises.
    """
    num_rows, num_tokens = seeds.shape[0], token_ids.shape[-1]
    noise = torch.empty(num_rows, num_tokens, dtype=torch.float32, device=seeds.device)
    at_once = _CHUNK_ELEMENTS_CPU if seeds.device.type == "cpu" else _CHUNK_ELEMENTS
    rows_at_once = max(1, at_once // max(1, num_tokens))
    a, b = (key.unsqueeze(1) for key in _row_keys(seeds, positions))
    shared = _mix_(token_ids & _WORD) if token_ids.dim() == 1 else None
    for start in range(0, num_rows, rows_at_once):
        rows = slice(start, start + rows_at_once)
        tokens = _mix_(token_ids[rows] & _WORD) if shared is None else shared
        bits = _mix_((tokens ^ a[rows]).add_(b[rows]).bitwise_and_(_WORD)).bitwise_right_shift_(9)
        out = noise[rows]
        out.copy_(bits).add_(0.5).mul_(2.0**-23)
        out.log_().neg_().log_().neg_()
    return noise


def _row_keys(seeds: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The 64 bits that a row's tokens are hashed with, as two `[n]` int64 tensors of 32-bit words."""
    a = _mix_((seeds & _WORD) ^ _SEED_OFFSET)
    b = _mix_(((seeds >> 32) & _WORD) ^ a)
    a = _mix_(((a + b) ^ positions) & _WORD)
    b = _mix_(b ^ a)
    return a, b


def _mix_(x: torch.Tensor) -> torch.Tensor:
    """lowbias32, in place. `x` is int64 and holds 32-bit words."""
    x.bitwise_xor_(x >> 16)
    x.mul_(_MULTIPLIER_1).bitwise_and_(_WORD)
    x.bitwise_xor_(x >> 15)
    x.mul_(_MULTIPLIER_2).bitwise_and_(_WORD)
    return x.bitwise_xor_(x >> 16)
