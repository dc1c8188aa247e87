"""A saga: an order takes several services, and what was done is undone when one of them refuses.

python examples/saga.py [nats://127.0.0.1:4222]

How far an order has come stands in a bucket. Whoever leads the saga may die after each step: the message of
the order comes again, and the saga goes on from there. A request that is repeated carries the same order, so
that the service answers as it did, and does nothing twice.
"""

import asyncio
import sys
from typing import NamedTuple

import msgspec

import headrace


class Step(NamedTuple):
    """A request, and the one that undoes it."""

    does: str
    undoes: str


STEPS = (
    Step("stock.reserve", "stock.release"),
    Step("payment.charge", "payment.refund"),
    Step("parcel.send", "parcel.stop"),
)


class Progress(msgspec.Struct):
    """Of one order: the steps that are done and not undone, and why it cannot be had."""

    done: int = 0
    refused: str = ""

    @property
    def is_over(self) -> bool:
        return self.done == (0 if self.refused else len(STEPS))


class Saga:
    """Takes orders to their end: all steps are done, or none."""

    def __init__(self, connection: headrace.Connection, bucket: headrace.KeyValue) -> None:
        self._connection = connection
        self._bucket = bucket

    async def carry_on(self, order: str) -> Progress:
        """Take an order to its end, from where it is. What it raises is no end: call it again."""
        try:
            entry = await self._bucket.get(order)
            progress, revision = msgspec.json.decode(entry.value, type=Progress), entry.revision
        except headrace.KeyNotFoundError:
            progress, revision = Progress(), 0
        while not progress.is_over:
            if progress.refused:
                await self._ask(STEPS[progress.done - 1].undoes, order)
                progress.done -= 1
            else:
                try:
                    await self._ask(STEPS[progress.done].does, order)
                    progress.done += 1
                except headrace.ServiceError as error:
                    if error.code >= 500:  # it failed, which is no refusal
                        raise
                    progress.refused = str(error)
            # Raises KeyExistsError where another one leads the saga of this order, too.
            revision = await self._bucket.update(order, msgspec.json.encode(progress), revision)
        return progress

    async def _ask(self, subject: str, order: str) -> None:
        await self._connection.request(subject, order.encode(), timeout=5)


class Services:
    """Stand for three services. Each remembers what it answered to an order, and does nothing twice."""

    def __init__(self) -> None:
        self.effects: list[str] = []

    async def start(self, connection: headrace.Connection) -> headrace.Service:
        service = await connection.add_service("shop", version="1.0.0")
        for step in STEPS:
            for subject in step:
                name = subject.replace(".", "-")
                await service.add_endpoint(name, self._answer, subject=subject)
        return service

    def _answer(self, message: headrace.Message) -> bytes:
        order = message.payload.decode()
        if message.subject == "payment.charge" and order.startswith("eve"):
            raise headrace.ServiceError(402, "eve has no money")
        effect = f"{message.subject} {order}"
        if effect not in self.effects:
            self.effects.append(effect)
        return b"done"


async def main(url: str) -> None:
    async with headrace.connect(url) as connection:
        js = connection.jetstream()
        services = Services()
        await services.start(connection)
        stream = await js.create_or_update_stream(name="SAGAS", subjects=["sagas.*"])
        bucket = await js.create_or_update_key_value("SAGAS", ttl=7 * 86_400)
        saga, over = Saga(connection, bucket), list[str]()
        both = asyncio.Event()

        async def lead(message: headrace.JetStreamMessage) -> None:
            order = message.payload.decode()
            progress = await saga.carry_on(order)
            print(f"{order}: {progress.refused or 'done'}")
            message.ack()
            over.append(order)
            if len(over) == 2:
                both.set()

        for order in ("joe-1", "eve-2"):
            await js.publish("sagas.order", order.encode(), msg_id=order)
        consumer = await stream.create_or_update_consumer(durable_name="sagas", ack_wait=60)
        again = headrace.Retry(backoff=(1, 5, 30))  # for ever: a saga has to end
        async with consumer.consume(lead, on_failure=again):
            await both.wait()
        for effect in services.effects:
            print(f"  {effect}")
        await js.delete_stream("SAGAS")  # of an example: the next run has the same orders
        await js.delete_key_value("SAGAS")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
