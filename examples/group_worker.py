"""A worker of a consumer group. Start several: one name shares nothing but stands by, further names share.

python examples/group_worker.py a [nats://127.0.0.1:4222]
"""

import asyncio
import sys

import headrace
from headrace.groups import GroupMessage, PartitioningFilter, elastic


async def main(member: str, url: str) -> None:
    async def bill(message: GroupMessage) -> None:
        print(f"{member} bills {message.subject}: {message.payload.decode()}", flush=True)
        await message.ack_sync()

    async with headrace.connect(url, name=f"worker {member}") as connection:
        js = connection.jetstream()
        await js.create_or_update_stream(name="ORDERS", subjects=["orders.*"])
        # The first * of the subject is the key: a customer's orders stay in order.
        await elastic.create(
            js,
            "ORDERS",
            "billing",
            max_members=6,
            partitioning_filters=[PartitioningFilter("orders.*", (1,))],
        )
        await elastic.add_members(js, "ORDERS", "billing", [member])
        async with elastic.join(
            js,
            "ORDERS",
            "billing",
            member,
            bill,
            on_active=lambda generation: print(f"{member} is active", flush=True),
            on_standby=lambda: print(f"{member} stands by", flush=True),
        ) as membership:
            await membership.wait()  # until Ctrl-C, or until the group is deleted


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else "a"
    server = sys.argv[2] if len(sys.argv) > 2 else "nats://127.0.0.1:4222"
    try:
        asyncio.run(main(name, server))
    except KeyboardInterrupt:
        print(f"{name} left")
