"""Fuzz the parsers: they never raise, keep little, and read the same however input is cut.

    python fuzz/fuzz_parser.py --seconds 60 [--seed 1]

mutates a small corpus with a seeded generator, so that a failure is found again with the seed it prints.
If atheris is importable its coverage-guided engine is used instead; its own arguments follow ``--``.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import time
from collections.abc import Iterator

from headrace.errors import ProtocolError
from headrace.wire import BAD, Frame, Parser, encode, parse_headers

PAYLOAD_MAX = 256
LINE_MAX = 64
FRAME_MAX = PAYLOAD_MAX + LINE_MAX + len(b"CONNECT \r\n\r\n")
BYTEWISE_MAX = 600

BLOCK = b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"
CORPUS = [
    encode.connect(b'{"verbose":false}') + encode.ping(),
    encode.pub(b"orders.eu", b"_INBOX.a.1", b"", b"x" * 100) * 3,
    encode.pub(b"orders.eu", b"", BLOCK, b"hello") + encode.pub(b"a", b"r", BLOCK, b""),
    encode.sub(b"a.>", b"", b"1") + encode.sub(b"a.*", b"q", b"2") + encode.unsub(b"1", 5),
    encode.info(b'{"max_payload":1024}') + encode.ok() + encode.err("Stale Connection"),
    encode.msg(b"orders.eu", b"1", b"$JS.ACK.S.C.1.2.3.4.5", b"", b"x" * 30) * 2,
    encode.msg(b"a", b"1", b"", BLOCK, b"hi") + encode.pong(),
    b"pub\ta   5 \r\nhello\r\nPUB a 5\nhello\r\nPiNg\n",
]
TOKENS = [
    *(b"\r\n", b"\n", b"\r", b" ", b"\t", b"\0", b"0", b"5", b"256", b"257", b"999999999", b"-1"),
    *(b"PUB ", b"HPUB ", b"SUB ", b"UNSUB ", b"CONNECT ", b"MSG ", b"HMSG ", b"+OK", b"-ERR "),
    *(b"PING\r\n", b"INFO {}\r\n", b"x" * LINE_MAX, b"y" * PAYLOAD_MAX, BLOCK),
]


def mutated(rng: random.Random) -> bytes:
    """Some corpus entries in a row, with a few small accidents."""
    data = bytearray(b"".join(rng.choices(CORPUS, k=rng.randint(1, 3))))
    for _ in range(rng.choice((0, 1, 1, 2, 4, 8))):
        at = rng.randrange(len(data) + 1)
        until = min(len(data), at + rng.choice((0, 0, 1, 1, 2, 16)))
        accident = rng.randrange(4)
        if accident == 0:
            data[at:until] = rng.choice(TOKENS)
        elif accident == 1:
            data[at:until] = rng.randbytes(rng.randint(0, 3))
        elif accident == 2:
            del data[at:until]
        else:
            data[at:at] = data[at:until]
    return bytes(data)


def outcome(frames: list[Frame]) -> list[tuple[object, ...]]:
    """What a caller can tell apart: everything but the sentence of an error."""
    return [(BAD, type(f[1]), f[1].wire_text) if f[0] == BAD else f for f in frames]


def read(parser: Parser, chunks: Iterator[bytes]) -> list[tuple[object, ...]]:
    frames: list[tuple[object, ...]] = []
    for chunk in chunks:
        frames += outcome(parser.feed(chunk))
        assert parser.held_bytes <= FRAME_MAX, f"{parser.held_bytes} bytes kept"
    for frame in frames[:-1]:
        assert frame[0] != BAD, "frames after BAD"
    assert parser.is_deaf == bool(frames and frames[-1][0] == BAD)
    return frames


def cut(data: bytes, rng: random.Random) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        step = rng.choice((1, 2, 3, 7, 30, 200))
        yield data[at : at + step]
        at += step


def check(data: bytes, rng: random.Random) -> None:
    """Raise if the parsers do not do what they promise with ``data``."""
    for make in (Parser.for_server, Parser.for_client):
        whole, chunked, bytewise = (
            make(max_payload=PAYLOAD_MAX, max_control_line=LINE_MAX) for _ in range(3)
        )
        expected = read(whole, iter([data]))
        assert read(chunked, cut(data, rng)) == expected, "chunked differs from whole"
        if len(data) <= BYTEWISE_MAX:
            bits = (data[at : at + 1] for at in range(len(data)))
            assert read(bytewise, bits) == expected, "byte by byte differs from whole"
    start = data.find(b"NATS/1.0")
    if start >= 0:
        try:
            parse_headers(data[start : data.find(b"\r\n\r\n", start) + 4])
        except ProtocolError:
            pass  # the documented answer to a malformed block


def run(seconds: float, seed: int) -> int:
    rng = random.Random(seed)
    until = time.monotonic() + seconds
    count = 0
    while time.monotonic() < until:
        for _ in range(100):
            data = mutated(rng)
            try:
                check(data, rng)
            except Exception as error:
                print(f"seed {seed}, input {count}: {error!r}\n{data!r}", file=sys.stderr)
                return 1
            count += 1
    print(f"{count} inputs in {seconds:g} s, seed {seed}: no difference")
    return 0


def run_atheris(arguments: list[str]) -> None:
    import atheris

    def one_input(data: bytes) -> None:
        check(data, random.Random(len(data)))

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], *arguments], one_input)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the protocol parser.")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to run")
    parser.add_argument("--seed", type=int, default=1, help="of the generator")
    parser.add_argument("--pure", action="store_true", help="do not use atheris")
    parser.add_argument("atheris", nargs="*", help="arguments for atheris, after --")
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") and not options.pure:
        run_atheris(options.atheris or [f"-max_total_time={options.seconds:.0f}"])
        return 0
    return run(options.seconds, options.seed)


if __name__ == "__main__":
    sys.exit(main())
