"""Messages that are published later: a reminder, unless it is not needed any more, and a report each morning.

python examples/scheduled.py [nats://127.0.0.1:4222]

The stream keeps a plan for each of them, on a subject of its own, and publishes what is due. So plans outlive
the program that made them, and need no other one. It takes our broker, or nats-server from 2.12 on.
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

import headrace


async def planned(js: headrace.JetStream) -> headrace.Stream:
    """The stream of the plans, and of what is due."""
    return await js.create_or_update_stream(
        name="REMINDERS",
        subjects=["plans.>", "due.*"],
        allow_direct=True,
        allow_msg_schedules=True,
        allow_rollup_hdrs=True,
        allow_msg_ttl=True,
    )


async def remind(js: headrace.JetStream, order: str, at: datetime) -> None:
    """Have a reminder come at a time. Another time for the same order replaces it."""
    await js.schedule(f"plans.remind.{order}", order.encode(), target="due.reminder", at=at)


async def forget(stream: headrace.Stream, order: str) -> None:
    """Have no reminder come: the order is paid."""
    await stream.purge(subject=f"plans.remind.{order}")


async def report_each_morning(js: headrace.JetStream) -> None:
    """At six in Berlin, in summer and in winter; not on Saturdays and Sundays."""
    await js.schedule(
        "plans.report", b"", target="due.report", cron="0 6 * * mon-fri", time_zone="Europe/Berlin"
    )


async def main(url: str) -> None:
    async with headrace.connect(url) as connection:
        js = connection.jetstream()
        stream = await planned(js)
        now = datetime.now(UTC)
        await remind(js, "1", now + timedelta(seconds=1))
        await remind(js, "2", now + timedelta(seconds=2))
        await remind(js, "3", now + timedelta(seconds=3))
        await forget(stream, "2")
        await report_each_morning(js)
        consumer = await stream.create_consumer(filter_subject="due.reminder")
        for _ in range(2):
            reminder = await consumer.next(30)
            print(f"reminder for order {reminder.payload.decode()}")
            reminder.ack()
        left = await stream.get_last_messages("plans.>")
        print(f"planned: {[each.subject for each in left]}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
