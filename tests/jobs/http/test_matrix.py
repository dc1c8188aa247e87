"""Every route that the service has, asked by everybody: who may, and that nobody else changes anything.

``MAY`` is written by hand, not derived from what the routes say of themselves. A route that is not in it
fails the tests, and so does an identity that can suddenly do more, or less.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from headrace.jobs.http import create_app
from headrace.jobs.runtime.runtime import Runtime
from jobs_world import World

ADMIN: Final = {"Authorization": "Bearer sesame"}
CHANNEL: Final = {"X-Broker-Channel-Token": "ct"}
CONSUMER: Final = {**CHANNEL, "X-Broker-Consumer-Token": "kt"}
PRODUCER: Final = {**CHANNEL, "X-Broker-Producer-ID": "p", "X-Broker-Producer-Token": "pt"}

STRANGERS: Final[dict[str, dict[str, str]]] = {
    "nobody": {},
    "a wrong admin token": {"Authorization": "Bearer open"},
    "the admin token by another scheme": {"Authorization": "Basic sesame"},
    "the admin token as a channel's": {"X-Broker-Channel-Token": "sesame"},
    "a wrong channel token": {"X-Broker-Channel-Token": "c"},
    "an empty channel token": {"X-Broker-Channel-Token": ""},
    "the token of another channel": {"X-Broker-Channel-Token": "ot"},
    "the token of a channel that was deleted": {"X-Broker-Channel-Token": "gone"},
    "the token that the channel had before": {"X-Broker-Channel-Token": "before"},
    "the consumer's token for the channel's": {**CONSUMER, "X-Broker-Channel-Token": "kt"},
    "the consumer's token alone": {"X-Broker-Consumer-Token": "kt"},
    "a consumer of another channel": {
        "X-Broker-Channel-Token": "ot",
        "X-Broker-Consumer-Token": "okt",
    },
    "a producer with another channel's token": {**PRODUCER, "X-Broker-Channel-Token": "ot"},
    "a producer alone": {"X-Broker-Producer-ID": "p", "X-Broker-Producer-Token": "pt"},
    "a key that is made up": {"Authorization": "Bearer hrk_0123456789abcdef_" + "x" * 32},
}
"""Those that may nothing but what everybody may."""

OF_THE_CHANNEL: Final[dict[str, dict[str, str]]] = {
    "channel": CHANNEL,
    "another consumer": {**CHANNEL, "X-Broker-Consumer-Token": "k2t"},
    "a consumer that was deleted": {**CHANNEL, "X-Broker-Consumer-Token": "gone"},
    "consumer": CONSUMER,
    "another producer's id": {**PRODUCER, "X-Broker-Producer-ID": "q"},
    "a producer that was deleted": {
        **CHANNEL,
        "X-Broker-Producer-ID": "gone",
        "X-Broker-Producer-Token": "gone",
    },
    "a producer with a wrong token": {**PRODUCER, "X-Broker-Producer-Token": "ct"},
    "producer": PRODUCER,
}
"""Those that have the channel's token, whatever else they have."""

KEYS: Final[dict[str, tuple[list[str], list[str]]]] = {
    "key publish": (["publish"], ["*"]),
    "key consume": (["consume"], ["*"]),
    "key operate": (["operate"], ["*"]),
    "key admin": (["admin"], ["*"]),
    "key publish of c": (["publish"], ["c"]),
    "key consume of c": (["consume"], ["c"]),
    "key operate of c": (["operate"], ["c"]),
    "key admin of c": (["admin"], ["c"]),
    "key of everything of another channel": (["publish", "consume", "operate", "admin"], ["other"]),
    "key of everything, revoked": (["publish", "consume", "operate", "admin"], ["*"]),
    "key of everything, expired": (["publish", "consume", "operate", "admin"], ["*"]),
}

# Sets of identities; the rest is refused.
EVERYBODY: Final = frozenset({*STRANGERS, *OF_THE_CHANNEL, *KEYS, "admin"})
NUMBERS: Final = EVERYBODY - {
    # Whoever says to be somebody is told that it is nobody; the others see totals.
    "a wrong admin token", "the admin token by another scheme", "a key that is made up", "key publish",
    "key consume", "key publish of c", "key consume of c", "key operate of c", "key admin of c",
    "key of everything of another channel", "key of everything, revoked", "key of everything, expired",
}  # fmt: skip
OPERATORS: Final = frozenset({"admin", "key admin", "key operate"})
"""Of the whole service."""
ADMINS: Final = frozenset({"admin", "key admin"})
CHANNEL_OPERATORS: Final = OPERATORS | {"key admin of c", "key operate of c"}
CHANNEL_ADMINS: Final = ADMINS | {"key admin of c"}
READERS: Final = CHANNEL_OPERATORS | {*OF_THE_CHANNEL}
"""Who has a channel's token may read what is in it: its messages and jobs, not who is defined there."""
PUBLISHERS: Final = frozenset(
    {"producer", "key publish", "key publish of c", "key admin", "key admin of c"}
)
WORKERS: Final = frozenset(
    {"consumer", "key consume", "key consume of c", "key admin", "key admin of c"}
)
KEEPERS: Final = WORKERS | {"key operate", "key operate of c"}
"""Who works off the dead jobs of a consumer; the admin token is for definitions."""

MAY: Final[dict[str, frozenset[str]]] = {
    "GET /health/live": EVERYBODY,
    "GET /health/ready": EVERYBODY,
    "GET /openapi.json": EVERYBODY,
    "GET /docs": EVERYBODY,
    "GET /docs/docs.css": EVERYBODY,
    "GET /docs/docs.js": EVERYBODY,
    "GET /metrics": NUMBERS,
    "GET /_status": OPERATORS,
    "GET /dlq-status": OPERATORS,
    "GET /job-status": OPERATORS,
    "GET /channels": OPERATORS,
    "GET /producers": OPERATORS,
    "GET /producer/{producerId}": OPERATORS,
    "GET /v2/events": OPERATORS,
    "GET /v2/feeds": OPERATORS,
    "PUT /producer/{producerId}": ADMINS,
    "DELETE /producer/{producerId}": ADMINS,
    "GET /v2/audit": ADMINS,
    "GET /v2/keys": ADMINS,
    "POST /v2/keys": ADMINS,
    "DELETE /v2/key/{keyId}": ADMINS,
    "GET /channel/{channelId}": CHANNEL_OPERATORS,
    "GET /channel/{channelId}/consumers": CHANNEL_OPERATORS,
    "GET /channel/{channelId}/consumer/{consumerId}": CHANNEL_OPERATORS,
    "GET /v2/channel/{channelId}": CHANNEL_OPERATORS,
    "GET /v2/channel/{channelId}/consumer/{consumerId}": CHANNEL_OPERATORS,
    "GET /v2/channel/{channelId}/consumer/{consumerId}/calls": CHANNEL_OPERATORS,
    "GET /v2/channel/{channelId}/feeds": CHANNEL_OPERATORS,
    "GET /v2/channel/{channelId}/schedule/{scheduleId}": CHANNEL_OPERATORS,
    "GET /v2/channel/{channelId}/schedules": CHANNEL_OPERATORS,
    "PATCH /v2/channel/{channelId}": CHANNEL_OPERATORS,
    "PATCH /v2/channel/{channelId}/consumer/{consumerId}": CHANNEL_OPERATORS,
    "POST /v2/channel/{channelId}/feed/{feedId}/again": CHANNEL_OPERATORS,
    "POST /v2/channel/{channelId}/replay": CHANNEL_OPERATORS,
    "PUT /channel/{channelId}": CHANNEL_ADMINS,
    "DELETE /channel/{channelId}": CHANNEL_ADMINS,
    "PUT /channel/{channelId}/consumer/{consumerId}": CHANNEL_ADMINS,
    "DELETE /channel/{channelId}/consumer/{consumerId}": CHANNEL_ADMINS,
    "POST /v2/channel/{channelId}/consumer/{consumerId}/secret": CHANNEL_ADMINS,
    "POST /v2/channel/{channelId}/consumer/{consumerId}/token": CHANNEL_ADMINS,
    "PUT /v2/channel/{channelId}/schedule/{scheduleId}": CHANNEL_ADMINS,
    "DELETE /v2/channel/{channelId}/schedule/{scheduleId}": CHANNEL_ADMINS,
    "GET /channel/{channelId}/message/{messageId}": READERS,
    "GET /channel/{channelId}/messages": READERS,
    "GET /channel/{channelId}/messages-status": READERS,
    "GET /channel/{channelId}/scheduled-message/{messageId}": READERS,
    "GET /channel/{channelId}/scheduled-messages": READERS,
    "GET /channel/{channelId}/consumer/{consumerId}/dlq": READERS,
    "GET /v2/channel/{channelId}/jobs": READERS,
    "DELETE /channel/{channelId}/scheduled-message/{messageId}": READERS,
    "POST /channel/{channelId}/broadcast": PUBLISHERS,
    "POST /v2/channel/{channelId}/messages": PUBLISHERS,
    "POST /v2/channel/{channelId}/messages/batch": PUBLISHERS,
    "GET /channel/{channelId}/consumer/{consumerId}/job/{jobId}": WORKERS,
    "POST /channel/{channelId}/consumer/{consumerId}/job/{jobId}": WORKERS,
    "GET /channel/{channelId}/consumer/{consumerId}/queued-jobs": WORKERS,
    "POST /v2/channel/{channelId}/consumer/{consumerId}/jobs/claim": WORKERS,
    "POST /v2/channel/{channelId}/consumer/{consumerId}/jobs/complete": WORKERS,
    "POST /v2/channel/{channelId}/consumer/{consumerId}/jobs/fail": WORKERS,
    "POST /v2/channel/{channelId}/consumer/{consumerId}/jobs/heartbeat": WORKERS,
    "POST /v2/channel/{channelId}/consumer/{consumerId}/jobs/release": WORKERS,
    "DELETE /channel/{channelId}/consumer/{consumerId}/dlq": KEEPERS,
    "POST /channel/{channelId}/consumer/{consumerId}/dlq": KEEPERS
    | {"admin", "the consumer's token alone", "the consumer's token for the channel's"},
    "DELETE /channel/{channelId}/consumer/{consumerId}/job/{jobId}": KEEPERS,
    "POST /channel/{channelId}/consumer/{consumerId}/job/{jobId}/requeue-dead-job": KEEPERS
    | {"admin"},
    "GET /v2/channel/{channelId}/consumer/{consumerId}/job/{jobId}": KEEPERS | {"admin"},
    "POST /v2/channel/{channelId}/jobs/cancel": CHANNEL_OPERATORS | {"consumer"},
}

DETAILS: Final[dict[str, dict[str, Any]]] = {
    "PUT /channel/{channelId}": {"data": {"token": "ct"}},
    "PUT /channel/{channelId}/consumer/{consumerId}": {"data": {"type": "pull", "token": "kt"}},
    "PUT /producer/{producerId}": {"data": {"token": "pt"}},
    "PUT /v2/channel/{channelId}/schedule/{scheduleId}": {
        "json": {"cron": "@daily", "message": {"payload": "x"}}
    },
    "PATCH /v2/channel/{channelId}": {"json": {"draining": False}},
    "PATCH /v2/channel/{channelId}/consumer/{consumerId}": {"json": {"paused": False}},
    "POST /channel/{channelId}/broadcast": {"content": b"x"},
    "POST /channel/{channelId}/consumer/{consumerId}/dlq": {"data": {"requeue": ""}},
    "POST /channel/{channelId}/consumer/{consumerId}/job/{jobId}": {
        "json": {"NextState": "INFLIGHT"}
    },
    "POST /v2/channel/{channelId}/consumer/{consumerId}/jobs/claim": {"json": {"max": 1}},
    "POST /v2/channel/{channelId}/consumer/{consumerId}/secret": {"json": {}},
    "POST /v2/channel/{channelId}/consumer/{consumerId}/token": {"json": {"token": "kt"}},
    "POST /v2/channel/{channelId}/feed/{feedId}/again": {"json": {"sequence": 1}},
    "POST /v2/channel/{channelId}/jobs/cancel": {"json": {"consumer": "k"}},
    "POST /v2/channel/{channelId}/messages": {"content": b"x"},
    "POST /v2/channel/{channelId}/messages/batch": {"json": {"messages": [{"payload": "x"}]}},
    "POST /v2/channel/{channelId}/replay": {"json": {"since": "2020-01-01T00:00:00Z"}},
    "POST /v2/keys": {"json": {"name": "n", "scopes": ["admin"]}},
}
"""What a request says beside its path. ``HELD`` names those that say a job and its lease."""
HELD: Final = ("complete", "fail", "heartbeat", "release")
REFUSED: Final = {"POST /channel/{channelId}/consumer/{consumerId}/dlq": (400, 401, 403)}
"""Where a refusal has another status than 401 and 403: the token stands in a form."""
NOT_THERE: Final = frozenset({"POST /v2/channel/{channelId}/feed/{feedId}/again"})
"""Without a broker there are no feeds, so who may is told that there is none."""


def routes(app: Any) -> Iterator[str]:
    """What the application answers: all of it, also what is in no table of endpoints."""
    while not hasattr(app, "routes"):
        app = app._app
    for route in app.routes:
        for method in sorted({*route.methods} - {"HEAD"}):
            yield f"{method} {route.path}"


class Matrix:
    """A service that has one of everything, and identities to ask it with."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.identities: dict[str, dict[str, str]] = {}
        self._numbers = itertools.count(1)

    async def ask(self, route: str, headers: Mapping[str, str], names: Mapping[str, str]) -> Any:
        method, path = route.split(" ")
        details = dict(DETAILS.get(route, {}))
        if path.rpartition("/")[2] in HELD:
            details["json"] = {"jobs": [{"id": names["jobId"], "lease": names["lease"]}]}
        if "data" in details and "requeue" in details["data"]:
            details["data"] = {"requeue": headers.get("X-Broker-Consumer-Token", "")}
        path = path.format(**names)
        if method in ("PUT", "DELETE"):
            known = await self.world.http.get(path, headers=ADMIN)
            version = known.headers.get("last-modified")
            headers = {**headers, **({"If-Unmodified-Since": version} if version else {})}
        return await self.world.http.request(method, path, headers=headers, **details)

    async def define(self) -> None:
        """The identities; the service is open until this is done."""
        world = self.world
        for path, form in (
            ("/producer/q", {"token": "qt"}),
            ("/producer/gone", {"token": "gone"}),
            ("/channel/other", {"token": "ot"}),
            ("/channel/other/consumer/k", {"type": "pull", "token": "okt"}),
            ("/channel/gone", {"token": "gone"}),
            ("/channel/c/consumer/k2", {"type": "pull", "token": "k2t"}),
            ("/channel/c/consumer/gone", {"type": "pull", "token": "gone"}),
            ("/channel/before", {"token": "before"}),
        ):
            await world.put(path, **form)
        for path in ("/producer/gone", "/channel/gone", "/channel/c/consumer/gone"):
            version = (await world.http.get(path)).headers["last-modified"]
            deleted = await world.http.delete(path, headers={"If-Unmodified-Since": version})
            assert deleted.status_code in (200, 204), deleted.text
        world.runtime.admin_token = "sesame"
        self.identities = {**STRANGERS, **OF_THE_CHANNEL, "admin": ADMIN}
        for name, (scopes, channels) in KEYS.items():
            body: dict[str, Any] = {"name": name, "scopes": scopes, "channels": channels}
            if "expired" in name:
                body["expires_in_seconds"] = 60
            made = (await world.http.post("/v2/keys", json=body, headers=ADMIN)).json()
            self.identities[name] = {"Authorization": f"Bearer {made['key']}"}
            if "revoked" in name:
                await world.http.delete(f"/v2/key/{made['id']}", headers=ADMIN)
        world.clock.advance(61)

    async def fresh(self, route: str) -> dict[str, str]:
        """Names of what is there for one request, made again where an earlier one ended it."""
        http = self.world.http
        for path, form in (
            ("/producer/p", {"token": "pt"}),
            ("/channel/c", {"token": "ct"}),
            ("/channel/c/consumer/k", {"type": "pull", "token": "kt"}),
        ):
            if (await http.get(path, headers=ADMIN)).status_code == 404:
                assert (await http.put(path, data=form, headers=ADMIN)).status_code == 200
        names = {"channelId": "c", "consumerId": "k", "producerId": "p", "scheduleId": "s"}
        number = next(self._numbers)
        names |= {"feedId": "f", "messageId": f"m{number}", "jobId": "1", "lease": "x"}
        if "{scheduleId}" in route:
            body = {"cron": "@daily", "message": {"payload": "x"}}
            await http.put("/v2/channel/c/schedule/s", json=body, headers=ADMIN)
        if "{keyId}" in route:
            body = {"name": "n", "scopes": ["consume"]}
            names["keyId"] = (await http.post("/v2/keys", json=body, headers=ADMIN)).json()["id"]
        if "{messageId}" in route or "{jobId}" in route or "/jobs/" in route:
            sent = {**PRODUCER, "X-Broker-Message-ID": names["messageId"]}
            if "scheduled" in route:
                sent["X-Broker-Scheduled-For"] = "2100-01-01T00:00:00Z"
            made = await http.post("/v2/channel/c/messages", content=b"x", headers=sent)
            assert made.status_code == 201, made.text
        if route == "POST /channel/{channelId}/consumer/{consumerId}/job/{jobId}":
            queued = await http.get("/channel/c/consumer/k/queued-jobs?limit=100", headers=CONSUMER)
            names["jobId"] = queued.json()["Result"][-1]["ID"]
        elif "{jobId}" in route or route.rpartition("/")[2] in HELD:
            claimed = await http.post(
                "/v2/channel/c/consumer/k/jobs/claim", json={"max": 100}, headers=CONSUMER
            )
            (*_, job) = claimed.json()["jobs"]
            names |= {"jobId": job["id"], "lease": job["lease"]}
            if "requeue" in route or route.startswith("DELETE"):
                dead = {"jobs": [{"id": job["id"], "lease": job["lease"], "dead": True}]}
                await http.post("/v2/channel/c/consumer/k/jobs/fail", json=dead, headers=CONSUMER)
        return names


@pytest.fixture
async def matrix(world: World) -> Matrix:
    made = Matrix(world)
    await made.define()
    return made


def stored(url: str) -> dict[str, list[Any]]:
    """All rows but those of the audit log, which tells of refusals."""
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        tables = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {
            name: database.execute(f"SELECT * FROM {name}").fetchall()
            for (name,) in tables
            if name not in ("audit", "sqlite_sequence")
        }


@pytest.mark.one_database
def test_every_route_is_in_the_table(runtime: Runtime) -> None:
    assert set(routes(create_app(runtime))) == set(MAY)


@pytest.mark.one_database
async def test_who_may_not_is_refused_on_every_route_and_changes_nothing(
    matrix: Matrix, database_url: str
) -> None:
    wrong: list[str] = []
    for route, may in MAY.items():
        matrix.world.clock.advance(61)  # of so many wrong tokens in a minute no more are looked at
        names = await matrix.fresh(route)
        before = stored(database_url)
        for name, headers in matrix.identities.items():
            if name in may:
                continue
            answer = await matrix.ask(route, headers, names)
            if answer.status_code not in REFUSED.get(route, (401, 403)):
                wrong.append(f"{route} by {name}: {answer.status_code} {answer.text[:100]}")
        if stored(database_url) != before:
            wrong.append(f"{route}: something was changed")
    assert not wrong, "\n".join(wrong)


@pytest.mark.one_database
async def test_who_may_does_on_every_route(matrix: Matrix) -> None:
    wrong: list[str] = []
    for route, may in MAY.items():
        matrix.world.clock.advance(61)
        for name in sorted(may):
            names = await matrix.fresh(route)
            answer = await matrix.ask(route, matrix.identities[name], names)
            expected = answer.is_success or (route in NOT_THERE and answer.status_code == 404)
            if not expected:
                wrong.append(f"{route} by {name}: {answer.status_code} {answer.text[:100]}")
    assert not wrong, "\n".join(wrong)
