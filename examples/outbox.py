"""An outbox: what a transaction of PostgreSQL wants to publish is published if it commits, and once.

python examples/outbox.py postgresql://localhost/shop [nats://127.0.0.1:4222]

The transaction writes its message into a table. The relay publishes what is there, and removes it. Where it
dies in between, it publishes again with the same id, which the stream drops.
"""

import asyncio
import logging
import sys
from typing import Any

import psycopg

import headrace

log = logging.getLogger("outbox")

SCHEMA = """
CREATE TABLE IF NOT EXISTS outbox (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id UUID NOT NULL DEFAULT gen_random_uuid(),
    subject TEXT NOT NULL,
    payload BYTEA NOT NULL);
CREATE TABLE IF NOT EXISTS orders (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item TEXT NOT NULL);
"""
TAKE = """
SELECT number, id, subject, payload FROM outbox ORDER BY number LIMIT 100 FOR UPDATE
"""
LOOK_AGAIN_S = 5.0
AWAY = (
    headrace.RequestTimeoutError,
    headrace.DisconnectedError,
    headrace.OutcomeUnknownError,
    headrace.NoRespondersError,
)

Database = psycopg.AsyncConnection[Any]


async def put(database: Database, subject: str, payload: bytes) -> None:
    """Have a message published when the transaction that is open commits."""
    row = (subject, payload)
    await database.execute("INSERT INTO outbox (subject, payload) VALUES (%s, %s)", row)
    await database.execute("NOTIFY outbox")  # goes out with the commit


async def publish_some(database: Database, js: headrace.JetStream) -> int:
    """Publish the oldest messages, and remove them; returns how many. Another relay waits meanwhile."""
    async with database.transaction():
        rows = await (await database.execute(TAKE)).fetchall()
        for _, unique, subject, payload in rows:
            await js.publish(subject, payload, msg_id=str(unique))
        numbers = [row[0] for row in rows]
        await database.execute("DELETE FROM outbox WHERE number = ANY(%s)", (numbers,))
    return len(rows)


async def relay(database: Database, js: headrace.JetStream) -> None:
    """Publish what is in the outbox and what comes, until cancelled. ``database``: one of its own, with
    ``autocommit``."""
    await database.execute("LISTEN outbox")
    while True:
        try:
            while await publish_some(database, js):
                pass
        except AWAY as error:  # the transaction is undone: all of it is there still
            log.warning("the server is away: %s", error)
        async for _ in database.notifies(timeout=LOOK_AGAIN_S, stop_after=1):
            pass


async def order(database: Database, item: str) -> None:
    """What an application does: its work and its message, both or neither."""
    async with database.transaction():
        await database.execute("INSERT INTO orders (item) VALUES (%s)", (item,))
        await put(database, "outbox.ordered", item.encode())
        if item == "nothing":
            raise ValueError("nobody orders nothing")


async def main(postgres: str, url: str) -> None:
    async with (
        headrace.connect(url, name="outbox") as connection,
        await psycopg.AsyncConnection.connect(postgres, autocommit=True) as shop,
        await psycopg.AsyncConnection.connect(postgres, autocommit=True) as own,
        asyncio.TaskGroup() as tasks,
    ):
        await shop.execute(SCHEMA)
        js = connection.jetstream()
        stream = await js.create_or_update_stream(
            name="OUTBOX",
            subjects=["outbox.*"],
            duplicate_window=3600,  # for so long an id is known
        )
        consumer = await stream.create_consumer(deliver_policy="new")
        relaying = tasks.create_task(relay(own, js))
        for item in ("apples", "nothing", "plums"):
            try:
                await order(shop, item)
            except ValueError as error:
                print(f"undone: {error}")
        for _ in range(2):
            message = await consumer.next(30)
            print(f"published: {message.payload.decode()}")
            message.ack()
        relaying.cancel()


if __name__ == "__main__":
    server = sys.argv[2] if len(sys.argv) > 2 else "nats://127.0.0.1:4222"
    asyncio.run(main(sys.argv[1], server))
