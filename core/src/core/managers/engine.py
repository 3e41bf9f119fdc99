"""`Engine`: the engine in this process, for offline batches and for programs that bring their own interface."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, cast, final

from core.errors import InvalidRequest
from core.managers.chat_template import ChatTemplate
from core.managers.engine_host import EngineHost, Prompt, next_output
from core.managers.engine_settings import engine_config
from core.managers.messages import EngineReady, EngineStats
from core.managers.outputs import Completion, GenerationOutput
from core.sampling.params import SamplingParams

if TYPE_CHECKING:
    from core.loading.model_info import ModelInfo
    from core.managers.engine_core import EngineCore

Conversation = Sequence[Mapping[str, Any]]
"""Messages as OpenAI writes them: `[{"role": "user", "content": "Hello"}]`."""

_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""What a model may recommend, under the names of its `generation_config.json`."""


@final
class Engine:
    """Loads a model and generates. Thread-safe.

        with Engine(model="Qwen/Qwen3-8B") as engine:
            print(engine.generate("Once upon a time", SamplingParams(max_tokens=64))[0].text)

    Scheduling and the model run in one thread, text in another; callers only wait. `shutdown`, the end of a `with`
    statement, garbage collection or the interpreter's exit ends both.

    Args:
        model: hub id, folder or file.
        settings: as on the command line, with underscores: `page_size=16`, `attention_backend="torch"`. They are the
            fields of the configurations in `core.config`.

    Raises:
        ConfigError, ModelError, PluginError: before any weight is read, unless a weight itself is at fault.
    """

    def __init__(self, model: str | Path, **settings: Any) -> None:
        config = engine_config({"model": str(model), **settings})

        from core.managers.build import build_engine_core
        from core.managers.prepare import prepare
        from core.managers.tokenizer import load_tokenizer

        prepared = prepare(config)
        template = prepared.config.model.chat_template
        self._open(
            EngineHost(partial(build_engine_core, prepared), prepared.info, partial(load_tokenizer, prepared)), template
        )

    @classmethod
    def from_parts(
        cls,
        build: Callable[[], EngineCore],
        info: ModelInfo,
        load_tokenizer: Callable[[], Any | None],
        chat_template: Path | None = None,
    ) -> Self:
        """An engine of one's own making. `build` is called in the engine's thread, `load_tokenizer` meanwhile."""
        engine = cls.__new__(cls)
        engine._open(EngineHost(build, info, load_tokenizer), chat_template)
        return engine

    def _open(self, host: EngineHost, chat_template: Path | None) -> None:
        self._host = host
        # The threads do not refer to the engine, so that it can be collected.
        self._close = weakref.finalize(self, host.close_from_anywhere)
        try:
            self._template = ChatTemplate(self.tokenizer, chat_template)
        except BaseException:
            self.shutdown()
            raise

    # -- generation ----------------------------------------------------------------------------------------------

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool | None = None,
    ) -> list[Completion]:
        """Continue one prompt or many, and wait for all.

        Args:
            prompts: a text, token ids, or a list of those.
            params: for all prompts, or one for each; None takes what the model recommends.
            progress: a bar on stderr; None shows it if that is a terminal and the batch takes over a second.

        Returns one `Completion` a choice: prompts in their order, and the n choices of each in theirs. With n = 1 that
        is one a prompt. An empty list gives an empty list. Ctrl-C aborts what is open.

        Raises:
            InvalidRequest: a prompt that cannot be served, by its number; then nothing is run.
            EngineDead: the engine has stopped.
        """
        return self._generate(_as_list(prompts), params, True, progress)

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool | None = None,
    ) -> list[Completion]:
        """Answer one conversation or many, through the model's chat template; otherwise as `generate`.

        Raises `InvalidRequest` also if the model has no template or the template refuses the messages.
        """
        conversations = [messages] if messages and isinstance(messages[0], Mapping) else messages
        prompts = [self._template.render([*conversation]) for conversation in conversations]
        return self._generate(prompts, params, False, progress)

    def _generate(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
        add_special_tokens: bool,
        progress: bool | None,
    ) -> list[Completion]:
        if params is None or isinstance(params, SamplingParams):
            each = [self.default_params() if params is None else params] * len(prompts)
        else:
            each = list(params)
        if len(each) != len(prompts):
            raise InvalidRequest(f"{len(each)} SamplingParams were given for {len(prompts)} prompts", param="params")
        if not prompts:
            return []
        return self._host.loop.run(self._host.generate(prompts, each, add_special_tokens, progress))

    async def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> AsyncIterator[GenerationOutput]:
        """Continue one prompt, and give what is drawn as it comes, in the caller's event loop.

        Leaving early aborts the request; close the iterator (`contextlib.aclosing`) to have that at once. Raises as
        `generate` does.
        """
        host = self._host
        stream = await host.loop.run_from(host.stream(prompt, params or self.default_params()))
        try:
            while (output := await host.loop.run_from(next_output(stream))) is not None:
                yield output
        finally:
            host.loop.call(stream.abort)

    def default_params(self) -> SamplingParams:
        """What the model recommends in its `generation_config.json`."""
        recommended = self._host.info.generation_defaults
        return SamplingParams(**{name: recommended[name] for name in _DEFAULTS if recommended.get(name) is not None})

    # -- text ----------------------------------------------------------------------------------------------------

    @property
    def tokenizer(self) -> Any | None:
        """The model's tokenizer, as transformers makes it; None if it has none."""
        return self._host.frontend.tokenizer

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        return self._host.frontend.codec.encode(text, add_special_tokens)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of token ids."""
        return self._host.frontend.codec.decode(token_ids, skip_special_tokens)

    # -- life ----------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> EngineReady:
        """What the engine has room for."""
        return self._host.frontend.ready

    @property
    def stats(self) -> EngineStats:
        """The latest gauges and counters."""
        return self._host.frontend.stats

    def flush_cache(self) -> int:
        """Empty the prefix cache; returns how many pages became free."""
        return self._host.loop.run(self._host.frontend.flush_cache())

    def shutdown(self) -> None:
        """End the engine and free its memory. Calls under way raise `EngineDead`. Harmless when repeated."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()


def _as_list(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    """One prompt or many, as many: token ids are told by the first of them."""
    if isinstance(prompts, str):
        return [prompts]
    if len(prompts) and isinstance(prompts[0], SupportsIndex):
        return [cast("Sequence[int]", prompts)]
    return cast("Sequence[Prompt]", prompts)
