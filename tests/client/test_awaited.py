"""What is awaited follows one rule: whoever asks the server, sends or waits is a coroutine function.

What is not only makes an object here, lists, queues, or says what is known. A new method that is not awaited
has to find its place in this table.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import headrace

MAKES = {
    headrace.Connection: {"jetstream", "new_inbox"},
    headrace.JetStream: {"batch", "publisher"},
    headrace.Consumer: {"consume"},
    headrace.Service: {"group"},
    headrace.ServiceGroup: {"group"},
    headrace.ObjectStore: {"open"},
}
LISTS = {
    headrace.Connection: {"events"},
    headrace.JetStream: {
        "consumer_names",
        "consumers",
        "key_value_statuses",
        "key_values",
        "object_store_statuses",
        "object_stores",
        "stream_names",
        "streams",
    },
    headrace.Stream: {"consumer_names", "consumers", "scan"},
}
QUEUES = {
    headrace.Connection: {"publish_nowait"},
    headrace.Consumer: {"ack_all"},
    headrace.JetStreamMessage: {"ack", "in_progress", "nak", "term"},
}
KNOWN_HERE = {
    headrace.Connection: {"health", "stats"},
    headrace.Consumer: {"on_pinned", "on_unpinned"},
    headrace.Service: {"info", "reset", "stats"},
}
CLASSES = [
    headrace.Connection,
    headrace.Consumer,
    headrace.JetStream,
    headrace.JetStreamMessage,
    headrace.KeyValue,
    headrace.ObjectStore,
    headrace.Service,
    headrace.ServiceGroup,
    headrace.Stream,
]


def plain(kind: Any) -> set[str]:
    """The public methods that are called and not awaited."""
    return {
        name
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and not inspect.iscoroutinefunction(member)
    }


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: str(kind.__name__))
def test_what_is_not_awaited_has_a_reason(kind: Any) -> None:
    reasons = [table.get(kind, set()) for table in (MAKES, LISTS, QUEUES, KNOWN_HERE)]
    assert plain(kind) == set().union(*reasons)


def test_listings_are_iterated() -> None:
    for kind, names in LISTS.items():
        for name in names:
            returned = str(inspect.signature(getattr(kind, name)).return_annotation)
            assert returned.startswith("AsyncIterator["), name


def test_what_queues_may_be_awaited() -> None:
    for name in QUEUES[headrace.JetStreamMessage]:
        returned = inspect.signature(getattr(headrace.JetStreamMessage, name)).return_annotation
        assert returned == "Queued"
