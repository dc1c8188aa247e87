"""One of several processes writes the report. When it dies, another one goes on.

python examples/leader.py host-a [nats://127.0.0.1:4222]     and as host-b in another terminal

The lock keeps two from leading at the same time. The token keeps what a former leader writes late, after it
stood still, from undoing what the present one wrote.
"""

import asyncio
import contextlib
import sys

import headrace
from headrace.locks import Held, Lock, LockLostError, lead

EACH_S = 1.0


async def write(reports: headrace.KeyValue, held: Held, name: str) -> int:
    """Write the next report, and return its number. Raises LockLostError where a newer leader has written."""
    held.check()  # cheap, and early; what holds is the token
    try:
        entry = await reports.get("report")
        token, number, _ = entry.value.split(b" ", 2)
        last, revision = int(number), entry.revision
        if int(token) > held.token:
            raise LockLostError("report", f"a newer leader has written {last}")
    except headrace.KeyNotFoundError:
        last, revision = 0, 0
    value = b"%d %d %b" % (held.token, last + 1, name.encode())
    # Refused if somebody wrote since we looked.
    await reports.update("report", value, revision)
    return last + 1


async def main(name: str, url: str) -> None:
    async with headrace.connect(url, name=name) as connection:
        js = connection.jetstream()
        locks = await js.create_or_update_key_value("LOCKS", marker_ttl=60)
        reports = await js.create_or_update_key_value("REPORTS")

        async def report(held: Held) -> None:
            print(f"{name} leads", flush=True)
            while True:
                number = await write(reports, held, name)
                print(f"{name} wrote report {number}", flush=True)
                await asyncio.sleep(EACH_S)

        await lead(Lock(locks, "reporter", ttl=5, holder=name), report)


if __name__ == "__main__":
    where = sys.argv[2] if len(sys.argv) > 2 else "nats://127.0.0.1:4222"
    with contextlib.suppress(KeyboardInterrupt):  # whoever is next leads at once
        asyncio.run(main(sys.argv[1], where))
