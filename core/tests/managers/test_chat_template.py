"""Conversations as prompts, and what a template refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from core.errors import ConfigError, InvalidRequest
from core.managers.chat_template import ChatTemplate

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role ' + message.role) }}{% endif %}"
    "[{{ message.role }}]{{ message.content }}</s>{% endfor %}"
    "{% if tools %}{{ tools | length }} tools{% endif %}"
    "{% if add_generation_prompt %}[assistant]{% if thinking %}<think>{% endif %}{% endif %}"
)


def make_tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>"), AddedToken("</s>")])
    bos = ("<s>", tokenizer.token_to_id("<s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[bos])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=template
    )


def chat(template: str | None = TEMPLATE, override: str | Path | None = None) -> ChatTemplate:
    return ChatTemplate(make_tokenizer(template), override)


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def test_renders_with_the_model_s_template() -> None:
    messages = [*user("Hi"), {"role": "assistant", "content": "Hello"}]
    assert chat().render(messages) == "<s>[user]Hi</s>[assistant]Hello</s>[assistant]"
    assert chat().render(messages, add_generation_prompt=False) == "<s>[user]Hi</s>[assistant]Hello</s>"


def test_the_last_message_is_left_open_to_be_continued() -> None:
    messages = [*user("Hi"), {"role": "assistant", "content": "Hello"}]
    assert chat().render(messages, continue_final_message=True) == "<s>[user]Hi</s>[assistant]Hello"


def test_tools_and_variables_reach_the_template() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}
    assert chat().render(user("Hi"), tools=[tool]).endswith("1 tools[assistant]")
    assert chat().render(user("Hi"), thinking=True).endswith("[assistant]<think>")


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_text_parts_equal_their_joined_text_for_every_role(role: str) -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    messages = [{"role": role, "content": parts}]
    assert chat().render(messages) == chat().render([{"role": role, "content": "one two"}])
    assert messages[0]["content"] is parts


@pytest.mark.parametrize(
    "part", [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text"}, "text", {"type": "text", "text": 1}]
)
def test_other_parts_are_refused(part: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"messages\[1\].*text parts only") as caught:
        chat().render([*user("Hi"), *user([{"type": "text", "text": "a"}, part])])
    assert caught.value.param == "messages"


def test_without_a_template_there_is_a_hint() -> None:
    for renderer in (chat(None), ChatTemplate(None, None)):
        with pytest.raises(InvalidRequest, match=r"no chat template.*/v1/completions.*--chat-template"):
            renderer.render(user("Hi"))


def test_an_override_takes_the_template_s_place(tmp_path: Path) -> None:
    override = "{% for message in messages %}<{{ message.content }}>{% endfor %}"
    assert chat(None, override).render(user("Hi")) == "<Hi>"
    file = tmp_path / "template.jinja"
    file.write_text(override, encoding="utf-8")
    assert chat(TEMPLATE, file).render(user("Hé")) == "<Hé>"


def test_an_override_that_cannot_work_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no Jinja template.*line 2"):
        chat(TEMPLATE, "{{ bos_token }}\n{% for %}")
    with pytest.raises(ConfigError, match=r"none\.jinja cannot be read"):
        chat(TEMPLATE, tmp_path / "none.jinja")


def test_an_override_that_refuses_some_conversations_is_taken() -> None:
    renderer = chat(TEMPLATE, "{{ raise_exception('needs a system message') if messages|length < 2 }}ok")
    with pytest.raises(InvalidRequest, match="needs a system message"):
        renderer.render(user("Hi"))
    assert renderer.render(user("Hi") * 2) == "ok"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", "can only concatenate str"),
        ("{{ messages[0].nothing.more }}", "nothing"),
        ("{{ messages[0].content | no_such_filter }}", "no_such_filter"),
        ("{{ messages[0].__class__.__base__.__subclasses__() }}", "unsafe|__class__|undefined"),
    ],
)
def test_what_goes_wrong_in_a_template_is_the_request_s_fault(template: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        chat(template).render(user("Hi"))
    assert caught.value.param == "messages"


def test_no_messages_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        chat().render([])


@pytest.mark.parametrize("name", ["tokenize", "chat_template", "return_dict", "conversation"])
def test_variables_do_not_reach_what_surrounds_the_template(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        chat().render(user("Hi"), **{name: "{{ 1 }}"})
    assert caught.value.param == "chat_template_kwargs"


def test_the_template_s_begin_token_is_not_doubled() -> None:
    renderer = chat()
    ids = renderer.encode(renderer.render(user("Hi")))
    bos = make_tokenizer(TEMPLATE).bos_token_id
    assert ids[0] == bos
    assert ids.count(bos) == 1
    assert make_tokenizer(TEMPLATE).encode("x")[0] == bos
