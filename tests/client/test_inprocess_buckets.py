"""Buckets, batches and direct reads over a connection without a socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace import BatchRefusedError, KeyExistsError
from headrace.embedded import Broker

pytestmark = pytest.mark.usefixtures("no_leaks")


async def test_buckets_batches_and_direct_reads_need_no_socket(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4_000
    async with (
        asyncio.timeout(30),
        Broker(port=-1, store_dir=tmp_path / "store") as broker,
        broker.connect() as connection,
    ):
        js = connection.jetstream()
        store = await js.create_object_store("FILES")
        await store.put("x", content, chunk_size=10_000)
        assert await store.get("x") == content
        kv = await js.create_key_value("KV", history=3, marker_ttl=60)
        revision = await kv.create("a", b"1")
        with pytest.raises(KeyExistsError):
            await kv.create("a", b"2")
        async with await kv.watch() as watch:
            assert [entry.revision async for entry in watch.initial()] == [revision]
            await kv.put("b", b"1", ttl=5)
            assert (await anext(watch)).key == "b"
        assert await kv.keys() == ["a", "b"]
        stream = await js.create_stream(
            name="S", subjects=["s.>"], allow_atomic=True, allow_direct=True
        )
        async with js.batch() as batch:
            for number in range(1000):
                batch.add(f"s.{number % 10}", b"%d" % number)
        assert batch.first_sequence == 1
        batch = js.batch()
        batch.add("s.0", b"", expected_last_sequence=5)
        with pytest.raises(BatchRefusedError, match="wrong last sequence"):
            await batch.commit()
        assert [m.sequence async for m in stream.scan(first=998)] == [998, 999, 1000]
        assert len(await stream.get_last_messages("s.*")) == 10
