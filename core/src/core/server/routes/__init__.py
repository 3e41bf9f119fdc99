"""All routes. Each file brings one family of them."""

from __future__ import annotations

from starlette.routing import BaseRoute

from core.server.routes import admin, chat, completions, generate, health, models

ROUTES: list[BaseRoute] = [
    *models.ROUTES,
    *completions.ROUTES,
    *chat.ROUTES,
    *generate.ROUTES,
    *health.ROUTES,
    *admin.ROUTES,
]
