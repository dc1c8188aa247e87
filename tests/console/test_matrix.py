"""Every route that the console has, asked by everybody: who may look, who may change, who is let in at all.

``LOOKS`` and ``CHANGES`` are written by hand. A route that is in neither fails the tests. Behind the guard is
nothing here: who gets past it reaches a handler without a server, which is an error of its own.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, cast

import httpx2
import pytest

from headrace.console import Settings
from headrace.console.app import create_app
from headrace.console.guard import COOKIE, LOGIN_S
from headrace.console.sources import Sources

PASSWORD: Final = "correct horse"
OWN: Final = {"x-headrace-console": "1"}

SESSION: Final = ("GET /api/session", "POST /api/session", "DELETE /api/session")
"""Whether a password is needed, giving it, leaving: for everybody."""
NUMBERS: Final = "GET /metrics"
"""Also with the password in each request, as scrapers do."""
LOOKS: Final = """
    GET /api/overview
    GET /api/history
    GET /api/live
    GET /api/alerts
    GET /api/streams
    GET /api/streams/{stream}
    GET /api/streams/{stream}/follow
    GET /api/streams/{stream}/subjects
    GET /api/streams/{stream}/messages
    GET /api/streams/{stream}/messages/{sequence}
    GET /api/streams/{stream}/messages/{sequence}/payload
    GET /api/streams/{stream}/search
    GET /api/streams/{stream}/dead
    GET /api/streams/{stream}/dead/count
    GET /api/streams/{stream}/dead/letters/{sequence}
    GET /api/consumers
    GET /api/streams/{stream}/consumers/{consumer}
    GET /api/groups
    GET /api/groups/{kind}/{stream}/{group}
    GET /api/buckets
    GET /api/buckets/{bucket}/keys
    GET /api/buckets/{bucket}/keys/{key:path}
    GET /api/objects
    GET /api/objects/{bucket}
    GET /api/objects/{bucket}/{name:path}
    GET /api/jobs
    GET /api/jobs/{channel}/find
    GET /api/jobs/{channel}/list
    GET /api/jobs/{channel}/{consumer}/dead
    GET /api/jobs/{channel}/{consumer}/job/{job}
    GET /api/job-keys
    GET /api/job-audit
    GET /api/job-schedules/{channel}
    GET /api/job-schedules/{channel}/{schedule}
    GET /api/job-consumers/{channel}/{consumer}
    GET /api/job-consumers/{channel}/{consumer}/calls
    GET /api/pipelines
    GET /api/spark
    GET /api/server
    GET /api/connections
    GET /api/account
    GET /api/accounts
"""
CHANGES: Final = """
    POST /api/streams
    PUT /api/streams/{stream}
    DELETE /api/streams/{stream}
    POST /api/streams/{stream}/purge
    POST /api/streams/{stream}/messages
    DELETE /api/streams/{stream}/messages/{sequence}
    POST /api/streams/{stream}/dead/resend
    POST /api/streams/{stream}/consumers
    PUT /api/streams/{stream}/consumers/{consumer}
    DELETE /api/streams/{stream}/consumers/{consumer}
    POST /api/streams/{stream}/consumers/{consumer}/pause
    POST /api/streams/{stream}/consumers/{consumer}/resume
    POST /api/streams/{stream}/consumers/{consumer}/unpin
    POST /api/streams/{stream}/consumers/{consumer}/reset
    POST /api/groups/{kind}/{stream}/{group}/step-down
    DELETE /api/buckets/{bucket}
    PUT /api/buckets/{bucket}/keys/{key:path}
    DELETE /api/buckets/{bucket}/keys/{key:path}
    DELETE /api/objects/{bucket}
    PUT /api/objects/{bucket}/{name:path}
    DELETE /api/objects/{bucket}/{name:path}
    POST /api/jobs/{channel}/cancel
    POST /api/jobs/{channel}/replay
    POST /api/jobs/{channel}/{consumer}/requeue
    POST /api/jobs/{channel}/{consumer}/job/{job}/requeue
    POST /api/job-feeds/{channel}/{feed}/again
    POST /api/job-keys
    DELETE /api/job-keys/{key}
    PUT /api/job-schedules/{channel}/{schedule}
    DELETE /api/job-schedules/{channel}/{schedule}
    PUT /api/job-consumers/{channel}/{consumer}/filter
"""


def listed(text: str) -> list[str]:
    """The routes of a table, and the same of another server."""
    own = [line.strip() for line in text.strip().splitlines()]
    return own + [route.replace("/api/", "/api/at/{server}/", 1) for route in own]


CLOSED: Final = [*listed(LOOKS), *listed(CHANGES)]
STRANGERS: Final[dict[str, dict[str, str]]] = {
    "nobody": {},
    "an empty cookie": {"cookie": f"{COOKIE}="},
    "a cookie that is made up": {"cookie": f"{COOKIE}=" + "x" * 43},
    "the password as a cookie": {"cookie": f"{COOKIE}={PASSWORD}"},
    "the password as a token": {"authorization": f"Bearer {PASSWORD}"},
    "the password of a request": {
        "authorization": "Basic " + base64.b64encode(f":{PASSWORD}".encode()).decode()
    },
}
FOREIGN: Final[list[dict[str, str]]] = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "http://attacker.example"},
    {"origin": "null"},
]
"""How a page of another site asks."""
SHUT: Final = (401, 403, 421, 429)


class Doors:
    """A console's application and its clock."""

    def __init__(self, **settings: Any) -> None:
        self.now = 0.0
        told = Settings(port=0, password=PASSWORD, **settings)
        self.app = create_app(told, cast(Sources, None), lambda: self.now)
        transport = httpx2.ASGITransport(self.app, raise_app_exceptions=False)
        self.http = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    def routes(self) -> Iterator[str]:
        """What the application answers, all of it."""
        app: Any = self.app
        while not hasattr(app, "routes"):
            app = app._app
        for route in app.routes:
            for method in sorted(route.methods - {"HEAD"}):
                yield f"{method} {route.path}"

    async def ask(self, route: str, headers: dict[str, str]) -> httpx2.Response:
        method, path = route.split(" ")
        self.http.cookies.clear()
        return await self.http.request(method, re.sub(r"{[^}]*}", "1", path), headers=headers)

    async def log_in(self) -> dict[str, str]:
        """The headers of a page whose user gave the password."""
        self.http.cookies.clear()
        answer = await self.http.post("/api/session", json={"password": PASSWORD}, headers=OWN)
        assert answer.status_code == 200, answer.text
        return {**OWN, "cookie": f"{COOKIE}={answer.cookies[COOKIE]}"}


@pytest.fixture
async def doors() -> AsyncIterator[Doors]:
    made = Doors()
    async with made.http:
        yield made


def test_every_route_is_in_a_table_or_a_page(doors: Doors) -> None:
    found = set(doors.routes())
    pages = {route for route in found if not route.startswith(tuple(closed_to_pages(found)))}
    assert all(route.startswith("GET /") and "{" not in route for route in pages)
    assert found - pages == {*SESSION, NUMBERS, *CLOSED}


def closed_to_pages(found: set[str]) -> list[str]:
    """What begins the routes that are no files."""
    return sorted({f"{route.split(' ')[0]} /api/" for route in found} | {NUMBERS})


async def test_who_has_not_given_the_password_gets_nothing(doors: Doors) -> None:
    left = await doors.log_in()
    assert (await doors.ask("DELETE /api/session", left)).status_code == 200
    expired = await doors.log_in()
    doors.now = LOGIN_S
    visitors = {**STRANGERS, "who has left": left, "who came long ago": expired}
    wrong = [
        f"{route} by {name}"
        for route in [*CLOSED, NUMBERS, *(each.replace("GET", "HEAD", 1) for each in listed(LOOKS))]
        for name, headers in visitors.items()
        if (route, name) != (NUMBERS, "the password of a request")
        if (await doors.ask(route, {**headers, **OWN})).status_code != 401
    ]
    assert wrong == []


async def test_who_has_given_it_reaches_everything(doors: Doors) -> None:
    user = await doors.log_in()
    for route in [*CLOSED, NUMBERS]:
        assert (await doors.ask(route, user)).status_code not in SHUT, route
    basic = STRANGERS["the password of a request"]
    assert (await doors.ask(NUMBERS, basic)).status_code not in SHUT


async def test_what_changes_something_wants_the_mark_of_our_own_pages(doors: Doors) -> None:
    user = await doors.log_in()
    del user["x-headrace-console"]
    for route in [*listed(CHANGES), "POST /api/session", "DELETE /api/session"]:
        for mark in ({}, {"x-headrace-console": "0"}):
            answer = await doors.ask(route, {**user, **mark})
            assert answer.status_code == 403, route
    for method in ("OPTIONS", "TRACE", "PATCH", "PROPFIND"):
        assert (await doors.ask(f"{method} /api/streams", user)).status_code == 403


async def test_a_page_of_another_site_gets_nothing_whoever_looks_at_it(doors: Doors) -> None:
    user = await doors.log_in()
    for foreign in FOREIGN:
        for route in [*CLOSED, NUMBERS, *SESSION]:
            answer = await doors.ask(route, {**user, **foreign})
            assert answer.status_code == 403, (route, foreign)
        assert (await doors.ask("GET /", foreign)).status_code == 200, "a link to it"


async def test_a_name_that_is_not_ours_gets_not_even_the_pages(doors: Doors) -> None:
    user = await doors.log_in()
    for route in doors.routes():
        answer = await doors.ask(route, {**user, "host": "attacker.example"})
        assert answer.status_code == 421, route


async def test_read_only_refuses_what_changes_something_and_nothing_else() -> None:
    doors = Doors(read_only=True)
    async with doors.http:
        user = await doors.log_in()
        for route in listed(CHANGES):
            answer = await doors.ask(route, user)
            assert answer.status_code == 403, route
            assert answer.json()["code"] == "read_only", route
        for route in [*listed(LOOKS), NUMBERS, *SESSION]:
            assert (await doors.ask(route, user)).status_code not in (403, 421), route


async def test_everybody_gets_the_pages_which_say_nothing(doors: Doors) -> None:
    pages = [route for route in doors.routes() if "/api/" not in route and route != NUMBERS]
    assert len(pages) > 20
    for route in pages:
        answer = await doors.ask(route, {})
        assert answer.status_code == 200, route
