"""`/v1/models`."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from core.server.errors import ModelNotFound, error_response
from core.server.schema.models import ModelCard, ModelList
from core.server.service import Service, service_of


def _card(service: Service) -> ModelCard:
    longest = None if service.serving is None else service.serving.engine.ready.max_context_len
    return ModelCard(id=service.served_name, created=service.created, root=service.model, max_model_len=longest)


async def list_models(request: Request) -> Response:
    """The one model that this server has."""
    answer = ModelList(data=[_card(service_of(request))])
    return Response(msgspec.json.encode(answer), media_type="application/json")


async def retrieve_model(request: Request) -> Response:
    """The model of this name; 404 for any other."""
    service = service_of(request)
    try:
        service.check_model(request.path_params["name"])
    except ModelNotFound as error:
        return error_response(error)
    return Response(msgspec.json.encode(_card(service)), media_type="application/json")


ROUTES = [
    Route("/v1/models", list_models, methods=["GET"]),
    Route("/v1/models/{name:path}", retrieve_model, methods=["GET"]),
]
