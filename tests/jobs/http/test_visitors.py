"""A service without an admin token, and the pages that a browser beside it shows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from headrace.errors import ConfigurationError
from headrace.jobs.config import Config
from headrace.jobs.http import create_app
from headrace.jobs.runtime.runtime import Runtime
from jobs_world import PRODUCER, World

EVIL = {"Host": "evil.example"}
pytestmark = pytest.mark.one_database


@pytest.fixture
async def guarded(runtime: Runtime, world: World) -> AsyncIterator[httpx2.AsyncClient]:
    """As `headrace jobs serve` without settings guards it."""
    transport = httpx2.ASGITransport(create_app(runtime, names=Config().names()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        yield client


async def test_a_name_that_is_not_ours_reads_and_makes_nothing(
    guarded: httpx2.AsyncClient, world: World
) -> None:
    await world.broadcast("secret", X_Broker_Message_ID="m")
    for host in ("evil.example", "evil.example:8080", "localhost.evil.example"):
        refused = await guarded.get("/channel/c/message/m", headers={"Host": host})
        assert (refused.status_code, "secret" in refused.text) == (421, False)
        assert "--allow-host" in refused.text
        assert "x-request-id" in refused.headers
    made = await guarded.put("/channel/evil", data={"name": ""}, headers=EVIL)
    assert made.status_code == 421
    assert (await guarded.get("/channel/evil")).status_code == 404
    for host in ("127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080"):
        assert (await guarded.get("/channel/c", headers={"Host": host})).status_code == 200
    assert (await guarded.get("/health/ready", headers=EVIL)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9090"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:8080"},
    ],
)
async def test_another_site_s_page_changes_nothing(
    guarded: httpx2.AsyncClient, world: World, headers: dict[str, str]
) -> None:
    path = "/v2/channel/c/consumer/k"
    before = (await world.http.get(path)).headers["ETag"]
    plain = {"Content-Type": "text/plain", **headers}
    refused = await guarded.post(f"{path}/secret", content=b"{}", headers=plain)
    assert (refused.status_code, refused.json()["code"]) == (403, "foreign_request")
    assert (await world.http.get(path)).headers["ETag"] == before
    own = {"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"}
    assert (await guarded.post(f"{path}/secret", json={}, headers=own)).status_code == 200
    assert (await guarded.post(f"{path}/secret", json={})).status_code == 200
    sent = await guarded.post("/channel/c/broadcast", content=b"x", headers=PRODUCER)
    assert sent.status_code == 201


@pytest.mark.parametrize(
    ("settings", "taken", "refused"),
    [
        ({}, ["localhost", "127.0.0.1"], ["jobs.example", "jobs", "10.0.0.1"]),
        ({"allowed_hosts": ["jobs.example"]}, ["localhost", "jobs.example"], ["evil.example"]),
        (
            {"host": "0.0.0.0", "insecure": True},
            ["10.0.0.1", "jobs", "localhost"],
            ["jobs.example"],
        ),
        ({"admin_token": "t"}, ["jobs.example", "localhost"], []),
        (
            {"admin_token": "t", "allowed_hosts": ["jobs.example"]},
            ["jobs.example", "localhost", "10.0.0.1"],
            ["evil.example"],
        ),
    ],
)
def test_which_names_are_taken_follows_from_the_settings(
    settings: dict[str, object], taken: list[str], refused: list[str]
) -> None:
    config = Config(**settings)  # type: ignore[arg-type]
    config.check()
    names = config.names()
    assert all(names is None or names.accept(host) for host in taken)
    assert not any(names is None or names.accept(host) for host in refused)


@pytest.mark.parametrize("name", ["", "a:80", "http://a", "a/b", "[::1]"])
def test_an_allowed_host_is_a_name_without_a_port(name: str) -> None:
    with pytest.raises(ConfigurationError, match="allowed_hosts"):
        Config(allowed_hosts=[name]).check()
