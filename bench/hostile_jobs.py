"""How long a neighbour waits for its publishes while a job service is attacked, each attack for a while.

    python bench/hostile_jobs.py                        # every attack, a minute of each
    python bench/hostile_jobs.py --seconds 10 heads guesses

Attackers have a process of their own; they, the service and the neighbour share the cores of this machine.
The first row is without an attack.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import report  # noqa: E402
from headrace.jobs.client import AsyncJobsClient  # noqa: E402
from jobs_attacks import ATTACKS, Attacking, Neighbour, Victim, serving, trusting  # noqa: E402
from waiting import elapse  # noqa: E402

NOBODY = "nobody"
P99_MS = 100.0
PAUSE_S = 0.02
"""Between two publishes of the neighbour."""


def attack(name: str, url: str, certificate: str, begun: object, steps: object) -> None:
    """Attack until the process is ended."""

    async def run() -> None:
        async with Attacking(name, Victim(url, trusting(certificate))) as going:
            begun.set()  # type: ignore[attr-defined]
            while True:
                await elapse(0.2, "as often as it is told how many steps there were")
                steps.value = going.steps  # type: ignore[attr-defined]

    asyncio.run(run())


async def measure(names: list[str], seconds: float) -> list[tuple[str, list[float], int]]:
    """The attacks, milliseconds of the neighbour's publishes during each, and its steps."""
    found = []
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        database = f"sqlite:///{directory}/jobs.db"
        async with (
            serving(Path(directory), database) as victim,
            AsyncJobsClient(victim.url, timeout_s=120, tls=victim.tls) as client,
        ):
            neighbour = Neighbour(client)
            for name in names:
                begun, steps = context.Event(), context.Value("q", 0)
                told = (name, victim.url, f"{directory}/cert.pem", begun, steps)
                process = context.Process(target=attack, args=told)
                if name != NOBODY:
                    process.start()
                    while not await asyncio.to_thread(begun.wait, 1.0):
                        assert process.is_alive(), f"{name} failed"
                try:
                    took = await waits(neighbour, seconds)
                    found.append((name, took, steps.value))
                    print(f"  {name}: {len(took)} publishes beside {steps.value} steps", flush=True)
                finally:
                    if name != NOBODY:
                        process.terminate()
                        process.join()
    return found


async def waits(neighbour: Neighbour, seconds: float) -> list[float]:
    took = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        begun = time.perf_counter()
        await neighbour.publish()
        took.append(1000 * (time.perf_counter() - begun))
        if len(took) % 50 == 0:
            await neighbour.work_off()
        await elapse(PAUSE_S, "the neighbour works, and is no load")
    return sorted(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each attack")
    parser.add_argument("attack", nargs="*", help=", ".join(ATTACKS))
    arguments = parser.parse_args()
    if unknown := set(arguments.attack) - set(ATTACKS):
        parser.error(f"no attack {', '.join(sorted(unknown))}; there is {', '.join(ATTACKS)}")
    names = [NOBODY, *(arguments.attack or ATTACKS)]
    rows = []
    for name, took, steps in asyncio.run(measure(names, arguments.seconds)):
        p99 = took[int(len(took) * 0.99)]
        shown = [f"{each:.1f}" for each in (took[len(took) // 2], p99, took[-1])]
        rows.append([name, f"{len(took):,}", f"{steps:,}", *shown])
        report.claim(
            f"jobs: a neighbour's publish, p99 during: {name}",
            f"{p99:.1f} ms",
            p99,
            at_most=P99_MS,
            unit=" ms",
        )
    head = ["attack", "publishes", "its steps", "p50 ms", "p99 ms", "longest ms"]
    report.table(f"A neighbour of attackers, {arguments.seconds:.0f} s each", head, rows)
    report.summary()


if __name__ == "__main__":
    main()
