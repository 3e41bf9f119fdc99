"""`/v1/chat/completions`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from core.server.exchange import Plan, exchange
from core.server.generation import Work, encode
from core.server.replies.chat import ChatReply
from core.server.request_record import RequestRecord
from core.server.schema.chat import ChatRequest
from core.server.schema.request import parse
from core.server.service import Service, Serving

PATH = "/v1/chat/completions"


async def plan_chat(service: Service, serving: Serving, record: RequestRecord, body: bytes) -> Plan:
    """Validate a chat request and render its prompt. Raises `RequestError`."""
    request = parse(ChatRequest, body)
    service.unknown_fields.log(request, PATH)
    service.check_model(request.model)
    messages = [message.model_dump(exclude_unset=True) for message in request.messages]
    text = serving.chat.render(
        messages,
        add_generation_prompt=request.add_generation_prompt is not False,
        continue_final_message=request.continue_final_message,
        **(request.chat_template_kwargs or {}),
    )
    # The template writes the special tokens that it wants; the tokenizer must not add its own.
    (ids,) = await encode(serving.engine, [text], add_special_tokens=False)
    work = Work(prompts=[ids], params=request.params(serving.defaults), extra_key=request.cache_salt or "")
    return Plan(work, ChatReply(request, record, service.served_name, ids), bool(request.stream))


async def create_chat_completion(request: Request) -> Response:
    """Answer a conversation."""
    return await exchange(request, "chatcmpl", plan_chat)


ROUTES = [Route(PATH, create_chat_completion, methods=["POST"])]
