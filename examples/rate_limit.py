"""A rate limit for each customer, kept in a bucket: all processes together let so many through.

python examples/rate_limit.py [nats://127.0.0.1:4222]

A key's value is the time until which what was let through is paid for. Whoever lets one more through moves
it on, if nobody else has moved it meanwhile.
"""

import asyncio
import sys
import time
from collections.abc import Callable

import headrace


class RateLimit:
    """At most ``burst`` at once, and ``per_second`` in the long run, for each key.

    Args:
        bucket: its ``ttl`` is longer than ``burst / per_second`` seconds; so idle keys go by themselves.
        clock: seconds, the same for all processes. What their clocks differ by is let through too much.
    """

    def __init__(
        self,
        bucket: headrace.KeyValue,
        *,
        per_second: float,
        burst: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if per_second <= 0 or burst < 1:
            raise ValueError(
                f"per_second is {per_second} and burst {burst}; accepted are more than 0, and 1 or more"
            )
        self._bucket = bucket
        self._each = 1 / per_second
        self._ahead = burst / per_second
        self._clock = clock

    async def wait_s(self, key: str) -> float:
        """Let one through, and return 0; else the seconds after which one can be let through."""
        while True:
            try:
                entry = await self._bucket.get(key)
            except headrace.KeyNotFoundError:
                entry = None
            now = self._clock()
            paid = max(now, float(entry.value) if entry else 0.0) + self._each
            if paid - now > self._ahead + 1e-6:  # times are rounded
                return paid - now - self._ahead
            try:
                if entry is None:
                    await self._bucket.create(key, b"%f" % paid)
                else:
                    await self._bucket.update(key, b"%f" % paid, entry.revision)
            except headrace.KeyExistsError:
                continue  # somebody else let one through: look again
            return 0.0


async def main(url: str) -> None:
    async with headrace.connect(url) as connection:
        bucket = await connection.jetstream().create_or_update_key_value("RATES", ttl=3600)
        limit = RateLimit(bucket, per_second=0.1, burst=3)
        for customer in ("eve", "joe"):
            waits = [await limit.wait_s(customer) for _ in range(5)]
            print(f"{customer}: {waits.count(0)} of {len(waits)} let through")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
