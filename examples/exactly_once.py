"""A consumer group that books each payment exactly once into SQLite, whatever dies: workers, broker, or both.

python examples/exactly_once.py [nats://127.0.0.1:4222]

A payment is booked in one transaction with a note of its sequence, and acknowledged afterwards. What is
delivered again finds its note, and is acknowledged only. The same transaction refuses a former owner of the
partition, which has not noticed yet that it is none any more.
"""

import asyncio
import sqlite3
import sys
import tempfile
from pathlib import Path

import headrace
from headrace.groups import GroupMessage, PartitioningFilter, elastic

SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS owner (partition INTEGER PRIMARY KEY, generation INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS booked (
    sequence INTEGER PRIMARY KEY, account TEXT NOT NULL, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS accounts (account TEXT PRIMARY KEY, total INTEGER NOT NULL);
"""
FENCE = """
INSERT INTO owner VALUES (?1, ?2)
ON CONFLICT (partition) DO UPDATE SET generation = ?2 WHERE generation <= ?2
"""
ADD = """
INSERT INTO accounts VALUES (?1, ?2) ON CONFLICT (account) DO UPDATE SET total = total + ?2
"""


class Bank:
    """The destination: accounts, and what it must remember to book each payment once."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self.db.executescript(SCHEMA)

    def book(self, message: GroupMessage) -> bool:
        """Book a payment, unless it is booked. False: the partition has a later owner, who does it."""
        account, amount = message.subject.removeprefix("pay."), int(message.payload)
        with self.db:  # rolls back what raises
            self.db.execute("BEGIN IMMEDIATE")
            fenced = self.db.execute(FENCE, (message.partition, message.generation))
            if not fenced.rowcount:
                return False
            note = (message.sequence, account, amount)
            noted = self.db.execute("INSERT OR IGNORE INTO booked VALUES (?, ?, ?)", note)
            if noted.rowcount:
                self.db.execute(ADD, (account, amount))
        return True

    def booked(self) -> int:
        count: int = self.db.execute("SELECT count(*) FROM booked").fetchone()[0]
        return count


async def work(
    js: headrace.JetStream, bank: Bank, member: str, done: asyncio.Event, payments: int = 0
) -> None:
    """Be a member until ``done``, which comes with the last one of ``payments``."""

    async def handle(message: GroupMessage) -> None:
        if bank.book(message):
            message.ack()  # if that is lost, it comes again, and is found booked
        if payments and bank.booked() == payments:
            done.set()

    config = headrace.ConsumerConfig(ack_wait=1.0)
    async with elastic.join(js, "BANK", "books", member, handle, config):
        await done.wait()


async def main(url: str, path: Path | None = None, payments: int = 100) -> None:
    async with headrace.connect(url, name="exactly once example") as connection:
        js = connection.jetstream()
        await js.create_or_update_stream(name="BANK", subjects=["bank.*"])
        await elastic.create(
            js,
            "BANK",
            "books",
            max_members=4,
            partitioning_filters=[PartitioningFilter("bank.*", (1,))],
            members=["a", "b"],
        )
        for number in range(payments):
            await js.publish(f"bank.account-{number % 7}", b"%d" % number)
        with tempfile.TemporaryDirectory() as directory:
            bank = Bank(path or Path(directory) / "bank.db")
            done = asyncio.Event()
            await asyncio.gather(*(work(js, bank, name, done, payments) for name in ("a", "b")))
            total = bank.db.execute("SELECT sum(total) FROM accounts").fetchone()[0]
            print("booked", bank.booked(), "payments of", total)
            bank.db.close()
        await elastic.delete(js, "BANK", "books")
        await js.delete_stream("BANK")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
