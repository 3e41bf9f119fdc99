"""The order of a row's tokens, likeliest first and at equal logits the lower id first, as one integer a token.

Top-k, top-p and the reported alternatives all follow this order, so that ties are cut the same way on every device,
whatever `torch.topk` or an unstable sort makes of equal values.
"""

from __future__ import annotations

import torch

_ID_BITS = 32
_ID_MASK = 2**_ID_BITS - 1


def sanitize(logits: torch.Tensor) -> torch.Tensor:
    """Replace, in place, NaN by -inf and +inf by the largest float32. Returns `logits`.

    A NaN of a broken kernel or model thereby costs its own row that token, and other rows nothing.
    """
    torch.nan_to_num_(logits, nan=-torch.inf, posinf=torch.finfo(torch.float32).max, neginf=-torch.inf)
    return logits


def gaps_below_max(logits: torch.Tensor) -> torch.Tensor:
    """How far each logit lies below its row's largest: `[n, vocab_size]` float32, >= 0, 0 for the largest itself.

    `logits` are sanitised. -inf gives inf; a row of nothing but -inf gives a row of inf.
    """
    largest = logits.amax(dim=-1, keepdim=True)
    return largest.masked_fill_(largest == -torch.inf, 0.0) - logits


def rank_keys(logits: torch.Tensor) -> torch.Tensor:
    """One key a token, `[n, vocab_size]` int64, different within a row: the smaller the key, the likelier the token.

    Read as integers, the bits of float32 numbers order as the numbers do, once those of negative ones are flipped and
    -0.0 is gone. Their complement makes the key's high word, the id makes its low word. `logits` are sanitised.
    """
    bits = (logits + 0.0).view(torch.int32)
    bits.bitwise_xor_((bits >> 31).bitwise_and_(0x7FFFFFFF))
    keys = bits.bitwise_not_().long().mul_(2**_ID_BITS)
    return keys.add_(torch.arange(logits.shape[-1], device=logits.device))


def smallest_keys(keys: torch.Tensor, num: int) -> torch.Tensor:
    """The `num` smallest keys of each row, `[n, num]`, in ascending order."""
    if num < keys.shape[-1]:
        smallest, _ = torch.topk(keys, num, dim=-1, largest=False, sorted=True)
    else:
        smallest, _ = torch.sort(keys, dim=-1)
    return smallest


def key_ids(keys: torch.Tensor) -> torch.Tensor:
    """The token ids in `keys`, int64."""
    return keys.bitwise_and(_ID_MASK)
