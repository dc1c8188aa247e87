"""Groups on three nats-servers: what one call has stored the next one finds, whichever server it asks."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from headrace.client import connect
from headrace.groups import GroupNotFoundError, elastic, static
from nats_cluster import Cluster

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]


async def test_verbs_through_any_server(cluster: Cluster) -> None:
    async with AsyncExitStack() as stack:
        contexts = []
        for node in cluster.nodes:
            connection = connect(node.server.url, discover_servers=False)
            contexts.append((await stack.enter_async_context(connection)).jetstream())
        await contexts[0].create_stream(name="GROUPS", subjects=["groups.>", "0.>"], num_replicas=3)
        for number in range(10):
            one, two, three = (contexts[(number + step) % 3] for step in range(3))
            await elastic.create(one, "GROUPS", f"e{number}", 4)
            await elastic.add_members(two, "GROUPS", f"e{number}", ["a"])
            await elastic.add_members(three, "GROUPS", f"e{number}", ["b"])
            assert (await elastic.get(one, "GROUPS", f"e{number}")).members == ("a", "b")
            for js in contexts:
                assert [each.members for each in await elastic.list(js, "GROUPS")] == [("a", "b")]
            config = (await (await two.stream(f"GROUPS-e{number}")).info()).config
            assert (config.num_replicas, config.retention) == (3, "workqueue")
            await elastic.delete(three, "GROUPS", f"e{number}")
            with pytest.raises(GroupNotFoundError):
                await elastic.get(one, "GROUPS", f"e{number}")
            made = await static.create(one, "GROUPS", "s", 4, members=["m"])
            assert await static.get(two, "GROUPS", "s") == made
            await static.delete(three, "GROUPS", "s")
        bucket = (await (await contexts[0].stream("KV_elastic-consumer-groups")).info()).config
        assert bucket.num_replicas == 3
        await contexts[0].delete_stream("GROUPS")
