"""A stream: publish with thousands in flight, then fetch, consume and acknowledge.

python examples/streams.py [nats://127.0.0.1:4222]
"""

import asyncio
import sys

import headrace


async def main(url: str) -> None:
    async with headrace.connect(url, name="streams example") as connection:
        js = connection.jetstream()
        stream = await js.create_or_update_stream(name="PARCELS", subjects=["parcels.*"])
        await stream.purge()

        # One message, acknowledged: it is on disk when this returns.
        ack = await js.publish("parcels.new", b"one", msg_id="order-1")
        print("stored as", ack.seq)

        # Many messages: a window of unacknowledged ones; leaving the block waits for the rest.
        async with js.publisher(window=4_000) as publisher:
            for number in range(10_000):
                await publisher.send(f"parcels.{number % 10}", b"%d" % number)
        print("acknowledged", publisher.acked)

        # Pull in batches, acknowledge a batch in one write.
        consumer = await stream.create_or_update_consumer(
            durable_name="billing", max_ack_pending=5_000
        )
        batch = await consumer.fetch(1_000, max_wait=2)
        print("fetched", len(batch), "up to", batch.last_sequence)
        await batch.ack()

        # Or consume continuously, from a buffer that is kept filled.
        async with consumer.consume() as messages:
            async for message in messages:
                await message.ack()
                if message.metadata.pending == 0:
                    break
        print("left", (await consumer.info()).num_pending)
        await js.delete_stream("PARCELS")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
