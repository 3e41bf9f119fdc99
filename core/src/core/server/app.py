"""The ASGI application."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from core.server.errors import error_response, http_error_response
from core.server.routes import ROUTES
from core.server.service import Service


def build_app(service: Service) -> Starlette:
    """The application that answers for `service`, which may still be loading."""
    app = Starlette(routes=ROUTES, exception_handlers={HTTPException: _http_error, Exception: _unexpected})
    app.state.service = service
    return app


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return http_error_response(error, f"{request.method} {request.url.path}")


async def _unexpected(request: Request, error: Exception) -> Response:
    # Starlette raises it again once the answer is sent, and the server logs the traceback.
    return error_response(error)
