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
    prompts = [await _prompt(engine, prompt, request) for prompt in request.prompt]
    tokenizer = engine.tokenizer if request.logprobs is not None else None
    specials = frozenset() if tokenizer is None else frozenset(tokenizer.all_special_ids)
    work = Work(
        prompts=[prompt.token_ids for prompt in prompts],
        params=request.params(serving.defaults),
        extra_key=request.cache_salt or "",
        prompt_only=request.new_tokens == 0,
    )
    reply = CompletionReply(request, record, service.served_name, prompts, specials)
    return Plan(work, reply, bool(request.stream))


async def _prompt(engine: FrontEnd, prompt: Prompt, request: CompletionRequest) -> PromptText:
    ids = await encode(engine, prompt, add_special_tokens=request.add_special_tokens)
    if isinstance(prompt, str):
        return PromptText(prompt, ids)
    tokenizer = engine.tokenizer if request.echo or request.logprobs is not None else None
    return PromptText("" if tokenizer is None else tokenizer.decode(ids), ids)


async def create_completion(request: Request) -> Response:
    """Continue one or several prompts."""
    return await exchange(request, "cmpl", plan_completion)


ROUTES = [Route(PATH, create_completion, methods=["POST"])]
