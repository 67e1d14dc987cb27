"""The HTTP API: read-only, from the mirror, on loopback."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from importlib.resources import files
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Query, Response

from gateway.web import metrics, views
from gateway.web.guard import Guard
from gateway.web.mirror import DECISIONS_KEPT, Mirror

_MAX_LIMIT = 500
Limit = Annotated[int, Query(ge=1, le=_MAX_LIMIT)]


def create_app(mirror: Mirror, version: str = "") -> FastAPI:
    """The application over one mirror. Every data answer is current, or a 503 that says why not."""
    app = FastAPI(title="O3 gateway", version=version or "0", docs_url=None, redoc_url=None)
    page = files("gateway.web").joinpath("page.html").read_text(encoding="utf-8")
    app.add_middleware(Guard, content_security_policy=policy_for(page))
    _add_health(app, mirror)
    _add_data(app, mirror)

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return Response(page, media_type="text/html; charset=utf-8")

    return app


def policy_for(page: str) -> str:
    """A Content-Security-Policy that runs exactly this page's own script and style, and asks only us."""
    script, style = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (_inline(page, "script"), _inline(page, "style"))
    )
    return (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _inline(page: str, element: str) -> str:
    found = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
    if len(found) != 1:
        msg = f"page.html must have exactly one <{element}>"
        raise ValueError(msg)
    return str(found[0])


def _json(body: Any, status: int = 200) -> Response:  # noqa: ANN401 - any JSON value
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def _add_health(app: FastAPI, mirror: Mirror) -> None:
    @app.get("/health")
    async def health() -> Response:
        """200 while every part is well, else 503; part by part."""
        ok, body = views.health_view(mirror)
        return _json(body, 200 if ok else 503)

    @app.get("/ready")
    async def ready() -> Response:
        """200 once the gateway's state is here and current."""
        if mirror.problem:
            return _json({"ready": False, **views.lost_view(mirror)}, 503)
        return _json({"ready": True})

    @app.get("/metrics")
    async def prometheus() -> Response:
        """Prometheus text; while the link is lost only this process's own metrics."""
        return Response(metrics.exposition(mirror), media_type=metrics.CONTENT_TYPE)


def _add_data(app: FastAPI, mirror: Mirror) -> None:
    def current(body: Callable[[], Any]) -> Response:
        return _json(views.lost_view(mirror), 503) if mirror.problem else _json(body())

    @app.get("/api/v1/status")
    async def status() -> Response:
        """The gateway as a whole, with its standing alarms."""
        return current(lambda: views.status_view(mirror))

    @app.get("/api/v1/tags")
    async def tags() -> Response:
        """Every tag with value, quality and times."""
        return current(lambda: {"tags": views.tags_view(mirror)})

    @app.get("/api/v1/points")
    async def points() -> Response:
        """Every decision point."""
        return current(lambda: {"points": [views.point_view(p) for p in mirror.points.values()]})

    @app.get("/api/v1/modules")
    async def modules() -> Response:
        """Every constraint module file: what is in force, and what was refused and why."""
        return current(lambda: {"modules": [views.module_view(m) for m in mirror.modules.values()]})

    @app.get("/api/v1/decisions")
    async def decisions(limit: Limit = 50, point: str | None = None) -> Response:
        """The last decisions, newest first."""
        found = mirror.latest_decisions(limit, point)
        return current(lambda: {"decisions": [views.decision_view(d) for d in found]})

    @app.get("/api/v1/decisions/{decision_id}")
    async def decision(decision_id: str) -> Response:
        """One decision of the last few thousand."""
        found = mirror.decisions.get(decision_id)
        if found is None and not mirror.problem:
            known = f"not among the last {DECISIONS_KEPT} decisions; `o3ctl explain` reads the audit log"
            return _json({"error": known}, 404)
        return current(lambda: views.decision_view(found) if found else None)
