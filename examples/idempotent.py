"""Payments that are booked once, though a message may come again: in SQLite or in PostgreSQL.

python examples/idempotent.py books.db [nats://127.0.0.1:4222]
python examples/idempotent.py postgresql://localhost/shop [nats://127.0.0.1:4222]

The booking and the note that its message is done are one transaction. Where the program dies after it, the
message comes again, finds the note, and changes nothing.
"""

import asyncio
import sqlite3
import sys
from typing import Any

import msgspec

import headrace
from headrace.worker import Done

BOOKING = """
INSERT INTO accounts VALUES (?, ?)
ON CONFLICT (customer) DO UPDATE SET balance = accounts.balance + excluded.balance
"""

done = Done("books")


class Payment(msgspec.Struct):
    customer: str
    amount: int


class Books:
    """The accounts, in a database: a file of SQLite, or an address of PostgreSQL."""

    def __init__(self, where: str) -> None:
        self.database: Any
        if where.startswith("postgresql:"):
            import psycopg

            self._booking = BOOKING.replace("?", "%s")
            self.database = psycopg.connect(where)
        else:
            self._booking = BOOKING
            self.database = sqlite3.connect(where, check_same_thread=False)
        done.create(self.database)
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS accounts (customer TEXT PRIMARY KEY, balance BIGINT NOT NULL)"
        )
        self.database.commit()

    def book(self, message: headrace.JetStreamMessage) -> bool:
        """Book a payment, if it was not done before: both or neither. Whether it was booked now."""
        payment = msgspec.json.decode(message.payload, type=Payment)
        try:
            is_new = done.first_time(self.database, message)
            if is_new:
                self.database.execute(self._booking, (payment.customer, payment.amount))
            self.database.commit()
        except BaseException:
            self.database.rollback()
            raise
        return is_new

    def balances(self) -> dict[str, int]:
        rows = self.database.execute("SELECT customer, balance FROM accounts ORDER BY customer")
        return dict(rows.fetchall())


async def main(where: str, url: str) -> None:
    books = Books(where)
    async with headrace.connect(url) as connection:
        js = connection.jetstream()
        stream = await js.create_or_update_stream(name="PAYMENTS", subjects=["payments.*"])
        consumer = await stream.create_or_update_consumer(durable_name="books", ack_wait=1)
        for amount in (30, 20, 10):
            payment = msgspec.json.encode(Payment("eve", amount))
            await js.publish("payments.eve", payment)

        first = await consumer.next(30)
        await asyncio.to_thread(
            books.book, first
        )  # and here the program dies: nothing is acknowledged

        over = asyncio.Event()

        def handle(message: headrace.JetStreamMessage) -> None:  # on a thread, where it may block
            was = "booked" if books.book(message) else "done already"
            print(f"{message.payload.decode()} {was}, delivery {message.metadata.delivered}")
            message.ack()
            if message.metadata.stream_seq == first.metadata.stream_seq:
                loop.call_soon_threadsafe(over.set)

        loop = asyncio.get_running_loop()
        async with consumer.consume(handle, concurrency=1):
            await over.wait()
    print(f"balances: {books.balances()}")
    books.database.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "nats://127.0.0.1:4222"))
