"""`/health`, `/ready` and `/metrics`: what a load balancer and a monitor ask."""

from __future__ import annotations

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from core.server.service import Phase, service_of


def _phase(phase: Phase, status: int) -> Response:
    return Response(msgspec.json.encode({"status": phase.value}), status, media_type="application/json")


async def health(request: Request) -> Response:
    """200 while the process answers and the engine has not died: loading and draining are healthy."""
    phase = service_of(request).phase
    return _phase(phase, 503 if phase is Phase.DEAD else 200)


async def ready(request: Request) -> Response:
    """200 while requests for generation are taken."""
    phase = service_of(request).phase
    return _phase(phase, 200 if phase is Phase.READY else 503)


async def metrics(request: Request) -> Response:
    """All figures in Prometheus' text format."""
    return Response(service_of(request).metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})


ROUTES = [
    Route("/health", health, methods=["GET"]),
    Route("/ready", ready, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
]
