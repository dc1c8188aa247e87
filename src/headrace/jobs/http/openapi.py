"""The OpenAPI document, generated from the table of endpoints and their structs, and the page that shows it.

The page (``/docs``) tries requests, and loads nothing from another host.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..._version import __version__
from . import shapes
from .request.endpoint import Endpoint
from .router import Route

__all__ = ["openapi_document", "page_routes"]


_PATH: Final = re.compile(r"{(\w+)}")
_REF: Final = "#/components/schemas/{name}"
_PROBLEMS: Final = {
    400: "The request cannot be understood, or breaks a rule",
    401: "The caller is not known",
    403: "A token is missing or wrong",
    404: "There is no such thing",
    409: "It conflicts with what is there",
    410: "It was there, and retention removed it",
    412: "A precondition does not hold",
    413: "The body is too large",
    415: "Another media type is accepted, or a body without Content-Encoding",
    422: "The key was used for something else",
    429: "Too many wrong tokens came from this address; later",
    503: "The database does not answer; try again",
}


def openapi_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """OpenAPI 3.1 for ``endpoints``."""
    kinds: list[Any] = [shapes.Problem]
    for endpoint in endpoints:
        kinds += [
            kind for kind in (*endpoint.answers.values(), endpoint.body) if kind not in (None, str)
        ]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    schema_of = {repr(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(
            endpoint, schema_of
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace jobs", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"admin": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PATH.findall(endpoint.path)
    ]
    parameters += [
        {
            "name": name,
            "in": "header",
            "required": not endpoint.admin,
            "schema": {"type": "string"},
        }
        for name in endpoint.tokens
    ]
    parameters += [
        {
            "name": parameter.name,
            "in": parameter.where,
            "description": parameter.text,
            "schema": {"type": parameter.type},
        }
        for parameter in endpoint.parameters
    ]
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path}").strip("_"),
        "tags": [endpoint.tag],
        "parameters": parameters,
        "responses": _responses(endpoint, schema_of),
    }
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": not endpoint.body_may_be_empty,
            "content": {"application/json": {"schema": schema_of[repr(endpoint.body)]}},
        }
    if endpoint.form:
        fields = {
            field.name: {"type": field.type, "description": field.text} for field in endpoint.form
        }
        operation["requestBody"] = {
            "content": {
                "application/x-www-form-urlencoded": {
                    "schema": {"type": "object", "properties": fields}
                }
            }
        }
    if endpoint.admin:
        operation["security"] = [{"admin": []}]
    return operation


def _responses(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    problem = {"application/json": {"schema": schema_of[repr(shapes.Problem)]}}
    if endpoint.legacy:
        problem = {"text/plain": {"schema": {"type": "string"}}, **problem}
    for status in endpoint.problems:
        responses[str(status)] = {"description": _PROBLEMS[status], "content": problem}
    for status, kind in endpoint.answers.items():
        answer: dict[str, Any] = {"description": endpoint.summary}
        if kind is str:
            answer["content"] = {"text/plain": {"schema": {"type": "string"}}}
        elif kind is not None:
            answer["content"] = {"application/json": {"schema": schema_of[repr(kind)]}}
        responses[str(status)] = answer
    return dict(sorted(responses.items()))


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

    return Route("GET", path, respond)
