"""A destination that stores what is prepared, with a member that books by ``exactly_once``.

Who takes a partition over looks at what its former owner has prepared and neither booked nor undone.
"""

import asyncio
import sqlite3
from pathlib import Path

import headrace
from headrace.groups import GroupMessage, elastic
from headrace.groups.exactly_once import exactly_once, was_acknowledged

SCHEMA = """
CREATE TABLE IF NOT EXISTS owner (partition INTEGER PRIMARY KEY, generation INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS prepared (
    sequence INTEGER PRIMARY KEY, partition INTEGER NOT NULL, generation INTEGER NOT NULL,
    account TEXT NOT NULL, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS booked (
    sequence INTEGER PRIMARY KEY, account TEXT NOT NULL, amount INTEGER NOT NULL);
"""


class LateError(Exception):
    """A later owner of the partition has been here."""


class Bank:
    """The destination. All its changes are fenced by the generation of whoever makes them."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, timeout=10, isolation_level=None)
        self.db.executescript(SCHEMA)

    def fence(self, message: GroupMessage) -> bool:
        """Be the owner of the message's partition. True: somebody else was before."""
        row = (message.partition, message.generation)
        last = self.db.execute(
            "SELECT generation FROM owner WHERE partition = ?", row[:1]
        ).fetchone()
        if last and last[0] > message.generation:
            raise LateError(f"partition {message.partition} has a later owner")
        self.db.execute("INSERT OR REPLACE INTO owner VALUES (?, ?)", row)
        return last is not None and last[0] < message.generation

    async def recover(self, js: headrace.JetStream, message: GroupMessage) -> None:
        """Book or undo what former owners of the partition have only prepared."""
        stream = message.metadata.stream
        left = self.db.execute(
            "SELECT sequence FROM prepared WHERE partition = ? AND generation < ? ORDER BY sequence",
            (message.partition, message.generation),
        ).fetchall()
        for (sequence,) in left:
            if await was_acknowledged(js, stream, sequence):
                self.book(sequence)
            self.undo(sequence)

    def book(self, sequence: int) -> None:
        self.db.execute(
            "INSERT OR IGNORE INTO booked SELECT sequence, account, amount FROM prepared "
            "WHERE sequence = ?",
            (sequence,),
        )

    def booked(self) -> int:
        count: int = self.db.execute("SELECT count(*) FROM booked").fetchone()[0]
        return count

    def undo(self, sequence: int) -> None:
        self.db.execute("DELETE FROM prepared WHERE sequence = ?", (sequence,))


class Payment:
    """One payment: a transaction that is prepared, and then booked or undone."""

    def __init__(self, bank: Bank, message: GroupMessage) -> None:
        self.bank = bank
        self.message = message
        self.sequence = message.metadata.stream_seq

    def prepare(self) -> None:
        account = self.message.subject.removeprefix("pay.")
        row = (self.sequence, self.message.partition, self.message.generation, account)
        with self.bank.db:
            self.bank.db.execute("BEGIN IMMEDIATE")
            self.bank.fence(self.message)
            self.bank.db.execute(
                "INSERT OR REPLACE INTO prepared VALUES (?, ?, ?, ?, ?)",
                (*row, int(self.message.payload)),
            )

    def commit(self) -> None:
        with self.bank.db:
            self.bank.db.execute("BEGIN IMMEDIATE")
            self.bank.book(self.sequence)
            self.bank.undo(self.sequence)

    def rollback(self) -> None:
        self.bank.undo(self.sequence)


async def work(
    js: headrace.JetStream, bank: Bank, member: str, done: asyncio.Event, payments: int = 0
) -> None:
    """Be a member until ``done``, which comes with the last one of ``payments``."""

    async def handle(message: GroupMessage) -> None:
        if bank.fence(message):
            await bank.recover(js, message)
        async with exactly_once(message, Payment(bank, message), recoverable=True):
            pass  # everything is in the payment
        if bank.booked() == payments:
            done.set()

    config = headrace.ConsumerConfig(ack_wait=1.0, max_ack_pending=1)
    async with elastic.join(js, "PAYMENTS", "books", member, handle, config):
        await done.wait()
