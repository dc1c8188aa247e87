"""Paths of the job service, made of the names in a page's own path."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request


def quoted(request: Request, name: str) -> str:
    """A name of the path, as a part of another path."""
    return quote(request.path_params[name], safe="")


def channel_path(request: Request) -> str:
    """The path of the channel that is asked about."""
    return f"/v2/channel/{quoted(request, 'channel')}"


def consumer_path(request: Request) -> str:
    """The path of the consumer that is asked about."""
    return f"{channel_path(request)}/consumer/{quoted(request, 'consumer')}"
