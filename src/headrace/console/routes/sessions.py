"""Sessions of the console: who is logged in, and the newest look for scrapers at ``/metrics``."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ..._version import __version__
from .. import metrics
from ..answers import RefusedError, answer, body_of, text_of
from ..guard import COOKIE, LOGIN_S, Logins, TooManyFailuresError
from ..servers import Servers
from ..sources import Sources


async def look(sources: Sources, request: Request) -> Any:
    """Describe this console, and whether the browser may use it."""
    logins: Logins | None = request.app.state.logins
    servers: Servers = request.app.state.servers
    settings = sources.settings
    locked = logins is not None and not logins.knows(request.cookies.get(COOKIE, ""))
    shown = [("", settings.name or sources.watcher.name())]
    shown += [(name, name) for name in servers.names()]
    return {
        "version": __version__,
        "needs_password": locked,
        "has_password": logins is not None,
        "read_only": settings.read_only,
        "jobs": bool(settings.jobs),
        "servers": [] if locked else [{"name": name, "title": title} for name, title in shown],
        "interval_s": settings.interval_s,
    }


async def log_in(sources: Sources, request: Request) -> Response:
    """Give the password; the answer sets a cookie that scripts cannot read."""
    del sources
    logins: Logins | None = request.app.state.logins
    if logins is None:
        return answer({})
    try:
        token = logins.log_in(text_of(await body_of(request), "password"))
    except TooManyFailuresError as error:
        raise RefusedError(429, "too_many_failures", str(error)) from error
    if token is None:
        raise RefusedError(401, "wrong_password", "that is not the password")
    response = answer({})
    response.set_cookie(
        COOKIE,
        token,
        max_age=int(LOGIN_S),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


async def log_out(sources: Sources, request: Request) -> Response:
    """Forget the cookie."""
    del sources
    logins: Logins | None = request.app.state.logins
    if logins is not None:
        logins.log_out(request.cookies.get(COOKIE, ""))
    response = answer({})
    response.delete_cookie(COOKIE)
    return response


async def metrics_page(sources: Sources, request: Request) -> Any:
    """The numbers of the newest look; asking does not look anew."""
    del request
    found = await sources.alerts.found()
    text = metrics.prometheus(sources.watcher.console(sources.followers, found))
    return Response(
        text, headers={"cache-control": "no-store"}, media_type="text/plain; version=0.0.4"
    )


ROUTES: Final = (
    ("GET", "/api/session", look),
    ("POST", "/api/session", log_in),
    ("DELETE", "/api/session", log_out),
    ("GET", "/metrics", metrics_page),
)
