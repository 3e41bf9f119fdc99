"""Exceptions as HTTP answers, in OpenAI's form.

{"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from core.errors import CoreError, EngineDead, InvalidRequest, Overloaded, RequestError
from core.server.schema.errors import ErrorBody, ErrorDetail


class ModelNotFound(InvalidRequest):
    """The request names a model that is not served here (HTTP 404)."""


class BodyTooLarge(InvalidRequest):
    """The request's body is longer than the limit (HTTP 413)."""


class NotReady(Overloaded):
    """The server still loads, or is about to stop (HTTP 503)."""


class GenerationFailed(CoreError):
    """The engine gave up a request that it had accepted (HTTP 500)."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How one kind of exception is told to a client. `retry_after` is in seconds."""

    status: int
    type: str
    code: str | None = None
    retry_after: int | None = None


_FORMS: dict[type[BaseException], _Form] = {
    ModelNotFound: _Form(404, "invalid_request_error", "model_not_found"),
    BodyTooLarge: _Form(413, "invalid_request_error", "request_too_large"),
    InvalidRequest: _Form(400, "invalid_request_error", "invalid_value"),
    NotReady: _Form(503, "service_unavailable_error", "not_ready", retry_after=1),
    Overloaded: _Form(503, "service_unavailable_error", "overloaded", retry_after=1),
    GenerationFailed: _Form(500, "server_error", "generation_failed"),
    EngineDead: _Form(500, "server_error", "engine_dead"),
}
_UNEXPECTED = _Form(500, "server_error", "internal_error")
_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


def _form(error: BaseException) -> _Form:
    return next((_FORMS[kind] for kind in type(error).__mro__ if kind in _FORMS), _UNEXPECTED)


def _message(error: BaseException, form: _Form) -> str:
    # What went wrong inside is for the log, not for strangers.
    return "The server had an internal error; its log tells more." if form is _UNEXPECTED else str(error)


def status_of(error: BaseException) -> int:
    """The HTTP status that an exception is answered with."""
    return _form(error).status


def error_body(error: BaseException) -> bytes:
    """The JSON body, also sent as an event inside a stream, that tells a client about `error`."""
    form = _form(error)
    param = error.param if isinstance(error, RequestError) else None
    return msgspec.json.encode(ErrorBody(ErrorDetail(_message(error, form), form.type, param, form.code)))


def error_response(error: BaseException) -> Response:
    """The answer to a request that failed with `error` before its first byte was sent."""
    form = _form(error)
    headers = {} if form.retry_after is None else {"retry-after": str(form.retry_after)}
    return Response(error_body(error), form.status, headers, "application/json")


def http_error_response(error: HTTPException, path: str) -> Response:
    """The answer to a request that matches no route (404) or not with this method (405)."""
    message = f"{path}: {error.detail}"
    detail = ErrorDetail(message, "invalid_request_error", None, _HTTP_CODES.get(error.status_code))
    return Response(msgspec.json.encode(ErrorBody(detail)), error.status_code, error.headers, "application/json")
