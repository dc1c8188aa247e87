"""``headrace bench kv``."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial

import click

from ...api.streams import StorageKind
from ...client import KeyValue
from ..shared.progress import progress
from ..shared.verbs import Session, online
from .measure import CLIENTS, SIZE_OPTION, Figure, clients_of, shares, show, timed


@online(
    click.option("--bucket", metavar="NAME", default="benchbucket", help="(benchbucket)"),
    click.option("--msgs", type=click.IntRange(1), default=10_000, help="puts, and gets (10000)"),
    click.option("--keys", type=click.IntRange(1), default=1000, help="different keys (1000)"),
    SIZE_OPTION,
    CLIENTS,
    click.option("--storage", type=click.Choice(["file", "memory"]), default="file", help="(file)"),
    fast=True,
)
async def kv(
    session: Session, bucket: str, msgs: int, keys: int, size: int, clients: int, storage: str
) -> None:
    """Put keys and get them, one after the other in each client."""
    kind: StorageKind = "memory" if storage == "memory" else "file"
    await session.js.create_key_value(bucket, storage=kind)
    value = bytes(size)
    figures = []
    parts = shares(msgs, clients)
    async with clients_of(session, len(parts)) as sessions:
        buckets = [await each.js.key_value(bucket) for each in sessions]
        for what, one in (("put", _put), ("get", _get)):
            latencies: list[float] = []
            with progress(session.output, what, msgs) as advance:
                pairs = zip(buckets, parts, strict=True)
                work = [
                    partial(_each, one, each, part, min(keys, part), value, advance, latencies)
                    for each, part in pairs
                ]
                seconds = await timed(work)
            figures.append(Figure(what, msgs, msgs * size, seconds, latencies))
    session.output.note(f"bucket {bucket} is left; `headrace kv del {bucket}` removes it")
    show(session, figures)


async def _each(
    one: Callable[[KeyValue, str, bytes], Awaitable[None]],
    bucket: KeyValue,
    count: int,
    keys: int,
    value: bytes,
    advance: Callable[[int], None],
    latencies: list[float],
) -> None:
    for number in range(count):
        began = time.perf_counter()
        await one(bucket, f"key.{number % keys}", value)
        latencies.append(time.perf_counter() - began)
        advance(1)


async def _put(bucket: KeyValue, key: str, value: bytes) -> None:
    await bucket.put(key, value)


async def _get(bucket: KeyValue, key: str, value: bytes) -> None:
    await bucket.get(key)
