"""The native `/generate`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from core.server.exchange import Plan, exchange
from core.server.generation import Work, encode
from core.server.replies.generate import GenerateReply
from core.server.request_record import RequestRecord
from core.server.schema.generate import GenerateRequest
from core.server.schema.request import parse
from core.server.service import Service, Serving

PATH = "/generate"


async def plan_generate(service: Service, serving: Serving, record: RequestRecord, body: bytes) -> Plan:
    """Validate a native request. Raises `RequestError`."""
    request = parse(GenerateRequest, body)
    service.unknown_fields.log(request, PATH)
    if request.sampling_params is not None:
        service.unknown_fields.log(request.sampling_params, f"{PATH} sampling_params")
    if request.rid is not None:
        service.rename(record, request.rid)
    params = request.params(serving.defaults)
    prompts = await encode(serving.engine, request.prompts, add_special_tokens=True)
    reply = GenerateReply(request, record, params.n)
    return Plan(Work(prompts=prompts, params=params), reply, request.stream)


async def generate(request: Request) -> Response:
    """Continue one or several prompts, given as text or as token ids."""
    return await exchange(request, "gen", plan_generate)


ROUTES = [Route(PATH, generate, methods=["POST"])]
