"""Calls that take long, waited for with how far they are: on both clients, on both servers."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import peers
from headrace import ConfigurationError, ObjectNotFoundError, TransferProgress, long_call, sync
from headrace.client import JetStream, ObjectStore

SIZE = 700_000
CONTENT = bytes(range(256)) * (SIZE // 256)


@pytest.fixture
async def store(js: JetStream) -> AsyncIterator[ObjectStore]:
    yield await js.create_object_store("LONG")
    await js.delete_object_store("LONG")


async def test_a_backup_says_how_far_it_is_and_then_what_it_is(
    store: ObjectStore, js: JetStream, tmp_path: Path
) -> None:
    await store.put("a", CONTENT)
    call = long_call((await js.stream("OBJ_LONG")).backup, tmp_path / "backup", check=True)
    assert (call.progress, call.percent, call.done()) == (None, None, False)
    seen = [now async for now in call]
    sizes = [now.nbytes for now in seen]
    assert sizes == sorted(set(sizes)) and call.done()
    assert seen[-1] is call.progress and call.percent == seen[-1].percent
    backup = await call
    assert (backup.nbytes, backup.config.name) == (sizes[-1], "OBJ_LONG")
    assert [now async for now in call] == [seen[-1]]  # who asks late sees the last
    assert repr(call) == "<LongCall of 'backup', done>"


async def test_an_object_is_put_and_read_so_and_ones_own_function_is_called_too(
    store: ObjectStore,
) -> None:
    told: list[TransferProgress] = []
    putting = long_call(store.put, "a", CONTENT, progress=told.append)
    seen = [now async for now in putting]
    assert (await putting).size == len(CONTENT)
    assert seen[-1].percent == 100.0 and set(seen) <= set(told)
    assert await long_call(store.get, "a") == CONTENT


async def test_what_a_call_raises_is_raised_to_each_who_waits(store: ObjectStore) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield CONTENT
        raise KeyError("no more")

    call = long_call(store.put, "a", pieces())
    with pytest.raises(KeyError, match="no more"):
        async for _ in call:
            pass
    with pytest.raises(KeyError, match="no more"):
        await call
    assert await store.list() == []


@pytest.mark.parametrize("is_iterated", [True, False])
async def test_who_waits_and_is_cancelled_cancels_the_call_and_nothing_is_left(
    store: ObjectStore, is_iterated: bool
) -> None:
    begun = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield CONTENT
        begun.set()
        await asyncio.Event().wait()

    call = long_call(store.put, "a", pieces())

    async def wait() -> None:
        if is_iterated:
            async for _ in call:
                pass
        await call

    waiting = asyncio.create_task(wait())
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(asyncio.CancelledError):
        await call
    assert call.done() and (await store.status()).size == 0


async def test_who_leaves_the_loop_lets_the_call_go_on(store: ObjectStore) -> None:
    call = long_call(store.put, "a", CONTENT)
    async for _ in call:
        break
    assert (await call).size == len(CONTENT)


async def test_a_call_is_cancelled_from_outside(store: ObjectStore) -> None:
    call = long_call(store.put, "a", CONTENT)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_call_that_does_not_tell_is_refused(js: JetStream) -> None:
    stream = await js.create_stream(name="S", subjects=["s"])
    try:
        with pytest.raises(ConfigurationError, match=r"Stream\.purge does not tell how far it is"):
            long_call(stream.purge)
    finally:
        await stream.delete()


@pytest.mark.peer
def test_the_blocking_twin_backs_up_and_restores(
    reference_server: peers.ServerProcess, tmp_path: Path
) -> None:
    with sync.connect(reference_server.url) as connection:
        js = connection.jetstream()
        stream = js.create_stream(name="TWIN", subjects=["twin"])
        for _ in range(20):
            js.publish("twin", CONTENT[:50_000])
        backing = sync.long_call(stream.backup, tmp_path / "backup")
        sizes = [now.nbytes for now in backing]
        assert sizes and backing.done() and backing.percent is not None
        backup = backing.result()
        assert (backup.nbytes, backup.state.messages) == (sizes[-1], 20)
        js.delete_stream("TWIN")
        restoring = sync.long_call(js.restore_stream, tmp_path / "backup")
        assert [now.percent for now in restoring][-1] == 100.0
        restored = restoring.result()
        assert isinstance(restored, sync.Stream)
        assert restored.get_message(20).payload == CONTENT[:50_000]
        js.delete_stream("TWIN")


@pytest.mark.peer
def test_the_blocking_twin_raises_and_is_cancelled(reference_server: peers.ServerProcess) -> None:
    with sync.connect(reference_server.url) as connection:
        store = connection.jetstream().create_object_store("TWIN")
        assert sync.long_call(store.put, "a", CONTENT).result().size == len(CONTENT)
        call = sync.long_call(store.get, "nope")
        with pytest.raises(ObjectNotFoundError):
            list(call)
        with pytest.raises(ObjectNotFoundError):
            call.result()
        cancelled = sync.long_call(store.put, "b", CONTENT * 20)
        cancelled.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            cancelled.result()
        with pytest.raises(concurrent.futures.CancelledError):
            list(cancelled)
        assert [info.name for info in store.list()] == ["a"]
        with pytest.raises(ConfigurationError, match=r"no method of headrace\.sync"):
            sync.long_call(tells, None)
        connection.jetstream().delete_object_store("TWIN")


def tells(progress: object) -> None:
    """Takes what a long call takes."""
