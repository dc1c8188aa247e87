"""A Spark source built on nats-py as its documentation shows it: what people write themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

FETCH = 5_000


class NatsPySource(DataSource):
    """``format("natspy")``: options url, stream and messages."""

    @classmethod
    def name(cls) -> str:
        return "natspy"

    def schema(self) -> str:
        return "subject string, data binary, sequence bigint, timestamp timestamp"

    def reader(self, schema: StructType) -> NatsPyReader:
        return NatsPyReader(dict(self.options))


class NatsPyReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        loop = asyncio.new_event_loop()
        try:
            rows = self._batches()
            while True:
                try:
                    yield from loop.run_until_complete(anext(rows))
                except StopAsyncIteration:
                    return
        finally:
            loop.close()

    async def _batches(self) -> Any:
        left = int(self._options["messages"])
        connection = await nats.connect(self._options["url"])
        js = connection.jetstream()
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL)
        info = await js.add_consumer(self._options["stream"], config, durable_name="natspy")
        subscription = await js.pull_subscribe_bind(info.name, self._options["stream"])
        while left:
            messages = await subscription.fetch(min(FETCH, left), timeout=10)
            left -= len(messages)
            yield [
                (m.subject, m.data, m.metadata.sequence.stream, m.metadata.timestamp)
                for m in messages
            ]
        await js.delete_consumer(self._options["stream"], info.name)
        await connection.close()
