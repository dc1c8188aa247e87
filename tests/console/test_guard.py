"""Who may ask the console, and what a page may do."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable
from typing import Any

import pytest

import peers

PASSWORD = "correct horse"


pytestmark = pytest.mark.parametrize("server", ["headrace"], indirect=True)
"""The guard says nothing about the server behind it."""


async def test_every_answer_carries_the_policy(world: Any) -> None:
    for path in ("/", "/app.js", "/api/overview", "/nowhere"):
        response = await world.http.get(path)
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"


async def test_a_name_that_is_not_ours_is_refused(world: Any) -> None:
    response = await world.http.get("/api/streams", headers={"host": "attacker.example"})
    assert response.status_code == 421
    assert (
        await world.http.get("/api/streams", headers={"host": "localhost:1"})
    ).status_code == 200


async def test_a_proxy_s_name_can_be_allowed(make_world: Callable[..., Any]) -> None:
    world = await make_world(allowed_hosts=("console.example",))
    response = await world.http.get("/api/streams", headers={"host": "console.example"})
    assert response.status_code == 200


async def test_another_site_s_page_changes_nothing(world: Any) -> None:
    await world.js.create_stream(name="S", subjects=("s",))
    for headers in ({}, {"x-headrace-console": "1", "sec-fetch-site": "cross-site"}):
        response = await world.http.request(
            "DELETE", "/api/streams/S", json={"confirm": "S"}, headers=headers
        )
        assert response.status_code == 403
        assert await world.js.stream("S")


FOREIGN = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "http://attacker.example"},
    {"origin": "null"},
]


async def test_another_site_s_page_looks_at_nothing(world: Any) -> None:
    """To follow a stream makes a consumer, which a page could have made by the hundred."""
    await world.js.create_stream(name="S", subjects=("s",))
    stream = await world.js.stream("S")
    paths = ("/api/streams/S/follow", "/api/live", "/api/streams")
    for headers, method, path in itertools.product(FOREIGN, ("GET", "HEAD"), paths):
        response = await world.http.request(method, path, headers=headers)
        assert response.status_code == 403, (headers, method, path)
        assert (await stream.info()).state.consumer_count == 0
    for headers in FOREIGN:  # a link to it
        assert (await world.http.get("/", headers=headers)).status_code == 200


async def test_its_own_pages_and_programs_are_answered(world: Any) -> None:
    for headers in ({}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}):
        response = await world.http.get("/api/streams", headers=headers)
        assert response.status_code == 200, headers


async def test_without_the_password_nothing_is_told(make_world: Callable[..., Any]) -> None:
    world = await make_world(password=PASSWORD)
    assert (await world.get("/streams", 401))["code"] == "password_needed"
    assert (await world.get("/live", 401))["code"] == "password_needed"
    assert (await world.get("/session"))["needs_password"]
    refused = await world.send("POST", "/session", 401, password="wrong horse")
    assert refused["message"] == "that is not the password"
    await world.send("POST", "/session", password=PASSWORD)
    assert not (await world.get("/session"))["needs_password"]
    assert (await world.get("/streams"))["streams"] == []
    await world.send("DELETE", "/session")
    await world.get("/streams", 401)


async def test_read_only_changes_nothing(make_world: Callable[..., Any]) -> None:
    world = await make_world(read_only=True)
    await world.js.create_stream(name="S", subjects=("s",))
    refused = await world.send("DELETE", "/streams/S", 403, confirm="S")
    assert refused["code"] == "read_only"
    assert (await world.get("/session"))["read_only"]


async def test_too_large_a_body_is_refused_before_it_is_read(world: Any) -> None:
    response = await world.http.put(
        "/api/buckets/B/keys/k", content=b"x" * (1 << 20 | 1), headers={"x-headrace-console": "1"}
    )
    assert response.status_code == 413

    async def pieces() -> Any:
        yield b"x"

    response = await world.http.put(
        "/api/buckets/B/keys/k", content=pieces(), headers={"x-headrace-console": "1"}
    )
    assert response.status_code == 413


@pytest.mark.parametrize("body", [b"{", b"[]", b"[" * 100_000])
async def test_a_body_that_is_no_object_is_refused(world: Any, body: bytes) -> None:
    response = await world.http.post(
        "/api/streams/S/purge", content=body, headers={"x-headrace-console": "1"}
    )
    assert response.status_code == 400
    assert response.json()["code"] == "not_json"


async def test_what_another_site_s_page_sends_to_the_numbers_is_no_guess_at_the_password(
    make_world: Callable[..., Any],
) -> None:
    """Ten of them would keep everybody out for a minute."""
    world = await make_world(password=PASSWORD)
    basic = {"authorization": "Basic " + base64.b64encode(b":wrong").decode()}
    for _ in range(20):
        answer = await world.http.get("/metrics", headers={**basic, "sec-fetch-site": "cross-site"})
        assert answer.status_code == 403
    told = {"authorization": "Basic " + base64.b64encode(f":{PASSWORD}".encode()).decode()}
    assert (await world.http.get("/metrics", headers=told)).status_code == 200


async def test_where_things_are_and_as_whom_is_not_told_to_browsers(
    make_world: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    port = peers.free_port()
    away = f"http://ann:s3cret@127.0.0.1:{port}"
    world = await make_world(jobs=away, monitoring=away)
    for path in ("/api/jobs", "/api/accounts"):
        answer = await world.http.get(path)
        assert answer.status_code == 503, path
        assert "s3cret" not in answer.text
        assert str(port) not in answer.text
    assert "s3cret" not in caplog.text
