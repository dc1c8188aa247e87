"""API keys of the job service, made and revoked, and its audit log.

The service decides what the console's token may: one that is no administrator's is told so in its words.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.requests import Request

from ..answers import RefusedError, body_of, confirm, text_of
from ..sources import Sources, understood

_WHO: Final = "the job service"
_CURSORS: Final = ("next", "previous")


async def keys(sources: Sources, request: Request) -> Any:
    """A page of the API keys, newest first; none is shown itself."""
    return await _page(sources, request, "/v2/keys", "keys", _CURSORS)


async def make_key(sources: Sources, request: Request) -> Any:
    """Make a key. Body: ``name``, ``scopes``, ``channels`` (none is all), ``expires_in_seconds``.

    The answer has the key itself, once.
    """
    said = await body_of(request)
    wanted: dict[str, Any] = {
        "name": text_of(said, "name"),
        "scopes": _texts(said, "scopes"),
        "channels": _texts(said, "channels") or ["*"],
    }
    if "expires_in_seconds" in said:
        wanted["expires_in_seconds"] = said["expires_in_seconds"]
    return await sources.jobs("/v2/keys", "POST", json=wanted)


async def revoke_key(sources: Sources, request: Request) -> Any:
    """Revoke a key; its id has to be typed."""
    name = request.path_params["key"]
    confirm(await body_of(request), name)
    return await sources.jobs(f"/v2/key/{quote(name, safe='')}", "DELETE")


async def audit(sources: Sources, request: Request) -> Any:
    """A page of who changed what, newest first: of a key, of a channel, or all of it."""
    return await _page(sources, request, "/v2/audit", "entries", ("key", "channel", *_CURSORS))


async def _page(
    sources: Sources, request: Request, path: str, what: str, accepted: tuple[str, ...]
) -> Any:
    asked = request.query_params
    given = {name: asked[name] for name in accepted if asked.get(name)}
    page = await sources.jobs(path + (f"?{urlencode(given)}" if given else ""))
    return understood(
        lambda: {
            what: page[what],
            "pages": {
                name: url.partition(f"{name}=")[2].partition("&")[0]
                for name, url in page["pages"].items()
            },
        },
        _WHO,
    )


def _texts(document: dict[str, Any], name: str) -> list[str]:
    found = document.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise RefusedError(400, "not_accepted", f"{name} has to be a list of texts")
    return found


ROUTES: Final = (
    ("GET", "/api/job-keys", keys),
    ("POST", "/api/job-keys", make_key),
    ("DELETE", "/api/job-keys/{key}", revoke_key),
    ("GET", "/api/job-audit", audit),
)
