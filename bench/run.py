#!/usr/bin/env python3
"""The figures of docs/benchmarks.md. ``bench/run.py`` makes all of them, a name makes one."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable

import buckets
import clients
import contenders
import copying
import costs
import fairness
import fetching
import filters
import footprint
import groups
import growth
import idle
import inprocess
import ourclient
import pins
import publishing
import queues
import removals
import report
import scaling
import spark
import spark_sink
import starting
import survey
import takeover
import takeovers

BENCHMARKS = (
    "publishing",
    "fetching",
    "clients",
    "inprocess",
    "scaling",
    "buckets",
    "copying",
    "footprint",
    "idle",
    "pins",
    "filters",
    "queues",
    "costs",
    "starting",
    "removals",
    "fairness",
    "groups",
    "spark",
    "spark_sink",
    "survey",
    "growth",
    "takeover",
    "takeovers",
)


ON_REQUEST = frozenset({"survey", "growth", "takeovers", "footprint"})
"""Of them, those that a run of all leaves out."""


def main() -> None:
    parser = _parser()
    arguments = parser.parse_args()
    # Whoever ends it, what it has started is ended, and what was measured is shown.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ourclient.loop_name = arguments.loop
    unknown = set(arguments.benchmark) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there is {', '.join(BENCHMARKS)}")
    runs = _runs(arguments)
    for name in arguments.benchmark or [n for n in BENCHMARKS if n not in ON_REQUEST]:
        runs[name]()
    report.summary()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    names = f"of {', '.join(BENCHMARKS)} (default: all but survey, growth, takeovers and footprint)"
    parser.add_argument("benchmark", nargs="*", help=names)
    parser.add_argument(
        "--rounds",
        type=int,
        help="rounds per figure; of `takeover`: takeovers per row (default: 5, of `takeover` 10)",
    )
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
        help="of `clients --peer`, `fairness`, `removals`, `groups`, `spark`, `survey`, `growth`,"
        " `takeover`: a part of the names of rows (may be repeated)",
    )
    parser.add_argument(
        "--beside",
        metavar="DIR",
        help="of `survey` and `clients`: another checkout of Headrace, measured in turn",
    )
    parser.add_argument(
        "--peer", choices=["natsio"], help="of `clients`: this client instead of nats-py"
    )
    parser.add_argument(
        "--storage", choices=removals.STORAGES, help="of `removals`: only streams kept there"
    )
    parser.add_argument(
        "--link",
        action="append",
        type=float,
        default=[],
        metavar="MS",
        help="of `takeovers`: only this round trip, in milliseconds (may be repeated)",
    )
    parser.add_argument(
        "--rate", type=int, default=takeovers.RATE, help="of `takeovers`: messages a second"
    )
    return parser


def _runs(arguments: argparse.Namespace) -> dict[str, Callable[[], object]]:
    """Each benchmark, as the arguments want it."""
    rounds, only = arguments.rounds or 5, arguments.only
    servers = [s for s in contenders.ALL if not arguments.server or s.name in arguments.server]
    two = [s for s in servers if arguments.server or s is not contenders.NATS_ALWAYS]
    publishers = arguments.publisher or list(publishing.PUBLISHERS)
    million = 100_000 if arguments.small else 1_000_000
    storages = [arguments.storage] if arguments.storage else removals.STORAGES
    attacked = servers if arguments.server else [contenders.HEADRACE]
    return {
        "publishing": lambda: publishing.run(rounds, servers, publishers),
        "fetching": lambda: fetching.run(rounds),
        "clients": lambda: clients.run(
            rounds, arguments.beside, arguments.peer, servers if arguments.server else (), only
        ),
        "inprocess": lambda: inprocess.run(rounds),
        "scaling": lambda: scaling.run(two),
        "buckets": lambda: buckets.run(rounds, two),
        "copying": lambda: copying.run(rounds, two),
        "footprint": lambda: footprint.run(two, only),
        "idle": lambda: idle.run(rounds, two),
        "pins": lambda: pins.run(rounds, two),
        "filters": lambda: filters.run(rounds, two),
        "queues": lambda: queues.run(rounds, two),
        "costs": lambda: costs.run(rounds, costs.SMALL if arguments.small else costs.FULL),
        "starting": lambda: starting.run(rounds, two),
        "removals": lambda: removals.run(two, million, only, storages),
        "fairness": lambda: fairness.run(
            attacked, quick=arguments.quick, seconds=arguments.seconds, only=only
        ),
        "groups": lambda: groups.run(rounds, two, only),
        "spark": lambda: spark.run(rounds, only),
        "spark_sink": lambda: spark_sink.run(rounds, servers),
        "survey": lambda: survey.run(min(rounds, 3), two, only, arguments.beside),
        "growth": lambda: growth.run(min(rounds, 3), two, only),
        "takeover": lambda: takeover.run(arguments.rounds or 10, two, only),
        "takeovers": lambda: takeovers.run(
            arguments.rounds or 3, two, arguments.link, arguments.rate, only
        ),
    }


if __name__ == "__main__":
    main()
