"""Greedy decoding of transformers as the reference, compared up to near-ties.

One forward pass of transformers over prompt and answer gives, at each place, the likeliest token and its lead over the
second. An answer is right if every token is the likeliest one. Where the lead is under `NEAR_TIE` either token is
right; two answers that take different ones go on differently, so their comparison ends there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

NEAR_TIE = 1e-3


@dataclass(frozen=True)
class Checked:
    """An answer that transformers agrees with, and at each place the lead of the likeliest token in logits."""

    answer: list[int]
    leads: list[float]

    def assert_same(self, other: Sequence[int]) -> None:
        """Assert that another answer to the same prompt differs, if at all, from a near-tie on."""
        assert len(other) == len(self.answer)
        for place, (got, wanted, lead) in enumerate(zip(other, self.answer, self.leads, strict=True)):
            if got != wanted:
                assert lead < NEAR_TIE, f"token {place} is {got}, expected {wanted}, leading by {lead:.4f}"
                return


@torch.inference_mode()
def check(model: PreTrainedModel, prompt: Sequence[int], answer: Sequence[int]) -> Checked:
    """Assert that `answer` is transformers' greedy answer to `prompt`."""
    ids = torch.tensor([[*prompt, *answer[:-1]]], device=model.device)
    logits = model(input_ids=ids, logits_to_keep=len(answer)).logits[0].double()
    top = logits.topk(2)
    leads = (top.values[:, 0] - top.values[:, 1]).tolist()
    for place, (got, wanted, lead) in enumerate(zip(answer, top.indices[:, 0].tolist(), leads, strict=True)):
        assert got == wanted or lead < NEAR_TIE, (
            f"prompt of {len(prompt)} tokens: token {place} is {got}, transformers has {wanted}, leading by {lead:.4f}"
        )
    return Checked(list(answer), leads)
