"""Whether a watch has seen all of what was there when it began."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client import JetStream, Stream
from headrace.client.jetstream.watch import _Listing


def _ordered(*filters: str) -> Any:
    config = SimpleNamespace(opt_start_seq=1, filter_subjects=filters, filter_subject="")
    return SimpleNamespace(_config=config)


def _message(subject: str, sequence: int, pending: int) -> Any:
    metadata = SimpleNamespace(stream_seq=sequence, pending=pending)
    return SimpleNamespace(subject=subject, metadata=metadata)


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("filters", [("*",), ("a", "b", "c")])
async def test_a_server_that_counts_too_few_hides_no_key(
    js: JetStream, stream: Stream, filters: tuple[str, ...]
) -> None:
    """As it may while others write: the last key it counted says that nothing is left."""
    for subject in ("a", "b", "c"):
        await js.publish(f"{stream.name}.{subject}", b"")
    listing = _Listing(stream, _ordered(*(f"{stream.name}.{each}" for each in filters)), 2)
    listing.count(_message(f"{stream.name}.a", 1, 1))
    listing.count(_message(f"{stream.name}.b", 2, 0))
    assert listing.left == 0
    assert [each.subject for each in await listing.overlooked(_raise)] == [f"{stream.name}.c"]


async def test_a_listing_that_has_passed_the_newest_message_asks_for_nothing_more(
    js: JetStream, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for subject in ("k.a", "other"):
        await js.publish(f"{stream.name}.{subject}", b"")
    listing = _Listing(stream, _ordered(f"{stream.name}.k.*"), 1)
    listing.count(_message(f"{stream.name}.k.a", 1, 0))
    monkeypatch.setattr(stream, "info", lambda **_: pytest.fail("names are asked for"))
    assert await listing.overlooked(_raise) == []
