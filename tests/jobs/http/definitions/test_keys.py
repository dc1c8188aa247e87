"""API keys: what each scope may, in which channels, until when; and that nothing of a key is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import main
from headrace.jobs import limits
from headrace.jobs.access import SCOPES, Key
from headrace.jobs.client import JobsClient
from headrace.jobs.errors import JobsError
from headrace.jobs.http.app import ENDPOINTS
from headrace.jobs.ids import key_id_of, new_key
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.runtime.runtime import Runtime
from jobs_world import World, held, jobs_client

ADMIN = {"Authorization": "Bearer sesame"}


def bearing(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
async def locked(world: World) -> World:
    """A service with an admin token, and a second channel."""
    await world.put("/channel/other", token="ot")
    world.runtime.admin_token = "sesame"
    return world


async def make(world: World, *scopes: str, expect: int = 201, **body: Any) -> Any:
    response = await world.http.post(
        "/v2/keys", json={"name": "ci", "scopes": list(scopes), **body}, headers=ADMIN
    )
    assert response.status_code == expect, response.text
    return response.json()


async def status(world: World, method: str, path: str, key: str, **more: Any) -> int:
    response = await world.http.request(method, path, headers=bearing(key), **more)
    return response.status_code


async def test_a_key_publishes_and_takes_jobs_without_any_token(locked: World) -> None:
    publisher, worker = await make(locked, "publish"), await make(locked, "consume")
    path = "/v2/channel/c/messages"
    sent = await locked.http.post(path, content=b"x", headers=bearing(publisher["key"]))
    assert (sent.status_code, sent.json()["jobs"]) == (201, 1)
    batch = {"messages": [{"payload": "y"}, {"payload": "z"}]}
    assert await status(locked, "POST", f"{path}/batch", publisher["key"], json=batch) == 201
    named = {**bearing(publisher["key"]), "X-Broker-Producer-ID": "p"}
    assert (await locked.http.post(path, content=b"x", headers=named)).status_code == 201
    nobody = {**bearing(publisher["key"]), "X-Broker-Producer-ID": "nobody"}
    refused = await locked.http.post(path, content=b"x", headers=nobody)
    assert (refused.status_code, refused.json()["code"]) == (401, "unknown_producer")

    claim = "/v2/channel/c/consumer/k/jobs/claim"
    assert await status(locked, "POST", claim, publisher["key"], json={}) == 403
    assert await status(locked, "POST", path, worker["key"], content=b"x") == 403
    for most in (1, 10):
        taken = await locked.http.post(claim, json={"max": most}, headers=bearing(worker["key"]))
        jobs = taken.json()["jobs"]
        assert len(jobs) == (1 if most == 1 else 3)
        body = {"jobs": held(*jobs)}
        complete = "/v2/channel/c/consumer/k/jobs/complete"
        assert await status(locked, "POST", complete, worker["key"], json=body) == 200


async def test_a_key_is_for_its_channels_only(locked: World) -> None:
    own = (await make(locked, "admin", channels=["c", "new.*"]))["key"]
    assert await status(locked, "GET", "/channel/c", own) == 200
    assert await status(locked, "PUT", "/channel/new.one", own, data={"token": "t"}) == 200
    for method, path in (
        ("GET", "/channel/other"),
        ("PUT", "/channel/newone"),
        ("GET", "/channels"),
        ("PUT", "/producer/q"),
        ("GET", "/_status"),
        ("POST", "/v2/keys"),
        ("GET", "/v2/audit"),
    ):
        assert await status(locked, method, path, own) == 403, path
    tell = {"events_channel": "other"}
    assert await status(locked, "PATCH", "/v2/channel/c", own, json=tell) == 403
    every = (await make(locked, "admin"))["key"]
    assert await status(locked, "PATCH", "/v2/channel/c", every, json=tell) == 200
    assert await status(locked, "GET", "/channels", every) == 200


async def test_who_operates_looks_pauses_and_replays_but_defines_nothing(locked: World) -> None:
    key = (await make(locked, "operate"))["key"]
    consumer = "/v2/channel/c/consumer/k"
    for method, path, body, expected in (
        ("GET", consumer, None, 200),
        ("GET", "/v2/channel/c/jobs", None, 200),
        ("GET", "/v2/events", None, 200),
        ("PATCH", consumer, {"paused": True}, 200),
        ("PATCH", "/v2/channel/c", {"draining": True}, 200),
        ("POST", "/v2/channel/c/replay", {"since": "2020-01-01T00:00:00Z"}, 200),
        ("POST", "/v2/channel/c/jobs/cancel", {"consumer": "k"}, 200),
        ("DELETE", "/channel/c/consumer/k/dlq", None, 200),
        ("PATCH", consumer, {"max_retries": 1}, 403),
        ("PATCH", consumer, {"callback_url": "http://evil.example/"}, 403),
        ("PATCH", "/v2/channel/c", {"events_channel": "other"}, 403),
        ("POST", f"{consumer}/secret", {}, 403),
        ("POST", f"{consumer}/token", {}, 403),
        ("PUT", "/v2/channel/c/schedule/s", {"cron": "@daily", "message": {"payload": ""}}, 403),
        ("DELETE", "/channel/c", None, 403),
        ("POST", "/v2/keys", {"name": "n", "scopes": ["admin"]}, 403),
        ("GET", "/v2/keys", None, 403),
        ("GET", "/v2/audit", None, 403),
    ):
        assert await status(locked, method, path, key, json=body) == expected, f"{method} {path}"


async def test_a_key_that_is_revoked_expired_or_made_up_is_refused_also_beside_good_tokens(
    locked: World,
) -> None:
    made = await make(locked, "publish", expires_in_seconds=60)
    assert made["expires_at"] is not None

    async def sends(key: str, expected: int) -> None:
        await locked.broadcast(expect=expected, Authorization=f"Bearer {key}")

    await sends(made["key"], 201)
    locked.clock.advance(59.5)
    await sends(made["key"], 201)
    locked.clock.advance(0.5)
    await sends(made["key"], 401)
    ended = await make(locked, "publish")
    await sends(ended["key"], 201)
    gone = await locked.http.delete(f"/v2/key/{ended['id']}", headers=ADMIN)
    assert gone.status_code == 204
    await sends(ended["key"], 401)
    good = await make(locked, "publish")
    await sends(good["key"][:-1] + ("A" if good["key"][-1] != "A" else "B"), 401)
    for text in ("hrk_", "hrk_0123456789abcdef_x", "hrk_0123456789abcdef_" + "x" * 32):
        await sends(text, 401)
    assert (await locked.http.delete("/v2/key/none", headers=ADMIN)).status_code == 404
    assert (await locked.http.delete(f"/v2/key/{ended['id']}", headers=ADMIN)).status_code == 204


async def test_another_process_knows_within_a_second_that_a_key_was_revoked(
    locked: World, service_on: Callable[..., Runtime]
) -> None:
    made = await make(locked, "publish")
    second = service_on(clock=locked.clock)
    await second.start()
    try:
        assert (await second.keys.find(made["key"])).key_id == made["id"]
        await locked.http.delete(f"/v2/key/{made['id']}", headers=ADMIN)
        assert (await second.keys.find(made["key"])).key_id == made["id"]
        locked.clock.advance(limits.KEY_SEEN_S)
        with pytest.raises(JobsError, match="unknown_key"):
            await second.keys.find(made["key"])
    finally:
        await second.close()


async def test_a_key_is_shown_once_and_stored_as_a_hash_with_its_last_use(locked: World) -> None:
    made = await make(locked, "publish", "consume", "publish", channels=["c", "c"])
    assert (made["scopes"], made["channels"]) == (["publish", "consume"], ["c"])
    assert made["last_used_at"] is None
    rows: Any = await locked.runtime.database.read(lambda tx: tx.all("get_key", key_id=made["id"]))
    stored = str([dict(row) for row in rows])
    assert made["id"] in stored
    assert made["key"].split(made["id"] + "_")[1] not in stored
    await locked.broadcast(Authorization=f"Bearer {made['key']}")
    await Maintenance(locked.runtime).tick()
    listed = await locked.http.get("/v2/keys", headers=ADMIN)
    (shown,) = listed.json()["keys"]
    assert shown["last_used_at"] is not None
    assert "key" not in shown
    assert made["key"] not in listed.text


@pytest.mark.one_database
async def test_what_no_key_can_be_is_refused(locked: World) -> None:
    for scopes, more, field in (
        ((), {}, "scopes"),
        (("root",), {}, "scopes"),
        (("admin",), {"channels": []}, "channels"),
        (("admin",), {"channels": ["a/b"]}, "channels"),
        (("admin",), {"channels": ["a"] * 65}, "channels"),
        (("admin",), {"expires_in_seconds": 0}, "expires_in_seconds"),
        (("admin",), {"name": "a\nb"}, "name"),
    ):
        refused = await make(locked, *scopes, expect=400, **more)
        assert refused["field"] == field


@pytest.mark.one_database
async def test_there_are_so_many_keys_at_most(
    locked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KEYS_MAX", 1)
    await make(locked, "admin")
    assert (await make(locked, "admin", expect=409))["code"] == "too_many_keys"


async def test_keys_that_are_over_are_removed_after_a_while(locked: World) -> None:
    made, kept = await make(locked, "publish", expires_in_seconds=5), await make(locked, "publish")
    locked.clock.advance(91 * 86_400)
    await Maintenance(locked.runtime).retain()
    listed = (await locked.http.get("/v2/keys", headers=ADMIN)).json()
    assert [key["id"] for key in listed["keys"]] == [kept["id"]] != [made["id"]]


@pytest.mark.one_database
async def test_a_key_has_its_limits_also_where_no_admin_token_is_set(world: World) -> None:
    key = (await make(world, "publish"))["key"]
    assert await status(world, "GET", "/channels", key) == 403
    assert (await world.http.get("/channels")).status_code == 200


def test_every_route_but_those_that_tell_nothing_has_its_scopes() -> None:
    for endpoint in ENDPOINTS:
        open_to_all = endpoint.path.startswith("/health/")
        assert bool(endpoint.needed) != open_to_all, endpoint.path
        assert set(endpoint.needed) <= set(SCOPES)
        if endpoint.needed:
            assert {401, 403} <= endpoint.problems, f"{endpoint.method} {endpoint.path}"
        if endpoint.needed == ("admin",) and endpoint.method != "GET":
            assert endpoint.audited, f"{endpoint.method} {endpoint.path}"


@given(
    st.lists(st.sampled_from(SCOPES), min_size=1),
    st.lists(st.sampled_from(SCOPES), min_size=1),
)
def test_a_scope_is_had_or_admin_is(has: list[str], needs: list[str]) -> None:
    key = Key(seq=1, key_id="k", name="", scopes=tuple(has), channels=("*",))
    assert key.has_scope(needs) == (bool(set(has) & set(needs)) or "admin" in has)


def test_a_key_tells_its_id_and_nothing_else_is_one() -> None:
    key_id, key = new_key()
    assert key_id_of(key) == key_id
    assert key_id_of("sesame") is None
    assert key_id_of(key + "x") == key_id_of("hrk_") == ""


async def test_the_clients_make_use_and_revoke_keys(
    world: World, address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world.runtime.admin_token = "sesame"
    async with jobs_client(world.runtime, admin_token="sesame") as client:
        made = await client.create_key("ci", ["publish", "consume"], channels=["c"])
        async with jobs_client(world.runtime, admin_token=made["key"]) as own:
            await own.publish("c", b"x")
            queue = own.queue("c", "k")
            (job,) = await queue.claim()
            assert (await queue.complete([job]))[0].code == "ok"
        assert [key["id"] async for key in client.api_keys()] == [made["id"]]
        await client.revoke_key(made["id"])
        entries = [entry async for entry in client.audit()]
        assert [entry["action"] for entry in entries[:2]] == [
            "DELETE /v2/key/{keyId}",
            "POST /v2/keys",
        ]

    def blocking() -> str:
        with JobsClient(address, admin_token="sesame") as client:
            return str(client.create_key("cron", ["operate"], expires_in_s=60)["key"])

    key = await asyncio.to_thread(blocking)

    async def run(*words: str, bearer: str = "sesame") -> tuple[int, str, str]:
        monkeypatch.setenv("HEADRACE_JOBS_ADMIN_TOKEN", bearer)
        code = await asyncio.to_thread(main, ["jobs", *words, "--url", address])
        said = capsys.readouterr()
        return code, said.out, said.err

    assert (await run("pause", "c", "k", bearer=key))[0] == 0
    code, out, err = await run("key", "deploy", "--scope", "publish", "--channel", "c")
    assert code == 0
    assert "shown this once" in err
    made_key = out.strip()
    assert (await run("publish", "c", "x", bearer=made_key))[0] == 0
    assert (await run("status", bearer=made_key))[0] == 1
    code, out, _ = await run("keys")
    assert "deploy" in out
    assert made_key not in out
    key_id = key_id_of(made_key)
    assert (await run("revoke", str(key_id), "--force"))[:2] == (0, f"{key_id} is revoked\n")
    assert (await run("publish", "c", "x", bearer=made_key))[0] == 1
    code, out, _ = await run("audit", "--limit", "50")
    assert code == 0
    assert f"/v2/key/{key_id}" in out
    assert "401 unknown_key" in out
    assert made_key not in out


async def test_where_no_key_is_asked_for_none_is_looked_at(locked: World) -> None:
    assert await status(locked, "GET", "/health/live", "hrk_nonsense") == 200
