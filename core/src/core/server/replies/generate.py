"""Answers of the native `/generate`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from core.managers.outputs import GenerationOutput, TokenLogprob
from core.server.logprobs import LOWEST
from core.server.reply import Reply, WholeChoice
from core.server.request_record import RequestRecord
from core.server.schema.generate import (
    GenerateFinish,
    GenerateMeta,
    GenerateRequest,
    GenerateResponse,
    TokenTriple,
)


class GenerateReply(Reply):
    """Each event of a stream holds all of one choice so far; the whole answer is one object, or a list of them."""

    def __init__(self, request: GenerateRequest, record: RequestRecord, n: int) -> None:
        self._request = request
        self._record = record
        self._n = n
        self._single = n == 1 and not request.is_list
        self._so_far: dict[tuple[int, int], WholeChoice] = {}
        self._encode = msgspec.json.Encoder().encode

    def opening(self) -> Iterable[bytes]:
        return ()

    def event(self, prompt: int, output: GenerationOutput) -> bytes | None:
        choice = self._so_far.setdefault((prompt, output.index), WholeChoice(prompt, output.index))
        choice.add(output)
        if not (output.token_ids or output.text or output.finish_reason):
            return None
        return self._encode(self._written(choice))

    def closing(self, record: RequestRecord) -> Iterable[bytes]:
        return ()

    def whole(self, choices: Sequence[WholeChoice], record: RequestRecord) -> bytes:
        written = [self._written(choice) for choice in choices]
        return self._encode(written[0] if self._single else written)

    def _written(self, choice: WholeChoice) -> GenerateResponse:
        number = choice.prompt * self._n + choice.index
        request_id = self._record.request_id
        return GenerateResponse(
            index=UNSET if self._single else number,
            text=choice.text,
            output_ids=choice.token_ids,
            meta_info=GenerateMeta(
                id=request_id if self._single else f"{request_id}-{number}",
                finish_reason=_finish(choice),
                prompt_tokens=choice.prompt_tokens,
                completion_tokens=choice.completion_tokens,
                cached_tokens=choice.cached_tokens,
                e2e_latency=UNSET if choice.finish_reason is None else self._record.seconds,
                input_token_logprobs=self._chosen(choice.prompt_logprobs, self._reports_prompt),
                output_token_logprobs=self._chosen(choice.logprobs, self._request.return_logprob),
                input_top_logprobs=self._likeliest(choice.prompt_logprobs, self._reports_prompt),
                output_top_logprobs=self._likeliest(choice.logprobs, self._request.return_logprob),
            ),
        )

    @property
    def _reports_prompt(self) -> bool:
        return self._request.return_logprob and self._request.logprob_start_len == 0

    def _chosen(self, tokens: list[TokenLogprob], asked: bool) -> list[TokenTriple] | UnsetType:
        if not asked:
            return UNSET
        return [(_finite(token.logprob), token.token_id, token.token) for token in tokens]

    def _likeliest(self, tokens: list[TokenLogprob], asked: bool) -> list[list[TokenTriple]] | UnsetType:
        top = self._request.top_logprobs_num
        if not asked or not top:
            return UNSET
        return [[(_finite(value), id_, text) for id_, text, _, value in token.top[:top]] for token in tokens]


def _finite(logprob: float | None) -> float | None:
    return None if logprob is None else max(logprob, LOWEST)


def _finish(choice: WholeChoice) -> GenerateFinish | None:
    if choice.finish_reason is None:
        return None
    return GenerateFinish(
        type=choice.finish_reason,
        matched=UNSET if choice.stop_reason is None else choice.stop_reason,
        length=choice.completion_tokens if choice.finish_reason == "length" else UNSET,
    )
