"""A client in a process of its own, to be killed: ``hand.py URL take STREAM CONSUMER N``, or ``… watch KV``.

It has messages in hand, or watches a bucket, says so, and does nothing any more.
"""

from __future__ import annotations

import signal
import sys

from headrace import sync


def main(url: str, deed: str, *names: str) -> None:
    with sync.connect(url) as connection:
        js = connection.jetstream()
        if deed == "take":
            stream, consumer, count = names
            taken = js.consumer(stream, consumer).fetch(int(count), max_wait=30)
            assert len(list(taken)) == int(count)
            print("ready", flush=True)
            signal.pause()
        else:
            with js.key_value(names[0]).watch() as changes:
                next(iter(changes))
                print("ready", flush=True)
                signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
