"""Publish a year of real flights, follow every aircraft with Spark, and draw how delays carry over.

Run it again and it continues where it stopped. If you run it with --limit first and without it later, the
second run processes exactly the new messages.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

INTERRUPTED = 130  # the status shells use for a program ended by Ctrl-C


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the demo's flags."""
    parser.add_argument(
        "--dir",
        dest="directory",
        type=Path,
        default=Path("demo-output"),
        metavar="DIR",
        help="directory for the broker's store, the checkpoint and the results (default: %(default)s)",
    )
    parser.add_argument(
        "--limit",
        type=_count,
        metavar="N",
        help="publish only the first N flights; a later run with a larger N, or none, adds the rest",
    )
    parser.add_argument(
        "--batch",
        type=_count,
        default=90_000,
        metavar="N",
        help="maximum number of flights in one micro-batch (default: %(default)s)",
    )
    parser.add_argument(
        "--port", type=_port, default=0, help="the embedded broker's port (default: any free one)"
    )
    parser.add_argument(
        "--reset", action="store_true", help="start again: remove earlier output first"
    )
    parser.add_argument(
        "--spark-master",
        default="local[2]",
        metavar="URL",
        help="Spark master URL (default: %(default)s)",
    )
    parser.add_argument(
        "--server",
        default="",
        metavar="URL",
        help="use this NATS server with JetStream instead of the embedded broker",
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo. Returns 0, or 1 after one sentence on standard error, or 130 after Ctrl-C."""
    from ..demo.errors import DemoError, explain
    from ..demo.run import DemoSettings, check_packages, run_demo
    from ..demo.screen import Screen

    settings = DemoSettings(**vars(args))
    try:
        check_packages()
    except DemoError as error:
        print(f"headrace demo: {error}", file=sys.stderr)
        return 1
    screen = Screen()
    try:
        run_demo(settings, screen)
    except KeyboardInterrupt:
        screen.complain("interrupted; nothing is lost, the same command goes on from here.")
        return INTERRUPTED
    except Exception as error:
        screen.complain(explain(error, args.directory, args.directory / "spark.log"))
        return 1
    finally:
        screen.close()
    return 0


def _count(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of flights, at least 1")
    return number


def _port(text: str) -> int:
    number = int(text) if text.isdigit() else -1
    if not 0 <= number <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 0 to 65535")
    return number
