#!/usr/bin/env python3
"""The figures of docs/benchmarks.md. ``bench/run.py`` makes all of them, a name makes one."""

from __future__ import annotations

import argparse

import buckets
import clients
import contenders
import copying
import costs
import fairness
import fetching
import filters
import groups
import idle
import inprocess
import ourclient
import pins
import publishing
import queues
import removals
import report
import scaling
import starting

BENCHMARKS = (
    "publishing",
    "fetching",
    "clients",
    "inprocess",
    "scaling",
    "buckets",
    "copying",
    "idle",
    "pins",
    "filters",
    "queues",
    "costs",
    "starting",
    "removals",
    "fairness",
    "groups",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmark", nargs="*", help=f"of {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per figure (default: 5)")
    parser.add_argument(
        "--server",
        action="append",
        choices=[each.name for each in contenders.ALL],
        help="only this server (may be given several times)",
    )
    parser.add_argument(
        "--publisher",
        action="append",
        choices=list(publishing.PUBLISHERS),
        help="only this publisher (may be given several times)",
    )
    parser.add_argument(
        "--loop", choices=ourclient.LOOPS, default="asyncio", help="event loop of the clients"
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="a tenth of the messages, for trying out `costs` and `removals`",
    )
    parser.add_argument(
        "--quick", action="store_true", help="seconds instead of minutes, for trying out `fairness`"
    )
    parser.add_argument(
        "--seconds", type=float, help="of `fairness`: how long each attack lasts (default: 10)"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="of `fairness`, `removals`, `groups`: what a row's name contains (may be given several times)",
    )
    parser.add_argument(
        "--storage", choices=removals.STORAGES, help="of `removals`: only streams kept there"
    )
    arguments = parser.parse_args()
    ourclient.loop_name = arguments.loop
    unknown = set(arguments.benchmark) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there is {', '.join(BENCHMARKS)}")
    chosen = arguments.benchmark or BENCHMARKS
    servers = [s for s in contenders.ALL if not arguments.server or s.name in arguments.server]
    if "publishing" in chosen:
        publishers = arguments.publisher or list(publishing.PUBLISHERS)
        publishing.run(arguments.rounds, servers, publishers)
    if "fetching" in chosen:
        fetching.run(arguments.rounds)
    if "clients" in chosen:
        clients.run(arguments.rounds)
    if "inprocess" in chosen:
        inprocess.run(arguments.rounds)
    if "scaling" in chosen:
        scaling.run([s for s in servers if s is not contenders.NATS_ALWAYS])
    if "buckets" in chosen:
        buckets.run(arguments.rounds, [s for s in servers if s is not contenders.NATS_ALWAYS])
    if "copying" in chosen:
        copying.run([s for s in servers if s is not contenders.NATS_ALWAYS])
    if "idle" in chosen:
        idle.run(arguments.rounds, [s for s in servers if s is not contenders.NATS_ALWAYS])
    if "pins" in chosen:
        pins.run(arguments.rounds, [s for s in servers if s is not contenders.NATS_ALWAYS])
    if "filters" in chosen:
        filters.run(arguments.rounds, [s for s in servers if s is not contenders.NATS_ALWAYS])
    if "queues" in chosen:
        queues.run(arguments.rounds, [s for s in servers if s is not contenders.NATS_ALWAYS])
    if "costs" in chosen:
        costs.run(arguments.rounds, costs.SMALL if arguments.small else costs.FULL)
    if "starting" in chosen:
        starting.run(arguments.rounds, [s for s in servers if s is not contenders.NATS_ALWAYS])
    if "removals" in chosen:
        million = 100_000 if arguments.small else 1_000_000
        removals.run(
            [s for s in servers if s is not contenders.NATS_ALWAYS],
            million,
            arguments.only,
            [arguments.storage] if arguments.storage else removals.STORAGES,
        )
    if "fairness" in chosen:
        fairness.run(
            servers if arguments.server else [contenders.HEADRACE],
            quick=arguments.quick,
            seconds=arguments.seconds,
            only=arguments.only,
        )
    if "groups" in chosen:
        groups.run(
            arguments.rounds,
            [s for s in servers if s is not contenders.NATS_ALWAYS],
            arguments.only,
        )
    report.summary()


if __name__ == "__main__":
    main()
