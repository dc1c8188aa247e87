"""Random operations on a bucket do what they do to a model of it."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from headrace.client import JetStream, KeyExistsError, KeyNotFoundError, KeyValue

pytestmark = pytest.mark.peer

HISTORY = 3
OPERATIONS = ("put", "create", "update", "delete", "purge", "get", "history", "keys")


class Revision(NamedTuple):
    operation: str
    value: bytes
    revision: int


class Model:
    """What a bucket keeps: the newest revisions of each key."""

    def __init__(self, bucket: KeyValue, source: random.Random) -> None:
        self.bucket = bucket
        self.random = source
        self.kept: dict[str, list[Revision]] = {}
        self.changes = 0  # every change takes the next revision

    async def step(self, number: int) -> None:
        key = f"key.{self.random.randrange(5)}"
        value = b"%d" % number
        kept = self.kept.setdefault(key, [])
        last = kept[-1] if kept else None
        exists = last is not None and last.operation == "put"
        operation = self.random.choice(OPERATIONS)
        bucket = self.bucket
        match operation:
            case "put":
                self.changed(key, "put", value, await bucket.put(key, value))
            case "create" if exists:
                with pytest.raises(KeyExistsError):
                    await bucket.create(key, value)
            case "create":
                self.changed(key, "put", value, await bucket.create(key, value))
            case "update" if last is not None and self.random.random() < 0.5:
                self.changed(key, "put", value, await bucket.update(key, value, last.revision))
            case "update":
                with pytest.raises(KeyExistsError):
                    await bucket.update(key, value, self.changes + 1)
            case "delete":
                await bucket.delete(key)
                self.changed(key, "delete", b"", self.changes + 1)
            case "purge":
                await bucket.purge(key)
                kept.clear()
                self.changed(key, "purge", b"", self.changes + 1)
            case "get" if exists:
                entry = await bucket.get(key)
                assert (entry.operation, entry.value, entry.revision) == last
            case "get":
                with pytest.raises(KeyNotFoundError):
                    await bucket.get(key)
            case "history":
                entries = await bucket.history(key)
                assert [(e.operation, e.value, e.revision) for e in entries] == kept
            case "keys":
                there = [key for key, kept in self.kept.items() if kept]
                expected = [key for key in there if self.kept[key][-1].operation == "put"]
                assert sorted(await bucket.keys()) == sorted(expected)

    def changed(self, key: str, operation: str, value: bytes, revision: int) -> None:
        self.changes += 1
        assert revision == self.changes
        kept = self.kept[key]
        kept.append(Revision(operation, value, revision))
        del kept[:-HISTORY]


@pytest.mark.parametrize("seed", range(3))
async def test_a_bucket_does_what_its_model_does(js: JetStream, seed: int) -> None:
    bucket = await js.create_key_value("MODEL", history=HISTORY, storage="memory")
    model = Model(bucket, random.Random(seed))
    for number in range(150):
        await model.step(number)
    await js.delete_key_value("MODEL")
