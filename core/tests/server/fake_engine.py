"""A front end whose engine is a few lines: the model repeats its prompt, byte by byte, over and over.

Tokens are bytes; 256 is the beginning of a text, 257 its end. Everything else is as the real front end behaves:
complete characters only, exactly one finish reason for each choice, nothing queued if a request is refused.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator, Sequence

from core.errors import EngineDead, InvalidRequest, Overloaded
from core.managers.input_validation import Admission
from core.managers.messages import EngineReady, EngineStats
from core.managers.outputs import GenerationOutput, TokenLogprob
from core.sampling.params import SamplingParams
from core.server.lifecycle import LoadedEngine
from core.server.service import Serving

BOS, EOS = 256, 257
VOCAB = 258
SPECIAL = {BOS: "<s>", EOS: "</s>"}


class FakeTokenizer:
    @property
    def all_special_ids(self) -> list[int]:
        return [BOS, EOS]

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(utf8_of(i) for i in ids).decode(errors="replace")


def utf8_of(token: int) -> bytes:
    return SPECIAL[token].encode() if token in SPECIAL else bytes([token])


def logprob_of(token: int) -> float:
    return -token / 100


def described(token: int, top: int, *, first: bool = False) -> TokenLogprob:
    likeliest = [(t, utf8_of(t).decode(errors="replace"), utf8_of(t), logprob_of(t)) for t in range(97, 97 + top)]
    value = None if first else logprob_of(token)
    text = utf8_of(token).decode(errors="replace")
    return TokenLogprob(token, text, utf8_of(token), value, () if first else tuple(likeliest))


class FakeStream:
    def __init__(self, engine: FakeEngine, request_id: str, prompt: list[int], params: SamplingParams) -> None:
        self.engine, self.request_id, self.prompt, self.params = engine, request_id, prompt, params
        self.aborted = False
        self.ended = False

    def abort(self) -> None:
        if not self.ended:
            self.aborted = True
            self.engine.aborted.append(self.request_id)

    async def __aiter__(self) -> AsyncIterator[GenerationOutput]:
        engine, params, count = self.engine, self.params, len(self.prompt)
        engine.running += 1
        try:
            drawn = engine.script or [t for t in self.prompt if t not in SPECIAL] or [EOS]
            limit = engine.context - count if params.max_tokens is None else params.max_tokens
            if limit == 0:
                for index in range(params.n):
                    yield GenerationOutput(
                        index=index,
                        text="",
                        token_ids=[],
                        prompt_logprobs=self._prompt_logprobs(),
                        finish_reason="length",
                        prompt_tokens=count,
                    )
            decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in range(params.n)]
            for step in range(limit):
                await engine.step()
                if self.aborted:
                    return
                engine.check_alive()
                token = drawn[step % len(drawn)]
                eos = token == EOS and not params.ignore_eos
                reason = "stop" if eos else "length" if step + 1 == limit else None
                for index, decoder in enumerate(decoders):
                    text = "" if token in SPECIAL else decoder.decode(bytes([token]))
                    yield GenerationOutput(
                        index=index,
                        text=text + (decoder.decode(b"", final=True) if reason else ""),
                        token_ids=[token],
                        logprobs=None if params.logprobs is None else [described(token, params.logprobs)],
                        prompt_logprobs=self._prompt_logprobs() if step == 0 else None,
                        finish_reason=reason,
                        error=engine.failure if step == engine.failure_step else None,
                        prompt_tokens=count,
                        completion_tokens=step + 1,
                        cached_tokens=count // 2,
                    )
                if reason:
                    break
            self.ended = True
        finally:
            engine.running -= 1

    def _prompt_logprobs(self) -> list[TokenLogprob] | None:
        top = self.params.prompt_logprobs
        if top is None:
            return None
        return [described(token, top, first=number == 0) for number, token in enumerate(self.prompt)]


class FakeEngine:
    """`delay` is in seconds a step; `script`, where set, is drawn instead of the prompt."""

    def __init__(self, delay: float = 0.0) -> None:
        self.delay = delay
        self.script: list[int] = []
        self.context = 1000
        self.max_submitted = 1000
        self.running = 0
        self.dead = asyncio.Event()
        self.failure: str | None = None
        self.failure_step = 1
        self.submitted: list[tuple[str, list[int], SamplingParams, str]] = []
        self.aborted: list[str] = []
        self.tokenizer = FakeTokenizer()
        self.closed = False

    @property
    def ready(self) -> EngineReady:
        return EngineReady(
            max_total_tokens=4096,
            max_context_len=self.context,
            vocab_size=VOCAB,
            num_pages=64,
            page_size=16,
            load_seconds=0.5,
        )

    @property
    def stats(self) -> EngineStats:
        prompts = sum(len(ids) for _, ids, _, _ in self.submitted)
        return EngineStats(
            num_running=self.running,
            num_pages=64,
            num_free_pages=40,
            num_cached_pages=8,
            num_held_pages=16,
            prompt_tokens=prompts,
            cached_tokens=prompts // 2,
            output_tokens=7,
        )

    async def step(self) -> None:
        await asyncio.sleep(self.delay)

    def check_alive(self) -> None:
        if self.dead.is_set():
            raise EngineDead("killed by a test")

    async def encode_async(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return ([BOS] if add_special_tokens and text else []) + list(text.encode())

    def check(self, prompt: Sequence[int], params: SamplingParams) -> Admission:
        ids = list(prompt)
        if not all(0 <= token < VOCAB for token in ids):
            raise InvalidRequest(f"token ids must be below {VOCAB}", param="prompt")
        if params.max_tokens == 0 and params.prompt_logprobs is None:
            raise InvalidRequest("max_tokens is 0", param="max_tokens")
        if len(ids) + (1 if params.max_tokens is None else params.max_tokens) > self.context:
            raise InvalidRequest(f"more than the context of {self.context} tokens", param="max_tokens")
        return Admission(ids, params)

    def enqueue(self, admission: Admission, *, request_id: str, extra_key: str = "") -> FakeStream:
        self.check_alive()
        if len(self.submitted) >= self.max_submitted:
            raise Overloaded("too many requests wait")
        self.submitted.append((request_id, admission.prompt_ids, admission.params, extra_key))
        return FakeStream(self, request_id, admission.prompt_ids, admission.params)

    async def flush_cache(self) -> int:
        return 8


class FakeTemplate:
    """Writes `role:content` lines; without `template` it is a base model's."""

    def __init__(self) -> None:
        self.present = True
        self.variables: dict[str, object] = {}

    def render(
        self,
        messages: list[dict[str, object]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **variables: object,
    ) -> str:
        if not self.present:
            raise InvalidRequest("this model has no chat template; use /v1/completions", param="messages")
        self.variables = variables
        lines = [f"{message['role']}:{message['content']}\n" for message in messages]
        if continue_final_message:
            return "".join(lines).removesuffix("\n")
        return "".join(lines) + ("assistant:" if add_generation_prompt else "")


class FakeLoaded(LoadedEngine):
    """What the server's loader returns."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self._serving = Serving(engine, FakeTemplate(), table="attention  fake  chosen")

    @property
    def serving(self) -> Serving:
        return self._serving

    async def died(self) -> str:
        await self.engine.dead.wait()
        return "killed by a test"

    async def close(self) -> None:
        self.engine.closed = True
