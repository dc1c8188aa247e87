"""Feed the parsers garbage: what they promise has to hold for every input.

    python fuzz/run.py                              every target for ten seconds
    python fuzz/run.py conf --inputs 10000000       one, so many inputs
    python fuzz/run.py api --seed 7                 another part of the sequence
    python fuzz/run.py --processes 2 --total FILE   on two cores; goes on where the last run ended

Inputs come from a small corpus and a seeded generator, in batches that are numbered, so that a failure is
found again with the seed and the batch that are printed; the input is kept in ``fuzz/kept/<target>/``, where
the tests play it from then on. With ``--total`` a file holds how many inputs there were of each target, and
no batch is played twice, however many runs there are, one after the other or at the same time; ``--inputs``
then counts those of all runs together.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import random
import sys
import time
import traceback
from pathlib import Path

# Some targets stand on the tests' helpers.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import target_api
import target_conf
import target_headers
import target_jwt
import target_protocol
import target_schemas
import target_snapshots
import target_store
import target_websocket
from mutation import Target, mutated
from tally import FileTally, Tally

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
        *target_schemas.TARGETS,
        target_snapshots.TARGET,
        *target_store.TARGETS,
    )
}
BATCH = 500


def keep(target: Target, data: bytes) -> Path:
    """Put an input that failed where the tests find it."""
    path = KEPT / target.name / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def play(target: Target, seed: int, batch: int) -> bool:
    """Whether ``target`` keeps its promises for one batch of inputs."""
    rng = random.Random(f"{target.name} {seed} {batch}")
    for number in range(BATCH):
        data = mutated(target, rng)
        try:
            target.check(data, rng)
        except Exception:
            traceback.print_exc()
            path = keep(target, data)
            where = f"seed {seed}, batch {batch}, input {number}"
            print(f"{target.name}: {where}, kept as {path}", file=sys.stderr)
            return False
    return True


def work(target: Target, inputs: int | None, seconds: float, seed: int, tally: Tally) -> None:
    """Play batches until there were enough, or somebody's failed."""
    ends = time.monotonic() + seconds
    while inputs is not None or time.monotonic() < ends:
        batch = tally.begin(target.name, inputs, BATCH)
        if batch is None:
            return
        tally.end(target.name, BATCH, good=play(target, seed, batch))


def run(
    target: Target, inputs: int | None, seconds: float, seed: int, tally: Tally, processes: int
) -> bool:
    """Whether ``target`` keeps its promises, for so many inputs or so long."""
    begun, before = time.monotonic(), tally.inputs(target.name)
    if processes == 1:
        work(target, inputs, seconds, seed, tally)
    else:
        fork = multiprocessing.get_context("fork")
        arguments = (target, inputs, seconds, seed, tally)
        workers = [fork.Process(target=work, args=arguments) for _ in range(processes)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if any(worker.exitcode for worker in workers):
            print(f"{target.name}: a process ended by itself", file=sys.stderr)
            return False
    if tally.has_failed:
        return False
    took, total = time.monotonic() - begun, tally.inputs(target.name)
    count = total - before
    together = f", {total:,} with those before" if before else ""
    rate = f"{count / took:,.0f}/s"
    print(f"{target.name}: {count:,} inputs in {took:.0f} s ({rate}), seed {seed}{together}: good")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz what reads from strangers and from disks.")
    parser.add_argument("target", nargs="*", help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each (default: 10)")
    parser.add_argument("--inputs", type=int, help="so many inputs each, however long that takes")
    parser.add_argument("--seed", type=int, default=1, help="of the generator (default: 1)")
    parser.add_argument("--processes", type=int, default=1, help="at the same time (default: 1)")
    parser.add_argument("--total", type=Path, help="keep count in this file, and go on from there")
    arguments = parser.parse_args()
    unknown = set(arguments.target) - set(TARGETS)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there is {', '.join(TARGETS)}")
    if arguments.processes < 1:
        parser.error("at least one process")
    good = True
    for name in arguments.target or TARGETS:
        tally = Tally() if arguments.total is None else FileTally(arguments.total, arguments.seed)
        good &= run(
            TARGETS[name],
            arguments.inputs,
            arguments.seconds,
            arguments.seed,
            tally,
            arguments.processes,
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
