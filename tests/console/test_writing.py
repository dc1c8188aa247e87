"""The console publishes, makes and changes streams, and searches in messages, on both servers."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace.console import guard
from headrace.console.routes import buckets as objects
from headrace.console.routes import messages as search
from waiting import until


async def test_a_message_is_published_with_headers_and_as_bytes(world: Any) -> None:
    stream = await world.js.create_stream(name="ORDERS", subjects=("orders.>",))
    done = await world.send(
        "POST", "/streams/ORDERS/messages", subject="orders.1", payload="grüße",
        headers="Customer: ann\n\nTag: a\nTag: b:c",
    )  # fmt: skip
    assert (done["stream"], done["seq"]) == ("ORDERS", 1)
    first = await stream.get_message(1)
    assert first.payload == "grüße".encode()
    given = [each for each in first.headers.items() if not each[0].startswith("Nats-")]
    assert given == [("Customer", "ann"), ("Tag", "a"), ("Tag", "b:c")]
    encoded = base64.b64encode(bytes(range(256))).decode()
    await world.send("POST", "/streams/ORDERS/messages", subject="orders.2", payload_base64=encoded)
    assert (await stream.get_message(2)).payload == bytes(range(256))
    file = await world.http.get("/api/streams/ORDERS/messages/2/payload")
    assert file.content == bytes(range(256))
    assert file.headers["content-disposition"].startswith("attachment")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"subject": "orders.*"}, "without wildcards"),
    ({"subject": ""}, "without wildcards"),
    ({"subject": "orders.\ud800"}, ""),
    ({"subject": "orders.1", "headers": "no colon"}, "Name: value"),
    ({"subject": "orders.1", "payload_base64": "=="}, "payload_base64"),
    ({"subject": "orders.1", "payload": "a", "payload_base64": "YQ=="}, "not both"),
    ({"subject": 7}, "subject has to be text"),
]
"""What cannot be published, and what is said of it."""


async def test_what_cannot_be_published_is_refused_in_words(world: Any) -> None:
    stream = await world.js.create_stream(name="ORDERS", subjects=("orders.>",))
    for body, said in REFUSED:
        response = await world.http.request(
            "POST",
            "/api/streams/ORDERS/messages",
            content=json.dumps(body),
            headers={"x-headrace-console": "1"},
        )
        assert response.status_code == 400, response.text
        assert said in response.json()["message"]
        assert (await stream.info()).state.messages == 0, body


async def test_a_message_goes_to_this_stream_or_nowhere(world: Any) -> None:
    await world.js.create_stream(name="ORDERS", subjects=("orders.>",))
    other = await world.js.create_stream(name="OTHER", subjects=("other.>",))
    done = await world.send("POST", "/streams/ORDERS/messages", 409, subject="other.1", payload="x")
    assert "stream" in done["message"]
    assert (await other.info()).state.messages == 0


async def test_a_stream_is_made_and_one_that_differs_is_not(world: Any) -> None:
    config = {"name": "NEW", "subjects": ["new.>"], "storage": "memory", "max_msgs": 100}
    assert (await world.send("POST", "/streams", config=config)) == {"name": "NEW"}
    info = await (await world.js.stream("NEW")).info()
    assert (info.config.storage, info.config.max_msgs) == ("memory", 100)
    assert "NEW" in [each["name"] for each in (await world.get("/streams"))["streams"]]
    again = await world.send("POST", "/streams", 409, config={**config, "max_msgs": 5})
    assert again["code"] == "server_10058"
    bad: list[Any] = [None, [], {"name": 7}, {"name": "X", "storage": "tape"}, {"name": "a b"}]
    for wrong in bad:
        refused = await world.send("POST", "/streams", 400, config=wrong)
        assert refused["message"]


async def test_a_change_is_shown_first_and_one_that_removes_needs_the_name(world: Any) -> None:
    stream = await world.js.create_stream(name="ORDERS", subjects=("orders.>",))
    for number in range(10):
        await world.js.publish("orders.1", b"%d" % number)
    config = (await world.get("/streams/ORDERS"))["config"]
    same = await world.send("PUT", "/streams/ORDERS", config=config, dry_run=True)
    assert same == {"changes": [], "loss": "", "removes": False}
    less = {**config, "max_msgs": 4}
    plan = await world.send("PUT", "/streams/ORDERS", config=less, dry_run=True)
    assert [each["setting"] for each in plan["changes"]] == ["max_msgs"]
    assert plan["removes"] and "6 of 10 messages" in plan["loss"]
    assert (await stream.info()).state.messages == 10
    refused = await world.send("PUT", "/streams/ORDERS", 409, config=less)
    assert refused["code"] == "not_confirmed"
    assert (await stream.info()).state.messages == 10
    await world.send("PUT", "/streams/ORDERS", config=less, confirm="ORDERS")
    assert (await stream.info()).state.messages == 4
    more = {**less, "description": "all of them"}
    await world.send("PUT", "/streams/ORDERS", config=more)  # nothing is lost: nothing to confirm
    assert (await stream.info()).config.description == "all of them"
    renamed = await world.send("PUT", "/streams/ORDERS", 400, config={**more, "name": "X"})
    assert "does not change here" in renamed["message"]


@pytest.fixture(params=[True, False], ids=["direct", "asked one by one"])
async def searched(world: Any, request: pytest.FixtureRequest) -> Any:
    await world.js.create_stream(name="S", subjects=("s.>",), allow_direct=request.param)
    for number in range(60):
        document = {
            "customer": {"name": f"n{number % 7}", "vip": number % 2 == 0},
            "lines": [number],
        }
        await world.js.publish(
            f"s.{number % 2}", json.dumps(document).encode(), headers={"Kind": f"k{number % 3}"}
        )
    await world.js.publish("s.1", b"\xff not json {")
    await world.js.publish("s.1", b"[" * 2000)
    return world


SEARCHES = {
    "text=n3": [n + 1 for n in range(60) if n % 7 == 3],
    "text=n3&subject=s.1": [n + 1 for n in range(60) if n % 7 == 3 and n % 2],
    "path=customer.name&text=n3": [n + 1 for n in range(60) if n % 7 == 3],
    "path=customer.name&text=n": [],
    "path=customer.vip&text=true&header=kind:%20k0": [n + 1 for n in range(0, 60, 6)],
    "path=lines.0&text=41": [42],
    "path=lines.7": [],
    "path=lines&text=41": [],
    "path=customer&text=n": [],
    "path=customer&from=58": [58, 59, 60],
    "header=Kind: k2&from=55": [57, 60],
    "header=none": [],
    "text=not json": [61],
    "text=%5B%5B%5B": [62],
}
"""What is looked for, and the sequences of what is found."""


async def test_messages_are_found(searched: Any) -> None:
    for query, sequences in SEARCHES.items():
        found = await searched.get(f"/streams/S/search?{query}")
        assert [each["seq"] for each in found["messages"]] == sequences, query
        assert found["next"] == 0, query


async def test_a_search_looks_at_so_much_and_goes_on(
    searched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MESSAGES_MAX", "ASKED_MAX"):
        monkeypatch.setattr(search, name, 10)
    monkeypatch.setattr(search, "_AT_ONCE", 5)
    monkeypatch.setattr(search, "FOUND_MAX", 3)
    found, begin, answers = [], 1, 0
    while begin:
        part = await searched.get(f"/streams/S/search?text=customer&from={begin}")
        assert part["looked"] <= 10 and len(part["messages"]) <= 3
        found += [each["seq"] for each in part["messages"]]
        begin, answers = part["next"], answers + 1
    assert found == list(range(1, 61))
    assert answers >= 20


async def test_a_search_keeps_to_times_and_needs_something_to_look_for(searched: Any) -> None:
    stream = await searched.js.stream("S")
    times = [
        (await searched.get(f"/streams/S/messages/{sequence}"))["time"] for sequence in (20, 30)
    ]
    found = await searched.get(f"/streams/S/search?text=customer&time={times[0]}&until={times[1]}")
    assert [each["seq"] for each in found["messages"]] == list(range(20, 31))
    for query in (
        "",
        "subject=s.1",
        f"text={'x' * 1001}",
        "text=a&time=soon",
        "text=a&subject=a..b",
    ):
        await searched.get(f"/streams/S/search?{query}", 400)
    await stream.purge()
    empty = await searched.get("/streams/S/search?text=a")
    assert empty == {"messages": [], "looked": 0, "next": 0}


async def test_a_consumer_is_made_and_changed_after_a_look_at_what_differs(world: Any) -> None:
    await world.js.create_stream(name="ORDERS", subjects=("orders.>",))
    path = "/streams/ORDERS/consumers"
    config = {"durable_name": "work", "ack_policy": "explicit", "max_deliver": 5}
    assert (await world.send("POST", path, config=config)) == {"name": "work"}
    consumer = await world.js.consumer("ORDERS", "work")
    assert (await consumer.info()).config.max_deliver == 5
    again = await world.send("POST", path, 409, config={**config, "max_deliver": 6})
    assert again["code"].startswith("server_")
    bad: list[Any] = [None, [], {"durable_name": 7}, {}, {**config, "ack_policy": "maybe"}]
    for wrong in bad:
        assert (await world.send("POST", path, 400, config=wrong))["message"]
    await world.send("POST", "/streams/NONE/consumers", 404, config=config)

    before = (await world.get(f"{path}/work"))["config"]
    more = {**before, "max_deliver": 9}
    plan = await world.send("PUT", f"{path}/work", config=more, dry_run=True)
    assert plan["changes"] == [{"setting": "max_deliver", "now": 5, "then": 9}]
    assert (await consumer.info()).config.max_deliver == 5
    await world.send("PUT", f"{path}/work", config=more)
    assert (await consumer.info()).config.max_deliver == 9
    assert (await consumer.info()).config.ack_policy == "explicit"
    other = await world.send(
        "PUT", f"{path}/work", 400, config={**more, "durable_name": "x", "name": "x"}
    )
    assert "does not change here" in other["message"]
    refused = await world.send("PUT", f"{path}/work", 409, config={**more, "ack_policy": "none"})
    assert refused["code"].startswith("server_")


MARK = {"x-headrace-console": "1"}


async def test_an_object_is_uploaded_and_replaced_when_asked(world: Any) -> None:
    store = await world.js.create_object_store("FILES")
    content = bytes(range(256)) * 10_000
    path = "/api/objects/FILES/notes/a%20b.bin"
    made = await world.http.put(path, content=content, headers=MARK)
    assert (made.status_code, made.json()["bytes"]) == (200, len(content))
    assert await store.get("notes/a b.bin") == content
    again = await world.http.put(path, content=b"other", headers=MARK)
    assert (again.status_code, again.json()["code"]) == (409, "exists")
    assert await store.get("notes/a b.bin") == content
    await world.http.put(f"{path}?replace=1", content=b"other", headers=MARK)
    assert await store.get("notes/a b.bin") == b"other"
    await world.http.put("/api/objects/FILES/empty", content=b"", headers=MARK)
    assert await store.get("empty") == b""
    nowhere = await world.http.put("/api/objects/NONE/a", content=b"x", headers=MARK)
    assert nowhere.status_code == 404


async def test_an_upload_that_is_cut_off_or_stops_leaves_nothing(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await world.js.create_object_store("FILES")
    await store.put("kept", b"as it was")
    for stops in (False, True):
        monkeypatch.setattr(objects, "PAUSE_S_MAX", 0.2 if stops else 60.0)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", urlsplit(world.console.url).port
        )
        writer.write(
            b"PUT /api/objects/FILES/kept?replace=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"X-Headrace-Console: 1\r\nContent-Length: 900000\r\n\r\n" + b"x" * 300_000
        )
        await writer.drain()
        await until(lambda: world.console.sources.uploads == 1)
        if stops:
            assert b"408" in await reader.readline()
        writer.close()
        await until(lambda: world.console.sources.uploads == 0)
    assert await store.get("kept") == b"as it was"
    (chunks,) = [each.size for each in await store.list()]
    assert (await store.status()).size < 10_000, "no piece of either is left"
    assert chunks == len(b"as it was")


async def test_uploads_have_limits(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.js.create_object_store("FILES")
    monkeypatch.setattr(guard, "UPLOAD_BYTES_MAX", 1000)
    large = await world.http.put("/api/objects/FILES/a", content=b"x" * 1001, headers=MARK)
    assert (large.status_code, large.json()["code"]) == (413, "too_large")

    async def pieces() -> Any:
        yield b"x"

    unsaid = await world.http.put("/api/objects/FILES/a", content=pieces(), headers=MARK)
    assert unsaid.status_code == 413
    monkeypatch.setattr(world.console.sources, "uploads", objects.UPLOADS_MAX)
    many = await world.http.put("/api/objects/FILES/a", content=b"x", headers=MARK)
    assert (many.status_code, many.json()["code"]) == (429, "too_many")
    foreign = await world.http.put("/api/objects/FILES/a", content=b"x")
    assert foreign.status_code == 403
