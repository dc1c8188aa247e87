from __future__ import annotations

import asyncio
import json
import os
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import peers
from headrace import connect
from headrace.broker import Broker
from headrace.broker.core.auth.authentication import User
from headrace.broker.core.options import AccountOptions, Export, Import, JetStreamLimits
from headrace.broker.server.config.options import WebSocketOptions


async def ask(broker: Broker, data: bytes) -> tuple[int, dict[str, str], bytes]:
    assert broker.monitor_url is not None
    port = int(broker.monitor_url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert int(headers["Content-Length"]) == len(body) or data.startswith(b"HEAD")
    return int(status.split()[1]), headers, body


async def get(broker: Broker, target: str) -> tuple[int, bytes]:
    status, _, body = await ask(broker, f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return status, body


async def test_varz_tells_deadlines_listeners_and_when_the_settings_were_read() -> None:
    async with Broker(monitor_port=0) as plain:
        assert json.loads((await get(plain, "/varz"))[1])["websocket"] == {}
    async with Broker(monitor_port=0, websocket=WebSocketOptions(port=0)) as broker:
        first = json.loads((await get(broker, "/varz"))[1])
        assert (first["tls_timeout"], first["write_deadline"]) == (2, 10_000_000_000)
        assert broker.websocket_url is not None
        port = int(broker.websocket_url.rpartition(":")[2])
        assert first["websocket"] == {"host": "127.0.0.1", "port": port, "no_tls": True}
        assert first["config_load_time"] == first["start"]
        broker.reload(broker.options)
        again = json.loads((await get(broker, "/varz"))[1])
        assert again["start"] == first["start"] < again["config_load_time"]
        assert again["websocket"] == first["websocket"]


async def test_the_pages_tell_what_tools_expect(no_leaks: None) -> None:
    async with Broker(monitor_port=0, server_name="mill") as broker:
        status, body = await get(broker, "/varz")
        document = json.loads(body)
        assert status == 200
        assert document["server_name"] == "mill"
        assert document["port"] == broker.port
        assert document["version"].startswith("2.")
        assert document["mem"] > 1_000_000
        status, body = await get(broker, "/healthz?js-enabled-only=1")
        assert (status, json.loads(body)) == (200, {"status": "ok"})
        status, body = await get(broker, "/jsz")
        assert json.loads(body)["streams"] == 0
        status, body = await get(broker, "/connz?subs=1&limit=5&offset=0")
        assert json.loads(body)["limit"] == 5
        status, body = await get(broker, "/")
        assert b"healthz" in body


async def test_without_a_limit_the_pages_say_what_memory_and_disk_allow(tmp_path: Path) -> None:
    async with Broker(monitor_port=0, store_dir=tmp_path / "not" / "there") as broker:
        config = json.loads((await get(broker, "/varz"))[1])["jetstream"]["config"]
        free = os.statvfs(tmp_path)
        assert 0 < config["max_storage"] <= free.f_blocks * free.f_frsize * 3 // 4
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        assert abs(config["max_memory"] - memory * 3 // 4) < 4096
        assert json.loads((await get(broker, "/jsz"))[1])["config"] == config
    async with Broker(monitor_port=0, memory_bytes_max=5, file_bytes_max=7) as broker:
        config = json.loads((await get(broker, "/jsz"))[1])["config"]
        assert (config["max_memory"], config["max_storage"]) == (5, 7)


async def test_monitoring_may_be_served_on_an_address_of_its_own() -> None:
    async with Broker(monitor_port=0, monitor_host="127.0.0.2") as broker:
        assert broker.monitor_url is not None
        assert broker.monitor_url.startswith("http://127.0.0.2:")
        assert "127.0.0.1" in broker.client_url


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nope HTTP/1.1\r\n\r\n", 404),
        (b"POST /varz HTTP/1.1\r\n\r\n", 405),
        (b"GET /connz?limit=x HTTP/1.1\r\n\r\n", 400),
        (b"GET /connz?sort=height HTTP/1.1\r\n\r\n", 400),
        (b"GET /connz?state=asleep HTTP/1.1\r\n\r\n", 400),
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET /varz SMTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"HEAD /varz HTTP/1.1\r\n\r\n", 200),
    ],
)
async def test_bad_requests_are_told_what_is_accepted(request_bytes: bytes, status: int) -> None:
    async with Broker(monitor_port=0) as broker:
        got, headers, body = await ask(broker, request_bytes)
        assert got == status
        assert headers["Connection"] == "close"
        if request_bytes.startswith(b"HEAD"):
            assert body == b""


async def test_accounts_streams_and_subscriptions_are_shown_when_asked_for() -> None:
    accounts = [
        AccountOptions(
            name="A", jetstream=JetStreamLimits(), exports=(Export(kind="service", subject=b"s"),)
        ),
        AccountOptions(
            name="B", imports=(Import(kind="service", account="A", subject=b"s", local=b"t"),)
        ),
    ]
    users = [User("ann", "p", account="A"), User("bob", "p", account="B")]
    async with Broker(monitor_port=0, accounts=accounts, users=users) as broker:
        async with (
            connect(broker.client_url, user="ann", password="p") as ann,
            connect(broker.client_url, user="bob", password="p") as bob,
        ):
            stream = await ann.jetstream().create_stream(name="S", subjects=["x"])
            await stream.create_consumer(durable_name="C", ack_policy="explicit")
            await bob.subscribe("orders.*", queue="workers")
            await bob.flush()

            async def page(target: str) -> dict[str, Any]:
                status, body = await get(broker, target)
                assert status == 200, body
                document: dict[str, Any] = json.loads(body)
                return document

            plain = await page("/jsz")
            assert (plain["streams"], plain["consumers"]) == (1, 1)
            assert "account_details" not in plain
            (detail,) = (await page("/jsz?consumers=1&config=1"))["account_details"]
            assert detail["name"] == "A"
            (shown,) = detail["stream_detail"]
            assert (shown["name"], shown["config"]["subjects"]) == ("S", ["x"])
            assert shown["consumer_detail"][0]["name"] == "C"
            (detail,) = (await page("/jsz?acc=A&streams=1"))["account_details"]
            assert "config" not in detail["stream_detail"][0]
            assert (await page("/accountz"))["accounts"] == ["$G", "$SYS", "A", "B"]
            one = (await page("/accountz?acc=B"))["account_detail"]
            assert (one["client_connections"], one["jetstream_enabled"]) == (1, False)
            assert one["imports"][0]["local_subject"] == "t"
            assert (await page("/accountz?acc=A"))["account_detail"]["exports"][0]["subject"] == "s"
            listed = await page("/subsz?subs=1&acc=B")
            assert {"orders.*"} <= {entry["subject"] for entry in listed["subscriptions_list"]}
            assert "subscriptions_list" not in await page("/subscriptionsz")
            (connection,) = (await page("/connz?acc=B"))["connections"]
            assert (connection["account"], connection["authorized_user"]) == ("B", "bob")
        for target in ("/accountz?acc=nope", "/jsz?acc=B", "/subsz?limit=x"):
            assert (await get(broker, target))[0] == 400


async def test_accounts_of_jsz_come_in_pages_by_name() -> None:
    accounts = [AccountOptions(name=name, jetstream=JetStreamLimits()) for name in "CAB"]
    users = [User(name, "p", account=name) for name in "CAB"]
    async with Broker(monitor_port=0, accounts=accounts, users=users) as broker:

        async def names(query: str) -> list[str]:
            document = json.loads((await get(broker, f"/jsz?{query}"))[1])
            assert document["total"] == 3
            return [each["name"] for each in document["account_details"]]

        assert await names("accounts=1") == ["A", "B", "C"]
        assert await names("accounts=1&limit=2") == ["A", "B"]
        assert await names("accounts=1&limit=2&offset=2") == ["C"]
        assert await names("accounts=1&offset=9") == []
        (detail,) = json.loads((await get(broker, "/jsz?acc=B"))[1])["account_details"]
        assert (detail["streams"], detail["bytes"]) == (0, 0)
        assert (await get(broker, "/healthz?js-server-only=1"))[0] == 200


async def test_connections_are_sorted_and_shown_with_their_subscriptions() -> None:
    async with (
        Broker(monitor_port=0) as broker,
        connect(broker.client_url, name="one") as one,
        connect(broker.client_url, name="two") as two,
    ):

        async def names(query: str) -> list[str]:
            _, body = await get(broker, f"/connz?{query}")
            return [connection["name"] for connection in json.loads(body)["connections"]]

        await two.subscribe("a.*", queue="q")
        await two.publish("b", b"x")
        await two.flush()
        await one.flush()
        assert await names("sort=cid") == ["one", "two"]
        assert await names("sort=subs") == ["two", "one"]
        assert await names("sort=bytes_from&limit=1") == ["two"]
        assert await names("state=closed") == []
        assert await names("state=any&user=eve") == []
        _, body = await get(broker, "/connz?subs=detail&sort=subs")
        (detail,) = json.loads(body)["connections"][0]["subscriptions_list_detail"]
        assert (detail["subject"], detail["qgroup"], detail["msgs"]) == ("a.*", "q", 0)
        _, body = await get(broker, "/accstatz")
        (account,) = json.loads(body)["account_statz"]
        assert (account["acc"], account["conns"], account["num_subscriptions"]) == ("$G", 2, 1)


INSIDE = {"cache_hit_rate", "avg_fanout", "max_fanout", "num_inserts", "num_matches", "num_removes"}
INSIDE |= {"gomaxprocs", "gomemlimit", "stalled_clients", "default_max_consumers", "https_port"}
INSIDE |= {"in_client_msgs", "in_client_bytes", "out_client_msgs", "out_client_bytes"}
INSIDE |= {"sync_interval", "write_deadline", "tls_timeout", "waits", "waiters", "wait_time"}
INSIDE |= {"max_wait_time", "stale_connections", "clients", "routes", "gateways", "leafs", "msgs"}
OTHERS = re.compile(r"\.(sent|received)\.(routes|gateways|leafs)\.|http_req_stats")


def numbers(document: Any, path: str = "") -> set[str]:
    """The paths of all numbers and switches."""
    if isinstance(document, dict):
        return {n for key, value in document.items() for n in numbers(value, f"{path}.{key}")}
    if isinstance(document, list):
        return {n for value in document for n in numbers(value, f"{path}[]")}
    return {path} if isinstance(document, int | float) else set()


def traffic(document: Any) -> dict[str, int]:
    """The counts of messages and bytes in a page that has them once."""
    if "connections" in document and isinstance(document["connections"], list):
        (document,) = document["connections"]
    if "account_statz" in document:
        (account,) = [each for each in document["account_statz"] if each["acc"] == "$G"]
        return {
            f"{way}_{what}": account[way][what]
            for way in ("sent", "received")
            for what in ("msgs", "bytes")
        }
    return {name: document[name] for name in ("in_msgs", "out_msgs", "in_bytes", "out_bytes")}


@pytest.mark.peer
async def test_the_pages_have_the_numbers_of_nats_server(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    monitoring = peers.free_port()
    server = nats_server(flags=["-m", str(monitoring)])
    loop = asyncio.get_running_loop()

    def theirs(page: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{monitoring}{page}", timeout=5) as answer:
            return json.load(answer)

    async with (
        Broker(monitor_port=0) as broker,
        connect(broker.client_url) as one,
        connect(server.url) as other,
    ):
        for connection in (one, other):
            await connection.subscribe("a", queue="q")
            for number in range(5):
                await connection.publish("a", b"x" * number, headers={"Name": "value"})
                await connection.publish("b", b"nobody hears it")
            await connection.flush()
        for page in ("/varz", "/connz", "/accstatz?unused=1"):
            counted = [traffic(json.loads((await get(broker, page))[1]))]
            counted.append(traffic(await loop.run_in_executor(None, theirs, page)))
            assert counted[0] == counted[1], page
            assert all(count for count in counted[0].values())
        for page in (
            "/varz", "/connz?subs=detail", "/jsz", "/subsz?subs=1", "/accountz", "/accstatz",
            "/routez", "/gatewayz", "/leafz", "/healthz",
        ):  # fmt: skip
            _, ours = await get(broker, page)
            wanted = numbers(await loop.run_in_executor(None, theirs, page))
            missing = {
                path
                for path in wanted - numbers(json.loads(ours))
                if path.rpartition(".")[2] not in INSIDE and "feature_flags" not in path
            }
            assert all(OTHERS.search(path) for path in missing), (page, missing)


async def test_the_pages_count_requests_messages_and_what_the_caches_knew() -> None:
    async with Broker(monitor_port=0) as broker, connect(broker.client_url) as nc:
        await nc.subscribe("a.*", callback=lambda message: None)
        gone = await nc.subscribe("b", callback=lambda message: None)
        await gone.unsubscribe()
        for _ in range(9):
            await nc.publish("a.x", b"x")
        await nc.flush()
        await get(broker, "/subsz")
        subscriptions = json.loads((await get(broker, "/subsz"))[1])
        server = json.loads((await get(broker, "/varz"))[1])
    assert server["http_req_stats"]["/subsz"] == 2
    assert server["http_req_stats"]["/jsz"] == 0
    assert server["in_client_msgs"] == server["in_msgs"] == 9
    assert server["out_client_bytes"] == server["out_bytes"] > 0
    assert subscriptions["num_removes"] == subscriptions["num_inserts"] - 1 == 1
    assert subscriptions["num_matches"] == 9
    assert 0.5 < subscriptions["cache_hit_rate"] < 1
    assert subscriptions["num_cache"] >= 1
    assert subscriptions["max_fanout"] == 1


@pytest.mark.peer
async def test_subscriptions_are_counted_as_by_nats_server(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    """Beside those that nats-server has itself, and what it knows of subjects of its own."""
    monitoring = peers.free_port()
    server = nats_server(flags=["-m", str(monitoring)])
    loop = asyncio.get_running_loop()

    def theirs() -> Any:
        address = f"http://127.0.0.1:{monitoring}/subsz"
        with urllib.request.urlopen(address, timeout=5) as answer:
            return json.load(answer)

    async with (
        Broker(monitor_port=0) as broker,
        connect(broker.client_url) as one,
        connect(server.url) as other,
    ):
        told = []
        for connection in (one, other):
            mine = connection is one

            async def page(mine: bool = mine) -> Any:
                if mine:
                    return json.loads((await get(broker, "/subsz"))[1])
                return await loop.run_in_executor(None, theirs)

            before = await page()
            for _ in range(3):
                gone = await connection.subscribe("a.*", callback=lambda message: None)
            await connection.subscribe("a.>", queue="q", callback=lambda message: None)
            for _ in range(5):
                await connection.publish("a.x", b"")
            await connection.flush()
            after = await page()
            await gone.unsubscribe()
            await connection.flush()
            at_last = await page()
            counted = ("num_subscriptions", "num_inserts", "num_removes")
            told.append(
                [[each[name] - before[name] for name in counted] for each in (after, at_last)]
                + [after["max_fanout"]]
            )
        assert told[0] == told[1] == [[4, 4, 0], [3, 4, 1], 4]
