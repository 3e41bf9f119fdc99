"""`/server_info`, `/flush_cache` and `/abort_request`: for who operates the server."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import model_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from core import __version__
from core.errors import CoreError, InvalidRequest
from core.server.body import read_body
from core.server.errors import error_response
from core.server.schema.request import RequestModel, parse
from core.server.service import service_of


class AbortRequest(RequestModel):
    """Body of `POST /abort_request`: the id of one request, or all of them."""

    rid: str | None = None
    abort_all: bool = False

    @model_validator(mode="after")
    def _one_or_all(self) -> AbortRequest:
        if (self.rid is None) is not self.abort_all:
            raise InvalidRequest("Give either rid, the id of an answer, or abort_all: true", param="rid")
        return self


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


async def server_info(request: Request) -> Response:
    """Version, phase and model; once loaded, the limits, the figures, the configuration and the selection table."""
    service = service_of(request)
    serving = service.serving
    info: dict[str, Any] = {
        "version": __version__,
        "status": service.phase.value,
        "model": service.model,
        "served_model_name": service.served_name,
        "open_requests": service.num_open,
    }
    if serving is not None:
        info["limits"] = _fields(serving.engine.ready)
        info["stats"] = _fields(serving.engine.stats)
        info.update(serving.info)
    return _json(info)


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(struct)


async def flush_cache(request: Request) -> Response:
    """Empty the prefix cache."""
    try:
        return _json({"freed_pages": await service_of(request).require_serving().engine.flush_cache()})
    except CoreError as error:
        return error_response(error)


async def abort_request(request: Request) -> Response:
    """Abort a request by the id in its answer, or all. `aborted` counts those that were in progress."""
    service = service_of(request)
    try:
        wish = parse(AbortRequest, await read_body(request, service.max_body_bytes))
    except CoreError as error:
        return error_response(error)
    aborted = service.abort_all() if wish.rid is None else int(service.abort(wish.rid))
    return _json({"aborted": aborted})


ROUTES = [
    Route("/server_info", server_info, methods=["GET"]),
    Route("/flush_cache", flush_cache, methods=["GET", "POST"]),
    Route("/abort_request", abort_request, methods=["POST"]),
]
