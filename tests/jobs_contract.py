"""Checks every answer of the service against what its routes declare."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import msgspec

from headrace.jobs.http import shapes
from headrace.jobs.http.app import ENDPOINTS
from headrace.jobs.http.request.endpoint import Endpoint

__all__ = ["ContractTransport", "endpoint_of"]

_ROUTES = [
    (re.compile(re.sub(r"{\w+}", "[^/]+", endpoint.path) + r"\Z"), endpoint)
    for endpoint in ENDPOINTS
]


def endpoint_of(method: str, path: str) -> Endpoint | None:
    """The declared route of a request."""
    for pattern, endpoint in _ROUTES:
        if endpoint.method == method and pattern.match(path):
            return endpoint
    return None


class ContractTransport(httpx2.AsyncBaseTransport):
    """Talks to the application in memory and fails a test whose answer is not as declared."""

    def __init__(self, app: Any) -> None:
        self._inner = httpx2.ASGITransport(app, raise_app_exceptions=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        await response.aread()
        endpoint = endpoint_of(request.method, request.url.path)
        if endpoint is not None:
            check(endpoint, response)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def check(endpoint: Endpoint, response: httpx2.Response) -> None:
    """Status declared, body of the declared shape, and nothing else in it."""
    status, content_type = response.status_code, response.headers.get("content-type", "")
    where = f"{endpoint.method} {endpoint.path} -> {status}: {response.text[:300]}"
    assert "x-request-id" in response.headers, where
    kinds = [endpoint.answers[status]] if status in endpoint.answers else []
    if status in endpoint.problems:
        kinds.append(shapes.Problem)
    assert kinds, f"undeclared status: {where}"
    if kinds == [None]:
        assert not response.content, where
    elif kinds == [str]:
        assert content_type.startswith("text/plain"), where
    elif content_type.startswith("text/plain"):
        assert endpoint.legacy, f"plain text: {where}"
        assert shapes.Problem in kinds, where
        assert response.text, where
    else:
        assert content_type == "application/json", where
        assert any(_has_shape(response.content, kind) for kind in kinds), f"wrong shape: {where}"


def _has_shape(body: bytes, kind: Any) -> bool:
    try:
        value = msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        return False
    # Encoding it again must give the same: no field is there that the shape does not have.
    return bool(msgspec.json.decode(msgspec.json.encode(value)) == msgspec.json.decode(body))
