"""Proof that a seed went where it was meant to go: counted entries into the broker's own paths."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from headrace.broker.core.jetstream.consumer.acks import AckDispatch, Acks
from headrace.broker.core.jetstream.consumer.push import PushRecipients
from headrace.broker.core.jetstream.publish.atomic_batches import AtomicBatches
from headrace.broker.core.jetstream.publish.fast_batches import FastBatches
from headrace.broker.core.jetstream.sourcing.copy import MirrorCopy, SourceCopy
from headrace.broker.core.jetstream.stream.publishes import Publishes
from headrace.broker.core.net.session import Session
from headrace.broker.store import recovery
from headrace.broker.store.commit.writer import Writer
from headrace.broker.store.index.index import Segment
from headrace.broker.store.io.syncing import Syncing
from headrace.broker.store.log import compaction
from headrace.broker.store.log.bulk import LimitPass, Purging, SubjectLimits
from headrace.broker.store.log.idle import Reload

__all__ = ["PATHS", "Path", "entered", "took_all", "took_some", "watched"]

Taken = Callable[[tuple[Any, ...], Any], bool]


def entered(args: tuple[Any, ...], result: Any) -> bool:
    return True


def took_some(args: tuple[Any, ...], result: Any) -> bool:
    """Of what was handed over, not all was left for the slow way."""
    return len(result) < len(args[1])


def took_all(args: tuple[Any, ...], result: Any) -> bool:
    return not result


def _did_some(args: tuple[Any, ...], result: Any) -> bool:
    return bool(result)


class Path(NamedTuple):
    """A method of the broker, and by what is told that it did what it is for."""

    owner: type
    method: str
    taken: Taken = entered


PATHS = {
    "relaxed publishes": Path(Session, "_publish_relaxed"),
    "checked publishes": Path(Session, "_publish_checked"),
    "publishes taken together": Path(Publishes, "ingest_many", took_some),
    "publishes taken one by one": Path(Publishes, "ingest"),
    "runs taken whole": Path(Publishes, "ingest_run", took_all),
    "acks taken together": Path(AckDispatch, "many", took_all),
    "acks taken one by one": Path(Acks, "receive"),
    "atomic batches committed": Path(AtomicBatches, "_commit"),
    "fast batches taken together": Path(FastBatches, "ingest_many", took_some),
    "fast batches finished": Path(FastBatches, "_finish"),
    "pushes": Path(PushRecipients, "hand_out"),
    "copies into a mirror": Path(MirrorCopy, "_store"),
    "copies into a stream with sources": Path(SourceCopy, "_store"),
    "segments compacted": Path(compaction.Compaction, "_complete"),
    "segments read at the start": Path(recovery._Opening, "_scanned"),
    "segments opened by their footer": Path(recovery._Opening, "_sealed"),
    "segments left to their files": Path(Segment, "leave"),
    "segments read back": Path(Reload, "__call__"),
    "segments removed": Path(Writer, "remove"),
    "subjects thinned": Path(SubjectLimits, "enforce"),
    "successors thinned": Path(SubjectLimits, "enforce_on_superseded"),
    "slices of purges": Path(Purging, "run", _did_some),
    "slices of a pass that thins": Path(LimitPass, "run", _did_some),
    "streams deleted": Path(Writer, "_retire"),
    "files synced with the whole disk": Path(Syncing, "_sync_whole", _did_some),
}


@contextmanager
def watched(paths: Mapping[str, Path] = PATHS) -> Iterator[Counter[str]]:
    """Count what is entered within."""
    counts: Counter[str] = Counter()
    originals = [(path, getattr(path.owner, path.method)) for path in paths.values()]
    for label, path in paths.items():  # several may be of one method
        current = getattr(path.owner, path.method)
        setattr(path.owner, path.method, _counting(label, path.taken, current, counts))
    try:
        yield counts
    finally:
        for path, original in originals:
            setattr(path.owner, path.method, original)


def _counting(
    label: str, taken: Taken, original: Callable[..., Any], counts: Counter[str]
) -> Callable[..., Any]:
    def method(*args: Any, **named: Any) -> Any:
        result = original(*args, **named)
        if taken(args, result):
            counts[label] += 1
        return result

    async def awaited(*args: Any, **named: Any) -> Any:
        result = await original(*args, **named)
        if taken(args, result):
            counts[label] += 1
        return result

    is_told_by_its_result = taken is not entered and inspect.iscoroutinefunction(original)
    return awaited if is_told_by_its_result else method
