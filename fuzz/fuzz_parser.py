#!/usr/bin/env python3
"""Feed the parser mutated frames: it must never raise, and never care how its input is cut.

Documented outcomes are frames, and ``(BAD, ProtocolError)`` as the last one. A failure prints the seed
and the input that show it again: ``fuzz/fuzz_parser.py --seed N --seconds 1``.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable

from headrace.errors import ProtocolError
from headrace.wire import BAD, Parser, parse_headers

FROM_CLIENTS = [
    b"CONNECT {}\r\n",
    b'CONNECT {"verbose":true,"user":"a"}\r\n',
    b"PING\r\n",
    b"pong\r\n",
    b"SUB foo.* workers 1\r\n",
    b"SUB\tfoo.>\t\t2\r\n",
    b"UNSUB 1 5\r\n",
    b"PUB foo 5\r\nhello\r\n",
    b"PUB foo reply.to 0\r\n\r\n",
    b"HPUB foo 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n",
]
FROM_SERVERS = [
    b'INFO {"server_id":"x","max_payload":1048576}\r\n',
    b"PING\r\n",
    b"PONG\r\n",
    b"+OK\r\n",
    b"-ERR 'Unknown Protocol Operation'\r\n",
    b"MSG foo 1 5\r\nhello\r\n",
    b"MSG foo 1 reply.to 0\r\n\r\n",
    b"HMSG foo 1 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n",
]
SPICE = [b"\r\n", b" ", b"\t", b"\x00", b"-1", b"99999999999", b"\xff", b"PUB", b"MSG ", b"\n", b""]


def mutated(source: random.Random, frames: list[bytes]) -> bytes:
    """A few frames in a row, some of their bytes changed, dropped or doubled."""
    data = bytearray(b"".join(source.choices(frames, k=source.randint(1, 8))))
    for _ in range(source.choice((0, 1, 1, 2, 5))):
        at = source.randrange(len(data) + 1)
        to = min(len(data), at + source.choice((0, 1, 1, 4)))
        data[at:to] = source.choice(SPICE) if source.random() < 0.7 else source.randbytes(2)
    return bytes(data)


def frames_of(make: Callable[[], Parser], pieces: list[bytes]) -> list[object]:
    parser = make()
    found: list[object] = []
    for piece in pieces:
        for frame in parser.feed(piece):
            if frame[0] == BAD:
                assert isinstance(frame[1], ProtocolError), frame
                # The text quotes what had arrived, so it may depend on the cut; the answer may not.
                found.append((BAD, frame[1].wire_text))
            else:
                found.append(frame)
    return found


def try_one(source: random.Random) -> bytes:
    """One input through the parser in three cuts, and its header blocks through theirs."""
    make, seeds = source.choice(
        ((Parser.for_server, FROM_CLIENTS), (Parser.for_client, FROM_SERVERS))
    )
    data = mutated(source, seeds)
    try:
        cuts = sorted(source.choices(range(len(data) + 1), k=3))
        split = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        whole = frames_of(make, [data])
        assert frames_of(make, split) == whole, "whole and split differ"
        bytewise = [data[i : i + 1] for i in range(len(data))]
        assert frames_of(make, bytewise) == whole, "whole and byte by byte differ"
        block = data[data.find(b"NATS/1.0") :] if b"NATS/1.0" in data else data
        try:
            parse_headers(block)
        except ProtocolError:
            pass  # the documented answer to a malformed block
    except Exception as error:
        raise AssertionError(f"input {data!r}") from error
    return data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="run this one seed's inputs")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    inputs, seed = 0, arguments.seed if arguments.seed is not None else time.time_ns()
    while time.monotonic() < deadline:
        source = random.Random(seed)
        for _ in range(1000):
            try:
                try_one(source)
            except AssertionError as error:
                print(f"seed {seed}: {error}: {error.__cause__!r}", file=sys.stderr)
                sys.exit(1)
            inputs += 1
        if arguments.seed is not None:
            break
        seed += 1
    print(f"{inputs:,} inputs, nothing undocumented")


if __name__ == "__main__":
    main()
