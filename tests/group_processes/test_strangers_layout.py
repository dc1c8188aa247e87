"""What members of other implementations are told of a group that has a consumer for each partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_processes.crowd import PeerRefusalError, PeerVerbs
from group_processes.strangers import Stranger
from headrace.client import Connection
from headrace.groups import PartitioningFilter, elastic, static

STREAM, GROUP = "ORDERS", "g"
SAID = "the max number of members must be >= 1"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "groups.md"


@pytest.mark.parametrize("kind", ["static", "elastic"])
async def test_they_cannot_read_its_record_and_say_so(
    connection: Connection, stranger: Stranger, verb: PeerVerbs, kind: str
) -> None:
    js = connection.jetstream()
    await js.create_stream(name=STREAM, subjects=["orders.*", "0.orders", "1.orders"])
    if kind == "static":
        await static.create(js, STREAM, GROUP, 2, members=["a"], layout="per_partition")
    else:
        by_key = [PartitioningFilter("orders.*", (1,))]
        await elastic.create(
            js, STREAM, GROUP, 2, partitioning_filters=by_key, members=["a"], layout="per_partition"
        )
    with pytest.raises(PeerRefusalError) as caught:
        await verb(f"get_{kind}_config", STREAM, GROUP)
    if stranger.name != "go":
        assert str(caught.value).partition(": ")[2] == SAID
        assert f"`{SAID}`" in PAGE.read_text(), "who meets it finds what it means"
