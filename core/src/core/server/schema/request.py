"""From bytes to a validated request, with the field at fault in every refusal."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from core.errors import InvalidRequest

logger = logging.getLogger("core.server")

_MAX_LOGGED_FIELDS = 256
_OFF: tuple[Any, ...] = (None, False, "", [], {})


class RequestModel(BaseModel):
    """Base of requests: strict types, finite numbers; unknown fields are accepted.

    `unsupported` lists fields whose effect this server does not have, each with the values (beside null and the
    empty ones) that ask for nothing. Any other value is refused, so that no client takes silence for consent.
    """

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, protected_namespaces=())
    unsupported: ClassVar[dict[str, tuple[Any, ...]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        # Not a ValueError, so that pydantic passes it on as it is, with the field's name.
        for name, off in cls.unsupported.items():
            value = data.get(name) if isinstance(data, dict) else None
            if value not in _OFF and value not in off:
                raise InvalidRequest(f"{name} is not supported by this server; leave it out", param=name)
        return data


R = TypeVar("R", bound=RequestModel)


class UnknownFields:
    """Logs each unknown field once. Bounded, because clients choose the names."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self, request: RequestModel, where: str) -> None:
        """Log the fields of `request` that no earlier request had."""
        for name in (request.model_extra or {}).keys() - request.unsupported.keys() - self._logged:
            if len(self._logged) < _MAX_LOGGED_FIELDS:
                self._logged.add(name)
                logger.info("%s: the request field %r is unknown and has no effect (logged once)", where, name[:64])


def parse(model: type[R], body: bytes) -> R:
    """Validate a JSON body as `model`.

    Raises:
        InvalidRequest: not JSON, not an object, a wrong type or value, or a field that is not supported.
    """
    data = _decode(body)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=True)[0]
        param = _dotted(first["loc"])
        cause = first.get("ctx", {}).get("error")
        reason = str(cause) if cause is not None else f"{first['msg']}, got {_shortened(first['input'])}"
        if first["type"] == "missing":
            reason = "this field is required"
        raise InvalidRequest(f"{param}: {reason}" if param else reason, param=param) from None


def _decode(body: bytes) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidRequest("The request body is nested too deeply") from None
    if not isinstance(data, dict):
        raise InvalidRequest(f"The request body must be a JSON object, got {_shortened(data)}")
    return data


def _dotted(location: Sequence[str | int]) -> str | None:
    """`("messages", 0, "role")` as `messages[0].role`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".") or None


def _shortened(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:60]}..."
