"""One request for generation, from its body to its answer; the same for every endpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from core.errors import CoreError
from core.server.body import read_body
from core.server.errors import error_response
from core.server.generation import Generation, Work, submit
from core.server.reply import Reply, WholeChoice
from core.server.request_record import RequestRecord
from core.server.service import Service, Serving, new_id, service_of
from core.server.streaming import EventStream, check, while_connected

CLIENT_CLOSED_REQUEST = 499
"""Nobody reads it: the status of an answer whose client has left, in nginx' convention."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an endpoint made of a request's body."""

    work: Work
    reply: Reply
    stream: bool


Planner = Callable[[Service, Serving, RequestRecord, bytes], Awaitable[Plan]]
"""Validates a body and says what is to be done. Raises `RequestError`; queues nothing."""


async def exchange(request: Request, prefix: str, planner: Planner) -> Response:
    """Answer a request for generation; errors that this package raises become OpenAI error bodies."""
    service = service_of(request)
    record = service.open(request.url.path, new_id(prefix))
    try:
        return await _answer(request, service, record, planner)
    except ClientDisconnect:
        record.abandoned()
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except CoreError as error:
        record.failed(error)
        response = error_response(error)
        response.headers["x-request-id"] = record.request_id
        return response
    except BaseException as error:
        record.failed(error)
        raise


async def _answer(request: Request, service: Service, record: RequestRecord, planner: Planner) -> Response:
    serving = service.require_serving()
    plan = await planner(service, serving, record, await read_body(request, service.max_body_bytes))
    generation = submit(serving.engine, plan.work, record.request_id)
    record.running(generation.stop)
    if plan.stream:
        return EventStream(generation, plan.reply, record)
    body = await while_connected(request.receive, _whole(generation, plan.reply, record), record)
    if body is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return Response(body, media_type="application/json", headers={"x-request-id": record.request_id})


async def _whole(generation: Generation, reply: Reply, record: RequestRecord) -> bytes:
    choices: dict[tuple[int, int], WholeChoice] = {}
    async with aclosing(generation.news()) as news:
        async for prompt, output in news:
            check(record, output)
            record.saw(prompt, output)
            key = prompt, output.index
            if key not in choices:
                choices[key] = WholeChoice(*key)
            choices[key].add(output)
    body = reply.whole([choices[key] for key in sorted(choices)], record)
    record.answered()
    return body
