"""The same without async: threads, notebooks, scripts.

python examples/blocking.py [nats://127.0.0.1:4222]
"""

import sys

from headrace import sync


def main(url: str) -> None:
    with sync.connect(url, name="blocking example") as connection:
        js = connection.jetstream()
        stream = js.create_or_update_stream(name="READINGS", subjects=["readings.>"])
        with js.publisher() as publisher:
            publisher.send_many((f"readings.{n % 3}", b"%d" % n) for n in range(1_000))
        consumer = stream.create_or_update_consumer(durable_name="sums")
        total = 0
        while batch := consumer.fetch(300, no_wait=True):
            total += sum(int(payload) for payload in batch.payloads)
            batch.ack()
        print("sum", total)
        stream.delete()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222")
