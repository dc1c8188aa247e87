"""The admin token, the signed gateway, request ids, routes that are not there."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator

import httpx2
import pytest

from headrace.clock import ManualClock
from headrace.errors import ConfigurationError
from headrace.jobs.errors import JobsError
from headrace.jobs.http import create_app
from headrace.jobs.http.app import ENDPOINTS
from headrace.jobs.http.asgi import Gateway
from headrace.jobs.runtime.runtime import Runtime
from jobs_world import FILLED, PRODUCER, PULL, World, http_of

SECRET = "dGVzdC1obWFjLXNlY3JldC1mb3ItaW50ZWdyYXRpb24="
ADMIN = {"Authorization": "Bearer sesame"}


@pytest.mark.one_database
async def test_definitions_and_operations_ask_for_the_admin_token(world: World) -> None:
    world.runtime.admin_token = "sesame"
    for endpoint in ENDPOINTS:
        if not endpoint.admin:
            continue
        path = endpoint.path.format(**FILLED)
        bare = await world.http.request(endpoint.method, path)
        assert bare.status_code in {401, 403}, f"{endpoint.method} {path}"
        wrong = await world.http.request(
            endpoint.method, path, headers={"Authorization": "Bearer wrong"}
        )
        assert wrong.status_code in {401, 403}, f"{endpoint.method} {path}"
    assert (await world.http.get("/channel/c", headers=ADMIN)).status_code == 200
    assert (await world.http.get("/channel/c/messages", headers=PULL)).status_code == 200
    assert (await world.http.get("/health/ready")).status_code == 200
    await world.broadcast()
    assert len(await world.queued()) == 1


def signed(
    body: bytes, at: int, *, key: bytes = b"test-hmac-secret-for-integration", target: str = ""
) -> str:
    version = "v2" if target else "v1"
    text = f"{at}.".encode() + (f"{target}.".encode() if target else b"") + body
    return f"t={at},{version}={hmac.new(key, text, hashlib.sha256).hexdigest()}"


def test_the_golden_vectors_of_the_gateway() -> None:
    gateway = Gateway([SECRET])
    for body, digest in (
        (
            b'{"test":"hello world"}',
            "0af55592cb5ac951512549d30633de94965d4037c7299bd5bc2d81a129f4f5f7",
        ),
        (b"", "afd909d39c9309ea5b88f36541c4d162cfcad0f1e06e1c9b2b1a17f39bfcad52"),
    ):
        for text in (f"t=1708200000,v1={digest}", f"v1={digest} , t=1708200000"):
            gateway.check(text, "POST", "/", body, 1708200000)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (None, 401),
        ("", 401),
        ("t=1000", 401),
        ("v1=abc", 401),
        ("t=x,v1=abc", 401),
        ("t=1000,v1=abc,v3=x", 401),
        ("t=1000,v1=abc", 403),
        ("t=1000,v1=é", 403),
        (signed(b"x", 699), 403),
        (signed(b"x", 1301), 403),
        (signed(b"y", 1000), 403),
        (signed(b"x", 1000, key=b"another-secret-of-some-length"), 403),
    ],
)
def test_a_request_that_is_not_signed_rightly_is_refused(text: str | None, status: int) -> None:
    with pytest.raises(JobsError) as refused:
        Gateway([SECRET]).check(text, "POST", "/", b"x", 1000)
    assert refused.value.status == status


def test_the_second_version_binds_method_and_path() -> None:
    gateway = Gateway([SECRET], v2_only=True)
    good = signed(b"x", 1000, target="DELETE./a?b=1")
    gateway.check(good, "DELETE", "/a?b=1", b"x", 1000)
    for method, target in (("POST", "/a?b=1"), ("DELETE", "/a"), ("DELETE", "/a?b=2")):
        with pytest.raises(JobsError):
            gateway.check(good, method, target, b"x", 1000)
    with pytest.raises(JobsError):
        gateway.check(signed(b"x", 1000), "DELETE", "/a?b=1", b"x", 1000)


def test_any_live_secret_may_sign_and_short_ones_are_refused() -> None:
    Gateway([SECRET, "YW5vdGhlci1zZWNyZXQtb2Ytc29tZS1sZW5ndGg="]).check(
        signed(b"x", 1000, key=b"another-secret-of-some-length"), "GET", "/", b"x", 1000
    )
    for secrets in ([], ["c2hvcnQ="], ["not base64!"]):
        with pytest.raises(ConfigurationError, match="gateway secret"):
            Gateway(secrets)


@pytest.fixture
async def guarded(runtime: Runtime, world: World) -> AsyncIterator[httpx2.AsyncClient]:
    async with http_of(runtime, Gateway([SECRET])) as client:
        yield client


@pytest.mark.one_database
async def test_the_acceptance_script_of_the_gateway(
    guarded: httpx2.AsyncClient, clock: ManualClock
) -> None:
    now = clock.now_ns() // 10**9
    path = "/channel/c/broadcast"

    async def post(signature: str | None) -> int:
        headers = {**PRODUCER, **({"X-Broker-Signature": signature} if signature else {})}
        return (await guarded.post(path, content=b"x", headers=headers)).status_code

    assert (await guarded.get("/_status")).status_code == 200
    assert (await guarded.get("/_statusx")).status_code == 401
    assert await post(None) == 401
    assert await post(signed(b"y", now)) == 403
    assert await post(signed(b"x", now - 600)) == 403
    assert await post(signed(b"x", now)) == 201
    large = b"x" * (1024 * 1024 + 1)
    refused = await guarded.post(path, content=large, headers=PRODUCER)
    assert refused.status_code == 413


@pytest.mark.one_database
async def test_a_sane_request_id_is_echoed_and_another_replaced(world: World) -> None:
    response = await world.http.get("/health/live", headers={"X-Request-ID": "abc-1"})
    assert response.headers["x-request-id"] == "abc-1"
    for odd in ("a b", "x" * 200, "<script>"):
        response = await world.http.get("/health/live", headers={"X-Request-ID": odd})
        assert response.headers["x-request-id"] != odd


@pytest.mark.one_database
async def test_other_paths_and_methods_are_refused_in_words(world: World) -> None:
    response = await world.http.get("/v2/none")
    assert (response.status_code, response.json()["code"]) == (404, "no_such_route")
    response = await world.http.delete("/channels")
    assert response.status_code == 405
    assert "GET" in response.headers["allow"]


@pytest.mark.one_database
async def test_the_openapi_document_describes_every_route(world: World) -> None:
    document = (await world.http.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    for endpoint in ENDPOINTS:
        operation = document["paths"][endpoint.path][endpoint.method.lower()]
        assert set(operation["responses"]) == {
            str(status) for status in (*endpoint.answers, *endpoint.problems)
        }
    ids = [
        operation["operationId"]
        for path in document["paths"].values()
        for operation in path.values()
    ]
    assert len(ids) == len(set(ids))
    text = (await world.http.get("/openapi.json")).text
    for reference in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert reference in document["components"]["schemas"]


@pytest.mark.one_database
async def test_a_defect_is_told_without_its_details(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(work: object) -> None:
        raise RuntimeError("sesame")

    monkeypatch.setattr(world.runtime.database, "read", broken)
    response = await world.http.get("/v2/none/x")
    assert response.status_code == 404
    transport = httpx2.ASGITransport(create_app(world.runtime), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://jobs") as client:
        response = await client.get("/channels")
    assert response.status_code == 500
    assert "sesame" not in response.text
    assert f"(request {response.headers['x-request-id']})" in caplog.text
