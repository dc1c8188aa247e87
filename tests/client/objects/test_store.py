"""Object stores: whole or not at all, read back as they were put, shared with another client."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import random
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import ObjectMeta, ObjectMetaOptions

import chaos
import peers
from headrace.api.messages import PubAck
from headrace.client import (
    JetStream,
    ObjectDamagedError,
    ObjectExistsError,
    ObjectInfo,
    ObjectLink,
    ObjectLinkError,
    ObjectNotFoundError,
    ObjectStore,
    connect,
)
from headrace.client.objects.writer import Written
from headrace.client.publish.awaited import publish_awaited
from headrace.client.publish.window import WindowPublisher
from headrace.errors import (
    ConfigurationError,
    DisconnectedError,
    JetStreamApiError,
    RequestTimeoutError,
    StreamNotFoundError,
    TimeoutUnknownError,
)
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

PUBLISH = "headrace.client.objects.descriptions.publish_awaited"
NOISE = random.Random(1).randbytes(3_000_000)


@pytest.fixture
async def store(js: JetStream) -> AsyncIterator[ObjectStore]:
    yield await js.create_object_store("FILES", storage="memory")
    with contextlib.suppress(StreamNotFoundError):  # the test deleted it
        await js.delete_object_store("FILES")
    await asyncio.get_running_loop().shutdown_default_executor()  # its threads read the files


async def chunks_of(store: ObjectStore) -> dict[str, int]:
    """How many chunks are kept, by their subject."""
    info = await store._stream.info(subjects=f"$O.{store.bucket}.C.>")
    return info.state.subjects


async def test_an_object_is_read_as_it_was_put(store: ObjectStore) -> None:
    put = await store.put(
        "reports/März 2026.csv",
        NOISE,
        description="a report",
        headers={"Type": "text/csv", "Tag": ["a", "b"]},
        metadata={"owner": "mill"},
    )
    assert (put.size, put.chunks, put.chunk_size) == (3_000_000, 23, 128 * 1024)
    assert put.digest == hashlib.sha256(NOISE).digest()
    assert await store.get("reports/März 2026.csv") == NOISE
    info = await store.info("reports/März 2026.csv")
    assert (info.description, info.metadata) == ("a report", {"owner": "mill"})
    assert info.headers == {"Type": ("text/csv",), "Tag": ("a", "b")}
    assert (info.nuid, info.revision, info.digest) == (put.nuid, put.revision, put.digest)
    assert abs(info.modified_ns - put.modified_ns) < 60e9
    async with store.open("reports/März 2026.csv") as reader:
        assert reader.info == info
        pieces = [chunk async for chunk in reader]
    assert [len(piece) for piece in pieces] == [131_072] * 22 + [116_416]


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 5000])
async def test_sizes_around_the_chunk_size(store: ObjectStore, size: int) -> None:
    info = await store.put("x", NOISE[:size], chunk_size=1000)
    assert (info.size, info.chunks) == (size, -(-size // 1000))
    assert await store.get("x") == NOISE[:size]


async def test_content_comes_from_files_and_iterables(store: ObjectStore, tmp_path: Path) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        for at in range(0, 10_000, 700):
            yield NOISE[at : at + 700]
            await asyncio.sleep(0)

    def pieces() -> Iterator[bytes]:
        yield NOISE[:10]
        yield bytearray(NOISE[10:10_500])  # type: ignore[misc]
        yield memoryview(NOISE[10_500:20_000])  # type: ignore[misc]

    await store.put("stream", slowly(), chunk_size=1024)
    assert await store.get("stream") == NOISE[:10_500]
    await store.put("pieces", pieces(), chunk_size=4096)
    assert await store.get("pieces") == NOISE[:20_000]
    await store.put("file", io.BytesIO(NOISE))
    path = tmp_path / "big.bin"
    path.write_bytes(NOISE)
    assert (await store.put_file("path", path)).digest == (await store.info("file")).digest
    assert (await store.get_file("path", tmp_path / "copy.bin")).name == "path"
    assert (tmp_path / "copy.bin").read_bytes() == NOISE
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["big.bin", "copy.bin"]


async def test_pieces_of_any_size_can_be_read(store: ObjectStore) -> None:
    await store.put("x", NOISE[:10_000], chunk_size=1000)
    async with store.open("x") as reader:
        assert await reader.read(10) == NOISE[:10]
        assert await reader.read(2500) == NOISE[10:2510]
        assert await anext(reader) == NOISE[2510:3000]
        assert await reader.read(0) == b""
        assert await reader.read() == NOISE[3000:10_000]
        assert await reader.read() == await reader.read(5) == b""


async def test_what_was_replaced_or_deleted_leaves_nothing_behind(store: ObjectStore) -> None:
    await store.put("x", NOISE[:5000], chunk_size=1000)
    await store.put("x", b"short")
    assert await store.get("x") == b"short"
    assert list((await chunks_of(store)).values()) == [1]
    await store.delete("x")
    assert await chunks_of(store) == {}
    with pytest.raises(ObjectNotFoundError, match="'FILES' has no object 'x'"):
        await store.get("x")
    mark = await store.info("x", include_deleted=True)
    assert (mark.deleted, mark.size, mark.chunks, mark.digest) == (True, 0, 0, b"")
    await store.delete("x")  # again: nothing happens
    with pytest.raises(ObjectNotFoundError):
        await store.delete("never")
    await store.put("x", b"again")
    assert await store.get("x") == b"again"


async def test_of_many_puts_of_one_name_one_stays_whole(store: ObjectStore) -> None:
    await asyncio.gather(*(store.put("x", NOISE[:n], chunk_size=1000) for n in range(5000, 5008)))
    content = await store.get("x")
    assert content == NOISE[: len(content)]
    assert list((await chunks_of(store)).values()) == [-(-len(content) // 1000)]


async def test_a_put_that_fails_leaves_nothing_behind(store: ObjectStore) -> None:
    await store.put("x", b"before")

    async def breaks() -> AsyncIterator[bytes]:
        yield NOISE[:100_000]
        raise OSError("the source is gone")

    async def hangs() -> AsyncIterator[bytes]:
        yield NOISE[:100_000]
        reached.set()
        await asyncio.Event().wait()

    with pytest.raises(OSError, match="the source is gone"):
        await store.put("x", breaks(), chunk_size=1000)
    with pytest.raises(ConfigurationError, match="bytes, and str came"):
        await store.put("x", ["text"])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="cannot be int"):
        await store.put("x", 5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="chunk_size"):
        await store.put("x", b"", chunk_size=0)
    with pytest.raises(ConfigurationError, match="needs a name"):
        await store.put("", b"")
    reached = asyncio.Event()
    putting = asyncio.ensure_future(store.put("x", hangs(), chunk_size=1000))
    await reached.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert await store.get("x") == b"before"
    assert list((await chunks_of(store)).values()) == [1]


async def test_a_full_bucket_refuses_and_keeps_what_it_has(js: JetStream) -> None:
    store = await js.create_object_store("SMALL", storage="memory", max_bytes=100_000)
    await store.put("x", NOISE[:1000])
    with pytest.raises(JetStreamApiError, match="maximum bytes exceeded"):
        await store.put("y", NOISE, chunk_size=10_000)
    assert [info.name for info in await store.list()] == ["x"]
    assert list((await chunks_of(store)).values()) == [1]
    await js.delete_object_store("SMALL")


async def test_damage_is_noticed(store: ObjectStore, js: JetStream) -> None:
    info = await store.put("x", NOISE[:5000], chunk_size=1000)
    last = (await store._stream.info()).state.last_seq
    await store._stream.delete_message(last - 2)
    with pytest.raises(ObjectDamagedError, match="4 of its 5 chunks"):
        await store.get("x")
    await js.publish(f"$O.FILES.C.{info.nuid}", NOISE[:1000])
    with pytest.raises(ObjectDamagedError, match="SHA-256"):
        await store.get("x")
    one = await store.put("one", b"1")
    await store._stream.purge(subject=f"$O.FILES.C.{one.nuid}")
    with pytest.raises(ObjectDamagedError, match="0 of its 1 chunks"):
        await store.get("one")
    await js.publish("$O.FILES.M.eA==", b"[]")
    with pytest.raises(ObjectDamagedError, match="does not describe an object"):
        await store.get("x")


async def test_reading_notices_a_replacement(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.client.objects.reader.SILENCE_S", 0.1)
    monkeypatch.setattr("headrace.client.objects.reader.BUFFER_BYTES", 1)
    await store.put("x", NOISE[:100_000], chunk_size=1000)
    async with store.open("x") as reader:
        await anext(reader)
        await store.put("x", b"new")
        with pytest.raises(ObjectDamagedError, match="replaced or deleted while it was read"):
            await reader.read()


async def test_a_reading_can_be_given_up(store: ObjectStore) -> None:
    await store.put("x", NOISE, chunk_size=1000)
    unread = 0
    for turns in range(0, 40, 4):
        told: list[object] = []
        getting = asyncio.ensure_future(store.get("x", progress=told.append))
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        getting.cancel()
        await asyncio.wait([getting])
        unread += not told
    async with store.open("x") as reader:
        await anext(reader)
        await reader.close()
        assert [chunk async for chunk in reader] == []
    with pytest.raises(ConfigurationError, match="inside `async with"):
        await store.open("x").read()
    consumers = [name async for name in store._stream.consumer_names()]
    assert len(consumers) <= unread  # one whose creation was under way goes by itself


async def test_a_failed_download_leaves_no_file(store: ObjectStore, tmp_path: Path) -> None:
    await store.put("x", NOISE[:5000], chunk_size=1000)
    (tmp_path / "x").write_bytes(b"old")
    await store._stream.delete_message(2)
    with pytest.raises(ObjectDamagedError):
        await store.get_file("x", tmp_path / "x")
    with pytest.raises(ObjectNotFoundError):
        await store.get_file("y", tmp_path / "y")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("x", b"old")]


async def test_what_a_dead_program_left_is_removed(store: ObjectStore, js: JetStream) -> None:
    await store.put("x", NOISE[:5000], chunk_size=1000)
    await store.put("gone", b"1")
    await store.delete("gone")
    for number in range(3):
        await js.publish(f"$O.FILES.C.left{number % 2}", b"chunk")
    assert await store.remove_leftovers() == 0  # they may belong to a put under way
    assert len(await chunks_of(store)) == 3
    assert await store.remove_leftovers(older_than=0) == 2
    assert list((await chunks_of(store)).values()) == [5]
    assert await store.get("x") == NOISE[:5000]


async def test_objects_are_described_anew_and_renamed(store: ObjectStore) -> None:
    await store.put("a", NOISE[:2000], chunk_size=1000, metadata={"k": "v"})
    await store.put("b", b"b")
    await store.update_meta("a", description="first", headers={"H": "1"})
    info = await store.info("a")
    assert (info.description, info.headers, info.metadata) == ("first", {"H": ("1",)}, {"k": "v"})
    with pytest.raises(ObjectExistsError, match="'b'"):
        await store.update_meta("a", new_name="b")
    assert (await store.update_meta("a", new_name="c")).name == "c"
    assert await store.get("c") == NOISE[:2000]
    with pytest.raises(ObjectNotFoundError):
        await store.update_meta("a", description="x")
    await store.delete("b")
    await store.update_meta("c", new_name="b")  # a deleted name is free
    assert [info.name for info in await store.list()] == ["b"]


async def test_links_lead_to_objects_and_buckets(js: JetStream, store: ObjectStore) -> None:
    target = await store.put("target", b"content")
    link = await store.add_link("link", target)
    assert link.link == ObjectLink("FILES", "target")
    assert await store.get("link") == b"content"
    async with store.open("link") as reader:
        assert reader.info.name == "target"
    with pytest.raises(ObjectLinkError, match="a link itself"):
        await store.add_link("x", link)
    with pytest.raises(ObjectExistsError):
        await store.add_link("target", target)
    other = await js.create_object_store("OTHER", storage="memory")
    await other.add_link("far", target)
    assert await other.get("far") == b"content"
    await other.add_bucket_link("all", "FILES")
    with pytest.raises(ObjectLinkError, match="whole bucket 'FILES'"):
        await other.get("all")
    await store.delete("target")
    with pytest.raises(ObjectLinkError, match="was deleted"):
        await store.add_link("x", await store.info("target", include_deleted=True))
    with pytest.raises(ObjectNotFoundError, match="'target'"):
        await other.get("far")
    await store.add_link("target", await other.put("back", b""))
    await other.add_link("back2", ObjectInfo("FILES", "target"))
    await other.delete("back")
    await other.add_link("back", ObjectInfo("FILES", "target"))
    with pytest.raises(ObjectLinkError, match="circle"):
        await other.get("back2")
    await js.delete_object_store("OTHER")


async def test_a_watch_tells_of_every_change(store: ObjectStore) -> None:
    await store.put("a", b"1")
    await store.put("b", b"2")
    await store.delete("b")
    assert [info.name for info in await store.list()] == ["a"]
    assert [info.name for info in await store.list(include_deleted=True)] == ["a", "b"]
    async with asyncio.timeout(10), await store.watch() as watch:
        assert [(i.name, i.deleted) async for i in watch.initial()] == [("a", False), ("b", True)]
        await store.put("c", b"3")
        info = await anext(watch)
        assert (info.name, info.size, info.modified_ns > 0) == ("c", 1, True)
    async with asyncio.timeout(10), await store.watch(updates_only=True, ignore_deletes=True) as w:
        assert [info async for info in w.initial()] == []
        await store.delete("a")
        await store.put("d", b"4")
        assert (await anext(w)).name == "d"


async def test_objects_that_are_there_all_the_time_are_listed_once_whatever_is_put_meanwhile(
    store: ObjectStore,
) -> None:
    for name in ("a", "b", "c"):
        await store.put(name, b"1")
    async with asyncio.timeout(10), await store.watch() as watch:
        await store.put("x", b"new")
        await store.put("a", b"23")
        there = {info.name: info.size async for info in watch.initial()}
        assert there == {"a": 2, "b": 1, "c": 1, "x": 3}

    async def write() -> None:
        while True:
            for name in ("a", "b", "x"):
                await store.put(name, b"4")
            await store.delete("x")

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        writers = [group.create_task(write()) for _ in range(2)]
        for _ in range(15):
            names = [info.name for info in await store.list()]
            assert len(names) == len(set(names))
            assert set(names) >= {"a", "b", "c"}
        for writer in writers:
            writer.cancel()


async def test_a_sealed_bucket_cannot_be_changed(js: JetStream, store: ObjectStore) -> None:
    await store.put("x", NOISE[:2000], chunk_size=1000)
    status = await store.status()
    assert (status.bucket, status.storage, status.sealed, status.ttl) == (
        "FILES", "memory", False, 0.0,
    )  # fmt: skip
    assert status.size > 2000
    await store.seal()
    assert (await store.status()).sealed
    with pytest.raises(JetStreamApiError, match="sealed"):
        await store.put("x", b"new")
    with pytest.raises(JetStreamApiError, match="sealed"):
        await store.delete("x")
    assert await store.get("x") == NOISE[:2000]


async def test_buckets_are_created_changed_listed_and_deleted(js: JetStream) -> None:
    await js.create_object_store("ONE", storage="memory", description="first")
    with pytest.raises(JetStreamApiError, match="different configuration"):
        await js.create_object_store("ONE", storage="memory")
    await js.update_object_store("ONE", storage="memory", ttl=3600)
    await js.create_or_update_object_store("ONE", storage="memory", ttl=1800)
    assert (await (await js.object_store("ONE")).status()).ttl == 1800
    assert "ONE" in [name async for name in js.object_stores()]
    assert "ONE" in [status.bucket async for status in js.object_store_statuses()]
    await js.delete_object_store("ONE")
    with pytest.raises(JetStreamApiError, match="stream not found"):
        await js.object_store("ONE")
    with pytest.raises(ConfigurationError, match=r"bucket name 'a\.b'"):
        await js.create_object_store("a.b")
    with pytest.raises(ConfigurationError, match="no option tl; it has"):
        await js.create_object_store("ONE", tl=5)  # type: ignore[call-arg]


async def test_another_client_shares_the_bucket(
    store: ObjectStore, reference_server: peers.ServerProcess
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        other = await nats.connect(reference_server.url)
        stack.push_async_callback(other.close)
        theirs = await other.jetstream().object_store("FILES")
        await theirs.put(
            "theirs",
            NOISE[:300_000],
            ObjectMeta(
                description="from there",
                headers={"K": "v"},
                options=ObjectMetaOptions(max_chunk_size=10_000),
            ),
        )
        info = await store.info("theirs")
        assert (info.size, info.chunks, info.chunk_size) == (300_000, 30, 10_000)
        assert (info.description, info.headers) == ("from there", {"K": ("v",)})
        assert await store.get("theirs") == NOISE[:300_000]
        ours = await store.put("ours", NOISE[:300_000], description="from here", chunk_size=10_000)
        seen = await theirs.get_info("ours")
        assert (seen.size, seen.chunks, seen.nuid) == (300_000, 30, ours.nuid)
        assert (await theirs.get("ours")).data == NOISE[:300_000]
        assert sorted(one.name for one in await theirs.list()) == ["ours", "theirs"]
        await theirs.delete("ours")
        with pytest.raises(ObjectNotFoundError):
            await store.get("ours")
        await store.put("theirs", b"replaced from here")
        assert len(await chunks_of(store)) == 1


async def test_whatever_happens_to_the_connection_objects_stay_whole(
    js: JetStream, store: ObjectStore, reference_server: peers.ServerProcess
) -> None:
    """Cut while putting: each put is there whole, or has failed and left the older one."""
    outcomes = []
    async with (
        chaos.ChaosProxy(
            reference_server.host, reference_server.port, reference_server.scheme
        ) as proxy,
        connect(proxy.url, reconnect_wait=0.01, on_event=lambda event: None) as connection,
    ):
        far = await connection.jetstream().object_store("FILES")
        before = b""
        for number in range(12):
            content = bytes([number]) * 400_000

            async def cut(content: bytes = content, number: int = number) -> AsyncIterator[bytes]:
                for at in range(0, len(content), 10_000):
                    if number % 3 and at == 30_000 * number:
                        proxy.reset()
                    yield content[at : at + 10_000]

            try:
                await far.put("x", cut(), chunk_size=10_000)
            except (DisconnectedError, RequestTimeoutError):
                outcomes.append("failed")
            else:
                outcomes.append("stored")
                before = content
            assert await store.get("x") == before
        assert await far.get("x") == before
    assert {"failed", "stored"} == set(outcomes)
    assert list((await chunks_of(store)).values()) == [40]


async def test_an_answer_that_was_lost_is_looked_for(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("x", b"old")
    publish, answers = publish_awaited, iter([DisconnectedError("lost"), None])

    async def loses(*args: Any, **keywords: Any) -> PubAck:
        ack = await publish(*args, **keywords)
        if (error := next(answers)) is not None:
            raise error
        return ack

    monkeypatch.setattr(PUBLISH, loses)
    info = await store.put("x", b"new")
    assert await store.info("x") == info
    assert await store.get("x") == b"new"
    assert list((await chunks_of(store)).values()) == [1]


async def test_when_no_answer_comes_at_all_the_content_stays(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*args: Any, **keywords: Any) -> PubAck:
        raise TimeoutUnknownError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(PUBLISH, never)
        with pytest.raises(RequestTimeoutError) as caught:
            await store.put("x", b"1")
    assert "may be stored or not" in caught.value.__notes__[0]
    assert list((await chunks_of(store)).values()) == [1]


async def test_the_next_put_removes_what_an_unanswered_one_left(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = publish_awaited

    async def lost(*args: Any, **keywords: Any) -> PubAck:
        raise TimeoutUnknownError("no answer")

    async def lost_and_stored(*args: Any, **keywords: Any) -> PubAck:
        await publish(*args, **keywords)
        raise TimeoutUnknownError("no answer")

    async def mute(name: str) -> None:
        raise TimeoutUnknownError("no answer to a read")

    await store.put("x", b"old")
    for fate in (lost, lost_and_stored):
        with monkeypatch.context() as patched, pytest.raises(TimeoutUnknownError) as caught:
            patched.setattr(PUBLISH, fate)
            if fate is lost_and_stored:  # and nobody can see it
                last, reads = store._descriptions.last, iter([True])

                async def once(name: str, last: Any = last, reads: Any = reads) -> Any:
                    return await last(name) if next(reads, False) else await mute(name)

                patched.setattr(store._descriptions, "last", once)
            await store.put("x", b"unknown")
        assert "the next put of it over this connection" in caught.value.__notes__[0]
    assert len(await chunks_of(store)) == 3  # the old one's too
    await store.put("y", b"another")
    assert await store.get("x") == b"unknown"
    assert len(await chunks_of(store)) == 4  # who knows what may come yet
    await store.put("x", b"new")
    assert await store.get("x") == b"new"
    assert await store.get("y") == b"another"
    assert len(await chunks_of(store)) == 2
    assert len(store._leftovers) == 0


async def test_time_settles_what_an_unanswered_put_left(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*args: Any, **keywords: Any) -> PubAck:
        raise TimeoutUnknownError("no answer")

    with monkeypatch.context() as patched, pytest.raises(TimeoutUnknownError):
        patched.setattr(PUBLISH, lost)
        await store.put("x", b"unknown")
    monkeypatch.setattr("headrace.client.objects.writer.SETTLED_S", 0.0)
    await store.put("y", b"another")
    assert list((await chunks_of(store)).values()) == [1]


@pytest.mark.parametrize("end", ["lost", "cancelled"])
async def test_the_next_put_removes_what_could_not_be_removed_while_the_server_was_away(
    end: str, store: ObjectStore, reference_server: peers.ServerProcess
) -> None:
    async with (
        chaos.ChaosProxy(
            reference_server.host, reference_server.port, reference_server.scheme
        ) as proxy,
        connect(proxy.url, reconnect_wait=0.01) as connection,
    ):
        far = await connection.jetstream(timeout=0.1).object_store("FILES")
        may_end = asyncio.Event()

        async def content() -> AsyncIterator[bytes]:
            for number in range(20):
                yield bytes([number]) * 1000
            await until_stored(store, 20)
            await proxy.go_away()
            await until(lambda: not connection.is_connected)
            if end == "cancelled":
                await may_end.wait()
            yield b"more"

        putting = asyncio.ensure_future(far.put("x", content(), chunk_size=1000))
        if end == "cancelled":
            await until(lambda: proxy.accepted and not connection.is_connected)
            putting.cancel()
        await asyncio.wait([putting], timeout=5)
        assert putting.done()
        await proxy.come_back()
        await until(lambda: connection.is_connected)
        assert sum((await chunks_of(store)).values()) == 20
        await far.put("y", b"1")
        assert list((await chunks_of(store)).values()) == [1]


async def until_stored(store: ObjectStore, chunks: int) -> None:
    async def are_there() -> bool:
        return sum((await chunks_of(store)).values()) >= chunks

    await until(are_there)


async def test_a_killed_server_comes_back_with_whole_objects(
    headrace_server: Callable[..., peers.ServerProcess],
) -> None:
    server = headrace_server()
    stored = b""
    async with connect(server.url, reconnect_wait=0.02, reconnect_wait_max=0.05) as connection:
        store = await connection.jetstream().create_object_store("FILES")
        for number in range(1, 3):
            content = bytes([number]) * 3_000_000
            putting = asyncio.ensure_future(store.put("x", content, chunk_size=10_000))
            await asyncio.sleep(0.01 * number)
            server.kill()
            server.start_again()
            try:
                await putting
            except (DisconnectedError, RequestTimeoutError):
                assert await store.get("x") == stored if stored else True
            else:
                stored = content
            while connection.reconnects < number:  # a put may end before the client knows
                await asyncio.wait_for(anext(connection.events()), 5)
            await store.put("x", content)
            stored = content
            assert await store.get("x") == stored
        # What a kill left there, of what was replaced, or put and not answered, the next put removed.
        assert list((await chunks_of(store)).values()) == [23]


async def flush_after_an_election(publisher: WindowPublisher[bytes]) -> None:
    await publisher.flush()
    publisher._recovery.count = 1


@pytest.mark.parametrize(
    "make", [lambda: NOISE, lambda: io.BytesIO(NOISE)], ids=["bytes", "a file"]
)
async def test_content_that_arrived_in_another_order_is_stored_again(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, make: Callable[[], bytes | io.BytesIO]
) -> None:
    compared: list[str] = []

    async def compare(stream: object, subject: str, written: Written) -> None:
        compared.append(subject)
        if len(compared) < 3:
            raise ObjectDamagedError("another order")

    monkeypatch.setattr("headrace.client.objects.writer._compare", compare)
    monkeypatch.setattr("headrace.client.objects.writer._flush", flush_after_an_election)
    put = await store.put("x", make())
    assert await store.get("x") == NOISE
    assert len(set(compared)) == 3
    assert compared[-1].endswith(put.nuid)
    assert await chunks_of(store) == {compared[-1]: put.chunks}


async def test_content_that_can_be_read_only_once_is_not_stored_again(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def compare(*_: object) -> None:
        raise ObjectDamagedError("another order")

    monkeypatch.setattr("headrace.client.objects.writer._compare", compare)
    monkeypatch.setattr("headrace.client.objects.writer._flush", flush_after_an_election)
    with pytest.raises(ObjectDamagedError, match="another order"):
        await store.put("x", iter([NOISE]))
    assert await chunks_of(store) == {}
