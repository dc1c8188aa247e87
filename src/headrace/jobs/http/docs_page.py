"""``/docs``: a page that shows openapi.json and tries requests. It loads nothing from another host."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["page_routes"]

_FILES: Final = {
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs/docs.css": ("docs.css", "text/css; charset=utf-8"),
    "/docs/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
}
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def page_routes() -> list[Route]:
    """The page and its files, read once."""
    root = files(__package__) / "static"
    return [_route(path, (root / name).read_bytes(), kind) for path, (name, kind) in _FILES.items()]


def _route(path: str, content: bytes, kind: str) -> Route:
    async def respond(request: Request) -> Response:
        del request
        return Response(content, headers=dict(_HEADERS), media_type=kind)

    return Route(path, respond, methods=["GET"])
