"""Answers of `/v1/completions`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from core.managers.outputs import GenerationOutput, TokenLogprob
from core.server.logprobs import TextOffsets, completion_logprobs, joined
from core.server.reply import Reply, WholeChoice
from core.server.request_record import RequestRecord
from core.server.schema.completions import CompletionChoice, CompletionLogprobs, CompletionRequest, CompletionResponse
from core.server.schema.usage import usage


@dataclass(frozen=True, slots=True)
class PromptText:
    """A prompt as text and as ids."""

    text: str
    token_ids: list[int]


class CompletionReply(Reply):
    """Some prompts, n choices each; choice `n * prompt + i` is the i-th of that prompt.

    With `echo`, a choice's first news carries its prompt. Text offsets count from the prompt's first character,
    echoed or not, as OpenAI's do.
    """

    def __init__(
        self,
        request: CompletionRequest,
        record: RequestRecord,
        model: str,
        prompts: Sequence[PromptText],
        special_ids: frozenset[int],
    ) -> None:
        self._request = request
        self._id = record.request_id
        self._model = model
        self._prompts = prompts
        self._n = request.n or 1
        self._special_ids = special_ids
        self._invisible = frozenset() if request.skip_special_tokens is False else special_ids
        self._offsets: dict[tuple[int, int], TextOffsets] = {}
        self._created = int(time.time())
        self._encode = msgspec.json.Encoder().encode

    def opening(self) -> Iterable[bytes]:
        return ()

    def event(self, prompt: int, output: GenerationOutput) -> bytes | None:
        first = (prompt, output.index) not in self._offsets
        if first:
            self._offsets[prompt, output.index] = TextOffsets(len(self._prompts[prompt].text), self._invisible)
        wants_tokens = self._request.logprobs is not None or self._request.return_token_ids
        tells = output.text or output.finish_reason is not None or (wants_tokens and output.token_ids)
        if not (tells or (first and self._request.echo)):
            return None
        choice = self._choice(prompt, output.index, output, output.text, first=first)
        return self._response([choice], None if self._request.include_usage else UNSET)

    def closing(self, record: RequestRecord) -> Iterable[bytes]:
        if self._request.include_usage:
            yield self._response([], self._usage(record))

    def whole(self, choices: Sequence[WholeChoice], record: RequestRecord) -> bytes:
        for choice in choices:
            start = len(self._prompts[choice.prompt].text)
            self._offsets[choice.prompt, choice.index] = TextOffsets(start, self._invisible)
        written = [self._choice(each.prompt, each.index, each, each.text, first=True) for each in choices]
        return self._response(written, self._usage(record))

    def _choice(
        self, prompt: int, index: int, news: GenerationOutput | WholeChoice, text: str, *, first: bool
    ) -> CompletionChoice:
        source = self._prompts[prompt]
        return CompletionChoice(
            index=prompt * self._n + index,
            text=source.text + text if first and self._request.echo else text,
            logprobs=self._logprobs(prompt, index, news, first=first),
            finish_reason=news.finish_reason,
            stop_reason=news.stop_reason,
            token_ids=news.token_ids if self._request.return_token_ids else UNSET,
            prompt_token_ids=source.token_ids if first and self._request.return_token_ids else UNSET,
        )

    def _logprobs(
        self, prompt: int, index: int, news: GenerationOutput | WholeChoice, *, first: bool
    ) -> CompletionLogprobs | None:
        top = self._request.logprobs
        if top is None:
            return None
        new = completion_logprobs(news.logprobs or (), self._offsets[prompt, index], top)
        if not (first and self._request.echo):
            return new
        return joined([self._prompt_logprobs(prompt, news.prompt_logprobs or (), top), new])

    def _prompt_logprobs(self, prompt: int, tokens: Iterable[TokenLogprob], top: int) -> CompletionLogprobs:
        # A special token that the tokenizer added is not in the prompt's text; one that the client wrote is.
        text = self._prompts[prompt].text
        added = frozenset(
            token.token_id for token in tokens if token.token_id in self._special_ids and token.token not in text
        )
        return completion_logprobs(tokens, TextOffsets(0, added), top)

    def _usage(self, record: RequestRecord) -> Any:
        return usage(record.prompt_tokens, record.completion_tokens, record.cached_tokens)

    def _response(self, choices: list[CompletionChoice], counts: Any) -> bytes:
        return self._encode(
            CompletionResponse(id=self._id, created=self._created, model=self._model, choices=choices, usage=counts)
        )
