"""Answers of `/v1/chat/completions`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET

from core.managers.outputs import GenerationOutput
from core.server.logprobs import chat_logprobs
from core.server.reply import Reply, WholeChoice
from core.server.request_record import RequestRecord
from core.server.schema.chat import (
    ChatAnswer,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatRequest,
    ChatResponse,
)
from core.server.schema.usage import usage


class ChatReply(Reply):
    """One conversation, n choices. A stream gives each choice's role first, then its text as it comes."""

    def __init__(self, request: ChatRequest, record: RequestRecord, model: str, prompt_ids: list[int]) -> None:
        self._request = request
        self._id = record.request_id
        self._model = model
        self._prompt_ids = prompt_ids if request.return_token_ids else UNSET
        self._created = int(time.time())
        self._encode = msgspec.json.Encoder().encode

    def opening(self) -> Iterable[bytes]:
        prompt_ids = self._prompt_ids
        for index in range(self._request.n or 1):
            choice = ChatChunkChoice(index=index, delta=ChatDelta(role="assistant", content=""))
            yield self._chunk([choice], prompt_ids=prompt_ids)
            prompt_ids = UNSET

    def event(self, prompt: int, output: GenerationOutput) -> bytes | None:
        wants_tokens = self._request.logprobs or self._request.return_token_ids
        ended = output.finish_reason is not None
        if not (output.text or ended or (wants_tokens and output.token_ids)):
            return None
        choice = ChatChunkChoice(
            index=output.index,
            delta=ChatDelta(content=output.text if output.text or not ended else UNSET),
            logprobs=self._logprobs(output),
            finish_reason=output.finish_reason,
            stop_reason=output.stop_reason if ended else UNSET,
            token_ids=output.token_ids if self._request.return_token_ids else UNSET,
        )
        return self._chunk([choice])

    def closing(self, record: RequestRecord) -> Iterable[bytes]:
        if self._request.include_usage:
            counts = usage(record.prompt_tokens, record.completion_tokens, record.cached_tokens)
            yield self._encode(
                ChatChunk(id=self._id, created=self._created, model=self._model, choices=[], usage=counts)
            )

    def whole(self, choices: Sequence[WholeChoice], record: RequestRecord) -> bytes:
        return self._encode(
            ChatResponse(
                id=self._id,
                created=self._created,
                model=self._model,
                choices=[
                    ChatChoice(
                        index=choice.index,
                        message=ChatAnswer(content=choice.text),
                        logprobs=self._logprobs(choice),
                        finish_reason=choice.finish_reason,
                        stop_reason=choice.stop_reason,
                        token_ids=choice.token_ids if self._request.return_token_ids else UNSET,
                    )
                    for choice in choices
                ],
                usage=usage(record.prompt_tokens, record.completion_tokens, record.cached_tokens),
                prompt_token_ids=self._prompt_ids,
            )
        )

    def _logprobs(self, news: GenerationOutput | WholeChoice) -> ChatLogprobs | None:
        if not self._request.logprobs:
            return None
        return chat_logprobs(news.logprobs or (), self._request.top_logprobs or 0)

    def _chunk(self, choices: list[ChatChunkChoice], prompt_ids: list[int] | msgspec.UnsetType = UNSET) -> bytes:
        return self._encode(
            ChatChunk(
                id=self._id,
                created=self._created,
                model=self._model,
                choices=choices,
                usage=None if self._request.include_usage else UNSET,
                prompt_token_ids=prompt_ids,
            )
        )
