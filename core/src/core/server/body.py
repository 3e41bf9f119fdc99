"""Reading a request's body up to a limit."""

from __future__ import annotations

from starlette.requests import Request

from core.server.errors import BodyTooLarge


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body.

    Raises:
        BodyTooLarge: it is longer than `limit` bytes; no more than that is kept.
        ClientDisconnect: the client left before its end.
    """
    declared = request.headers.get("content-length", "")
    length = int(declared) if declared.isascii() and declared.isdigit() else 0
    body = bytearray()
    if length <= limit:
        async for chunk in request.stream():
            body += chunk
            length = max(length, len(body))
            if length > limit:
                break
    if length > limit:
        raise BodyTooLarge(f"The request body has more than the {limit} bytes that are allowed")
    return bytes(body)
