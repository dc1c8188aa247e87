"""Feed the parsers garbage: what they promise has to hold for every input.

    python fuzz/run.py                          every target for ten seconds
    python fuzz/run.py conf --inputs 10000000   one, so many inputs
    python fuzz/run.py api --seed 7             another part of the sequence

Inputs come from a small corpus and a seeded generator, so that a failure is found again with the seed that is
printed; the input is kept in ``fuzz/kept/<target>/``, where the tests play it from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
import traceback
from pathlib import Path

import target_api
import target_conf
import target_headers
import target_jwt
import target_protocol
import target_store
import target_websocket
from mutation import Target, mutated

KEPT = Path(__file__).resolve().parent / "kept"
TARGETS = {
    target.name: target
    for target in (
        target_protocol.TARGET,
        target_headers.TARGET,
        target_api.TARGET,
        *target_conf.TARGETS,
        target_jwt.TARGET,
        target_websocket.TARGET,
        *target_store.TARGETS,
    )
}
_STEP = 100


def keep(target: Target, data: bytes) -> Path:
    """Put an input that failed where the tests find it."""
    path = KEPT / target.name / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def run(target: Target, inputs: int | None, seconds: float, seed: int) -> bool:
    """Whether ``target`` keeps its promises, for so many inputs or so long."""
    rng = random.Random(f"{target.name} {seed}")
    begun = shown = time.monotonic()
    count = 0
    while count < inputs if inputs else time.monotonic() - begun < seconds:
        for _ in range(_STEP):
            data = mutated(target, rng)
            try:
                target.check(data, rng)
            except Exception:
                traceback.print_exc()
                path = keep(target, data)
                print(f"{target.name}: seed {seed}, input {count}, kept as {path}", file=sys.stderr)
                return False
            count += 1
        if sys.stderr.isatty() and time.monotonic() - shown > 1:
            shown = time.monotonic()
            print(f"\r{target.name}: {count:,}", end="", file=sys.stderr)
    took = time.monotonic() - begun
    print(
        f"{target.name}: {count:,} inputs in {took:.0f} s ({count / took:,.0f}/s), seed {seed}: good"
    )
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz what reads from strangers and from disks.")
    parser.add_argument("target", nargs="*", help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each (default: 10)")
    parser.add_argument("--inputs", type=int, help="so many inputs each, however long that takes")
    parser.add_argument("--seed", type=int, default=1, help="of the generator (default: 1)")
    arguments = parser.parse_args()
    unknown = set(arguments.target) - set(TARGETS)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there is {', '.join(TARGETS)}")
    chosen = arguments.target or list(TARGETS)
    good = [
        run(TARGETS[name], arguments.inputs, arguments.seconds, arguments.seed) for name in chosen
    ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
