"""`/v1/completions`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from core.server.exchange import Plan, exchange
from core.server.front_end import FrontEnd
from core.server.generation import Work, encode
from core.server.replies.completions import CompletionReply, PromptText
from core.server.request_record import RequestRecord
from core.server.schema.completions import CompletionRequest, Prompt
from core.server.schema.request import parse
from core.server.service import Service, Serving

PATH = "/v1/completions"


async def plan_completion(service: Service, serving: Serving, record: RequestRecord, body: bytes) -> Plan:
    """Validate a completion request. Raises `RequestError`."""
    request = parse(CompletionRequest, body)
    service.unknown_fields.log(request, PATH)
    service.check_model(request.model)
    engine = serving.engine
    ids = await encode(engine, request.prompt, add_special_tokens=request.add_special_tokens)
    tokenizer = engine.tokenizer if request.logprobs is not None else None
    work = Work(
        prompts=ids,
        params=request.params(serving.defaults),
        extra_key=request.cache_salt or "",
    )
    reply = CompletionReply(
        request,
        record,
        service.served_name,
        [
            PromptText(_text(prompt, request, engine), own_ids)
            for prompt, own_ids in zip(request.prompt, ids, strict=True)
        ],
        frozenset() if tokenizer is None else frozenset(tokenizer.all_special_ids),
    )
    return Plan(work, reply, bool(request.stream))


def _text(prompt: Prompt, request: CompletionRequest, engine: FrontEnd) -> str:
    """The prompt as text; of ids only where the answer needs it."""
    if isinstance(prompt, str):
        return prompt
    tokenizer = engine.tokenizer if request.echo or request.logprobs is not None else None
    return "" if tokenizer is None else str(tokenizer.decode(prompt))


async def create_completion(request: Request) -> Response:
    """Continue one or several prompts."""
    return await exchange(request, "cmpl", plan_completion)


ROUTES = [Route(PATH, create_completion, methods=["POST"])]
