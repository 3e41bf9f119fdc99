"""`ChatTemplate`: a conversation as the prompt that its model was trained on. Imports no torch by itself."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from jinja2 import TemplateError, TemplateSyntaxError

from core.errors import ConfigError, InvalidRequest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# What a template raises when it meets values that it was not written for.
_TEMPLATE_FAULTS: Final = (
    TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
_VARIABLES_TOO: Final = {"documents"}


@final
class ChatTemplate:
    """Renders conversations with a tokenizer's chat template, or with another one.

    Args:
        tokenizer: a transformers tokenizer; None refuses every conversation.
        override: a Jinja template, or a file that has one, to use instead of the tokenizer's own.

    Raises:
        ConfigError: `override` cannot be read, or is no Jinja template.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None, override: str | Path | None) -> None:
        self._tokenizer = tokenizer
        self._override = _read(override) if isinstance(override, Path) else override
        self._reserved: frozenset[str] = frozenset()
        if tokenizer is not None:
            parameters = inspect.signature(tokenizer.apply_chat_template).parameters
            self._reserved = frozenset(parameters) - _VARIABLES_TOO
        if self._override is not None:
            _check_syntax(self._override)

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> str:
        """The prompt, with the special tokens that the template writes: encode it with `encode`.

        Args:
            messages: as OpenAI has them. Content that is a list of text parts counts as the parts joined.
            tools: descriptions of functions, as OpenAI has them, for templates that show them.
            add_generation_prompt: end with the opening of an answer.
            continue_final_message: leave the last message open, for the model to continue it. Takes the place of
                `add_generation_prompt`.
            variables: further ones for the template.

        Raises:
            InvalidRequest: there is no template, or it refuses the messages.
        """
        tokenizer = self._tokenizer
        if tokenizer is None or (self._override is None and not tokenizer.chat_template):
            raise InvalidRequest(
                "This model has no chat template. Use /v1/completions with a prompt as text, or start the server with "
                "--chat-template FILE",
                param="messages",
            )
        if refused := sorted(self._reserved & variables.keys()):
            names = ", ".join(refused)
            raise InvalidRequest(f"Variables of a chat template cannot be named {names}", param="chat_template_kwargs")
        joined = [_with_text(message, place) for place, message in enumerate(messages)]
        try:
            text: str = tokenizer.apply_chat_template(
                joined,
                tools=tools,
                chat_template=self._override,
                add_generation_prompt=add_generation_prompt and not continue_final_message,
                continue_final_message=continue_final_message,
                tokenize=False,
                **variables,
            )
        except _TEMPLATE_FAULTS as error:
            raise InvalidRequest(f"The chat template refuses the messages: {error}", param="messages") from error
        return text

    def encode(self, text: str) -> list[int]:
        """Token ids of a rendered prompt. The tokenizer adds none of its own, as the template wrote those it wants."""
        assert self._tokenizer is not None, "nothing is rendered without a tokenizer"
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False, verbose=False)
        return ids


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The chat template {path} cannot be read: {error}") from error


def _check_syntax(template: str) -> None:
    """Raise `ConfigError` now rather than refuse every conversation later."""
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        render_jinja_template([[{"role": "user", "content": ""}]], chat_template=template)
    except TemplateSyntaxError as error:
        raise ConfigError(f"The chat template is no Jinja template: {error.message} (line {error.lineno})") from error
    except _TEMPLATE_FAULTS:
        return  # It parses; whether it takes a conversation depends on the conversation.


def _with_text(message: dict[str, Any], place: int) -> dict[str, Any]:
    """The message with a string as its content, if that is a list of text parts."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise InvalidRequest(
                f"messages[{place}] has a content part of type {kind!r}; this model takes text parts only, "
                '{"type": "text", "text": ...}',
                param="messages",
            )
        texts.append(text)
    return {**message, "content": "".join(texts)}
