"""What stands before every HTTP request: known host names, read-only methods, headers that close the page."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})


class Guard:
    """ASGI middleware. A foreign Host is a web page that rebound its name to this machine: refused."""

    def __init__(self, app: ASGIApp, content_security_policy: str) -> None:
        self._app = app
        self._headers = {
            "content-security-policy": content_security_policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cache-control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may be asked; answer the rest."""
        if scope["type"] != "http":
            return  # no WebSocket here
        refusal = self._refusal(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
            await send(message)

        await (refusal or self._app)(scope, receive, send_with_headers)

    @staticmethod
    def _refusal(scope: Scope) -> JSONResponse | None:
        hosts = Headers(scope=scope).getlist("host")
        if len(hosts) != 1 or host_name(hosts[0]) not in LOOPBACK_NAMES:
            return JSONResponse({"error": "this server answers to 127.0.0.1 and localhost only"}, 421)
        if scope["method"] not in {"GET", "HEAD"}:
            error = {"error": "read-only: control is not offered over HTTP, use o3ctl"}
            return JSONResponse(error, 405, headers={"allow": "GET, HEAD"})
        return None


def host_name(host: str) -> str:
    """The name in a Host header, without its port; an IPv6 address keeps its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.split(":", 1)[0]
