"""`Choice`: collects the engine's news of one choice for its reader. Imports no torch.

Unread news merge into one, so that a slow reader costs its tokens and no more.
"""

from __future__ import annotations

from typing import Any, final

from core.managers.choice_text import choice_text
from core.managers.messages import AddRequest, Logprob, RequestOutput
from core.managers.outputs import GenerationOutput, TokenLogprob
from core.managers.token_text import token_text
from core.sampling.params import SamplingParams


@final
class Choice:
    """One choice of a request.

    Args:
        index: which of the n.
        request: as it goes to the engine.
        params: as the caller gave them, with the stop strings, which the engine does not get.
        tokenizer: None makes every text empty.

    Attributes:
        request_id: of this choice, in the engine.
        waiting: no news have come yet.
        finish_reason: set when it ends; news after that are ignored.
    """

    def __init__(self, index: int, request: AddRequest, params: SamplingParams, tokenizer: Any | None) -> None:
        self.index = index
        self.request_id = request.request_id
        self.waiting = True
        self.finish_reason: str | None = None
        self._prompt_ids = request.prompt_ids
        self._eos_token_ids = () if params.ignore_eos else request.eos_token_ids
        self._params = params
        self._tokenizer = tokenizer
        self._text = choice_text(tokenizer, request.prompt_ids, params)
        self._num_tokens = 0
        self._cached_tokens = 0
        self._stop_reason: str | int | None = None
        self._error: str | None = None
        # What nobody has read yet.
        self._has_news = False
        self._token_ids: list[int] = []
        self._logprobs: list[Logprob] = []
        self._prompt_logprobs: list[Logprob] | None = None

    def receive(self, output: RequestOutput) -> bool:
        """Take news in. True if a stop string has ended the choice and the engine does not know it yet."""
        if self.finish_reason is not None:
            return False
        if self.waiting:
            self.waiting = False
            self._cached_tokens = output.cached_tokens
            self._prompt_logprobs = output.prompt_logprobs
        num_kept, matched = self._push(output)
        self._has_news = True
        self._num_tokens += num_kept
        self._token_ids += output.token_ids[:num_kept]
        self._logprobs += (output.logprobs or [])[:num_kept]
        if matched is not None:
            self.finish_reason, self._stop_reason = "stop", matched
            return output.finish_reason is None
        self.finish_reason, self._error = output.finish_reason, output.error
        if output.stop_token_id not in self._eos_token_ids:
            self._stop_reason = output.stop_token_id
        return False

    def _push(self, output: RequestOutput) -> tuple[int, str | None]:
        """Hand the tokens on. How many of them count, and the stop string that ended the choice, if one did."""
        # The id that ended it is no text, unless asked for.
        hidden = output.stop_token_id is not None and not self._params.include_stop
        match = self._text.push(output.token_ids[:-1] if hidden else output.token_ids)
        if match is not None:
            return match
        return len(output.token_ids), None if output.finish_reason is None else self._text.end()

    def abort(self) -> None:
        """End it here, unless it has ended."""
        if self.finish_reason is None:
            self.waiting = False
            self.finish_reason = "abort"
            self._text.end()
            self._has_news = True

    def give_up(self, error: str) -> None:
        """End it here for a reason that its reader is told. What text is held back is lost."""
        self.finish_reason, self._error = "abort", error
        self._has_news = True

    def take(self) -> GenerationOutput | None:
        """All unread news as one, or None if there are none."""
        if not self._has_news:
            return None
        self._has_news = False
        token_ids, self._token_ids = self._token_ids, []
        logprobs, self._logprobs = self._logprobs, []
        prompt_logprobs, self._prompt_logprobs = self._prompt_logprobs, None
        wants_logprobs = self._params.logprobs is not None
        return GenerationOutput(
            index=self.index,
            text=self._text.take(),
            token_ids=token_ids,
            logprobs=[self._described(entry) for entry in logprobs] if wants_logprobs else None,
            prompt_logprobs=None if prompt_logprobs is None else self._of_prompt(prompt_logprobs),
            finish_reason=self.finish_reason,
            stop_reason=self._stop_reason,
            prompt_tokens=len(self._prompt_ids),
            completion_tokens=self._num_tokens,
            cached_tokens=self._cached_tokens,
            error=self._error,
        )

    def _of_prompt(self, entries: list[Logprob]) -> list[TokenLogprob]:
        first = self._prompt_ids[0]
        return [TokenLogprob(first, *self._token(first), None), *(self._described(entry) for entry in entries)]

    def _described(self, entry: Logprob) -> TokenLogprob:
        top = tuple((token_id, *self._token(token_id), logprob) for token_id, logprob in entry.top)
        return TokenLogprob(entry.token_id, *self._token(entry.token_id), entry.logprob, top)

    def _token(self, token_id: int) -> tuple[str, bytes]:
        return ("", b"") if self._tokenizer is None else token_text(self._tokenizer, token_id)
