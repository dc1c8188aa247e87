"""What clients with partitioned consumer groups ask of a server, call by call, on ours and nats-server.

A static group reads the partitions of a stream that numbers its subjects itself; an elastic one reads a
work queue that copies a stream and numbers the subjects on the way. Each member's consumer pins one of
the instances that pull for it.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from headrace.transforms import partition
from waiting import until

SECOND = 1_000_000_000
KEYS = {
    "subjects": ["$KV.groups.>"],
    "max_msgs_per_subject": 1,
    "discard": "new",
    "allow_direct": True,
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "duplicate_window": 120 * SECOND,
}
MEMBER = {
    "ack_policy": "explicit",
    "ack_wait": SECOND,
    "max_ack_pending": 1,
    "priority_groups": ["PCG"],
    "priority_policy": "pinned_client",
    "priority_timeout": SECOND,
}


async def ask(connection: Client, call: str, body: Any = None) -> dict[str, Any]:
    payload = b"" if body is None else json.dumps(body).encode()
    reply = await connection.request(f"$JS.API.{call}", payload, timeout=3)
    answer: dict[str, Any] = json.loads(reply.data)
    return answer


async def refused(connection: Client, call: str, body: Any = None) -> int:
    error = (await ask(connection, call, body))["error"]
    return int(error["err_code"])


async def create(connection: Client, name: str, **config: Any) -> dict[str, Any]:
    answer = await ask(connection, f"STREAM.CREATE.{name}", {"name": name, **config})
    assert "error" not in answer, answer
    return answer


async def join(connection: Client, stream: str, name: str, /, **config: Any) -> dict[str, Any]:
    """What a member does to become one: create its consumer, or find it as it is."""
    body = {"stream_name": stream, "config": {**MEMBER, **config}, "action": "create"}
    return await ask(connection, f"CONSUMER.CREATE.{stream}.{name}", body)


class Instance:
    """One client that pulls for a member."""

    def __init__(self, connection: Client, stream: str, name: str, inbox: Subscription) -> None:
        self._connection, self._inbox = connection, inbox
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
        self._subject = inbox.subject
        self.pin = ""

    @classmethod
    async def of(cls, connection: Client, stream: str, name: str) -> Instance:
        inbox = await connection.subscribe(connection.new_inbox())
        return cls(connection, stream, name, inbox)

    async def pull(self, batch: int = 1) -> None:
        body = {"batch": batch, "expires": 20 * SECOND, "group": "PCG", "id": self.pin}
        await self._connection.publish(self._next, json.dumps(body).encode(), reply=self._subject)
        await self._connection.flush()

    async def next(self, timeout: float = 3) -> Msg:
        message = await self._inbox.next_msg(timeout=timeout)
        assert message.headers is not None
        self.pin = message.headers.get("Nats-Pin-Id", self.pin)
        return message

    async def work(self, count: int) -> list[str]:
        """Pull and acknowledge so many messages, one by one, as with one ack pending."""
        subjects: list[str] = []
        await self.pull(count)
        while len(subjects) < count:
            message = await self.next()
            if message.headers and (status := message.headers.get("Status")) in ("423", "503"):
                if status == "423":
                    self.pin = ""  # it was quiet for longer than the pin lasts
                # 503: made a moment ago, a consumer of a busy nats-server does not hear yet.
                await self.pull(count - len(subjects))
                continue
            await message.ack_sync(timeout=3)
            subjects.append(message.subject)
        return subjects


async def test_the_account_and_what_is_missing(connection: Client) -> None:
    account = await ask(connection, "INFO")
    assert {"memory", "storage", "streams", "consumers", "limits", "api"} <= account.keys()
    assert await refused(connection, "STREAM.INFO.NONE") == 10059
    assert await refused(connection, "CONSUMER.INFO.NONE.C") == 10059
    await create(connection, "S", subjects=["s.>"])
    assert await refused(connection, "CONSUMER.INFO.S.C") == 10014
    assert await refused(connection, "CONSUMER.DELETE.S.C") == 10014
    assert await refused(connection, "CONSUMER.UNPIN.S.C", {"group": "PCG"}) == 10014
    other = {"name": "S", "subjects": ["t.>"]}
    assert await refused(connection, "STREAM.CREATE.S", other) == 10058


async def test_the_configuration_lives_in_a_bucket(connection: Client) -> None:
    """Get, put, compare and set, delete, and a watch of one key, as the members do them."""
    await create(connection, "KV_groups", **KEYS)
    js = connection.jetstream()
    kv = await js.key_value("groups")
    watcher = await kv.watch("S.group")
    assert await watcher.updates(timeout=3) is None
    first = await kv.put("S.group", b'{"max_members":3}')
    reply = await connection.request("$JS.API.DIRECT.GET.KV_groups.$KV.groups.S.group", timeout=3)
    assert reply.headers is not None
    assert (reply.data, reply.headers["Nats-Sequence"]) == (b'{"max_members":3}', str(first))
    assert await kv.update("S.group", b'{"members":["m1"]}', last=first) > first
    with pytest.raises(Exception, match="wrong last sequence"):
        await kv.update("S.group", b"late", last=first)
    await kv.delete("S.group")
    seen = [await watcher.updates(timeout=3) for _ in range(3)]
    assert [(entry.value, entry.operation) for entry in seen] == [
        (b'{"max_members":3}', None),
        (b'{"members":["m1"]}', None),
        (b"", "DEL"),
    ]
    await watcher.stop()


async def test_a_static_member_reads_its_partitions(connection: Client) -> None:
    transform = {"src": "foo.*", "dest": "{{partition(2,1)}}.foo.{{wildcard(1)}}"}
    await create(connection, "S", subjects=["foo.*"], subject_transform=transform)
    js = connection.jetstream()
    keys = [f"k{number}" for number in range(12)]
    for key in keys:
        await js.publish(f"foo.{key}", key.encode())
    owned = {number: [k for k in keys if partition(k.encode(), 2) == number] for number in (0, 1)}
    for number, member in enumerate(("m1", "m2")):
        config = {"durable_name": f"G-{member}", "filter_subjects": [f"{number}.foo.*"]}
        created = await join(connection, "S", f"G-{member}", **config)
        assert created["num_pending"] == len(owned[number])
        again = await join(connection, "S", f"G-{member}", **config)
        assert "error" not in again
        wider = await join(connection, "S", f"G-{member}", **{**config, "ack_wait": 2 * SECOND})
        assert wider["error"]["err_code"] == 10148
        instance = await Instance.of(connection, "S", f"G-{member}")
        subjects = await instance.work(len(owned[number]))
        assert subjects == [f"{number}.foo.{key}" for key in owned[number]]
        await instance.pull()
    waiting: dict[str, int] = {}
    async with asyncio.timeout(5):
        while waiting != {"G-m1": 1, "G-m2": 1}:  # nats-server takes a pull in its own time
            listed = (await ask(connection, "CONSUMER.LIST.S"))["consumers"]
            waiting = {info["name"]: info["num_waiting"] for info in listed}
    duplicate = {"durable_name": "G-m3", "filter_subjects": ["0.>", "0.>"]}
    assert (await join(connection, "S", "G-m3", **duplicate))["error"]["err_code"] == 10138


async def test_an_elastic_group_shares_a_work_queue(connection: Client) -> None:
    await create(connection, "S", subjects=["foo.*", "bad.*"])
    transforms = [{"src": "foo.*", "dest": "{{Partition(2,1)}}.foo.{{Wildcard(1)}}"}]
    await create(
        connection,
        "S-group",
        retention="workqueue",
        discard="new",
        max_msgs=15,
        allow_direct=True,
        sources=[{"name": "S", "subject_transforms": transforms}],
    )
    js = connection.jetstream()
    for number in range(20):
        await js.publish(f"foo.k{number}", b"x")
        await js.publish(f"bad.k{number}", b"x")
    one = {"name": "m1", "filter_subjects": ["0.>", "1.>"], "inactive_threshold": 2 * SECOND}
    assert "error" not in await join(connection, "S-group", "m1", **one)
    assert "error" not in await join(connection, "S-group", "m1", **one), "it is there already"
    two = {"name": "m2", "filter_subjects": ["1.>"], "inactive_threshold": 2 * SECOND}
    assert (await join(connection, "S-group", "m2", **two))["error"]["err_code"] == 10100
    fewer = {**one, "filter_subjects": ["0.>"]}
    assert (await join(connection, "S-group", "m1", **fewer))["error"]["err_code"] == 10148
    instance = await Instance.of(connection, "S-group", "m1")
    expected = [f"{partition(b'k%d' % number, 2)}.foo.k{number}" for number in range(20)]
    assert await instance.work(10) == expected[:10], "a full queue refills as it empties"
    await ask(connection, "CONSUMER.DELETE.S-group.m1")
    assert "error" not in await join(connection, "S-group", "m1", **fewer)
    assert "error" not in await join(connection, "S-group", "m2", **two)
    members = [await Instance.of(connection, "S-group", member) for member in ("m1", "m2")]
    shares = [[s for s in expected[10:] if s.startswith(f"{number}.")] for number in (0, 1)]
    working = [member.work(len(share)) for member, share in zip(members, shares, strict=True)]
    assert await asyncio.gather(*working) == shares
    info = await ask(connection, "STREAM.INFO.S-group")
    assert info["state"]["messages"] == 0


async def test_one_instance_is_pinned_and_steps_down(connection: Client) -> None:
    await create(connection, "S", subjects=["0.>"], retention="workqueue")
    await join(connection, "S", "m1", name="m1", filter_subjects=["0.>"], inactive_threshold=SECOND)
    first = await Instance.of(connection, "S", "m1")
    second = await Instance.of(connection, "S", "m1")
    await first.pull(5)
    await second.pull(5)
    js = connection.jetstream()
    await js.publish("0.a", b"1")
    message = await first.next()
    await message.ack_sync(timeout=3)
    (group,) = (await ask(connection, "CONSUMER.INFO.S.m1"))["priority_groups"]
    assert (group["group"], group["pinned_client_id"]) == ("PCG", first.pin)
    assert first.pin
    assert "error" not in await ask(connection, "CONSUMER.UNPIN.S.m1", {"group": "PCG"})
    await js.publish("0.b", b"2")
    message = await second.next()
    await message.ack_sync(timeout=3)
    assert message.data == b"2"
    assert second.pin
    assert second.pin != first.pin
    await js.publish("0.c", b"3")
    stale = await first.next()
    assert stale.headers is not None
    assert stale.headers["Status"] == "423"
    assert (await second.next()).data == b"3"
    await ask(connection, "CONSUMER.DELETE.S.m1")
    gone = await second.next()
    assert gone.headers is not None
    assert (gone.headers["Status"], gone.headers["Description"]) == ("409", "Consumer Deleted")


async def test_a_member_that_went_away_is_forgotten(connection: Client) -> None:
    await create(connection, "S", subjects=["0.>"], retention="workqueue")
    config = {"name": "m1", "filter_subjects": ["0.>"], "inactive_threshold": SECOND // 10}
    await join(connection, "S", "m1", **config)

    async def is_gone() -> bool:
        return "error" in await ask(connection, "CONSUMER.INFO.S.m1")

    await until(is_gone, "the member stays")
    assert "error" not in await join(connection, "S", "m2", **{**config, "name": "m2"})
