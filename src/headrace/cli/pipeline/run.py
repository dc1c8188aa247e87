"""Runs the command once more in the place of this process, whose Java was lost.

Python objects all over the process, also those of users' modules, are handles of that Java. So nothing of it
is used again: number, output and parent stay, everything else is new.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from ...errors import HeadraceError
from ...pipeline import resets
from ...pipeline.checking.refusals import refusals
from ...pipeline.checking.sources_and_sinks import check
from ...pipeline.checkpoints.checkpoint import exclusively
from ...pipeline.declaring.reading import read
from ...pipeline.failures.supervising import VARIABLE, JavaLost
from ...pipeline.model import Consent, PipelineError, Problem
from ...pipeline.status.meter import Meter
from ...pipeline.status.notes import Presence, this_process
from ...pipeline.status.publishing import Publisher
from ...pipeline.status.recorder import Recorder, told
from .. import INTERRUPTED
from ..shared.output import Output
from ..shared.verbs import offline
from .file import FILE, MISTAKEN, PROFILE, opened, status_of_problems, tell_problems

if TYPE_CHECKING:
    from ...pipeline.running.runner import Ended


def begin_anew(lost: JavaLost, environment: Mapping[str, str]) -> NoReturn:
    """Begin it. ``environment``: as it was before a session added its own to it."""
    sys.stdout.flush()
    sys.stderr.flush()
    _bury_children()
    given = {**environment, VARIABLE: str(lost)}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], given)  # noqa: S606


def _bury_children() -> None:
    """Those that have ended would stay in the list of processes: nobody asks for them any more."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


AGAIN = click.option(
    "--again", is_flag=True, help="write rows again that were written before a checkpoint was lost"
)
ACCEPT = click.option(
    "--accept-changes",
    is_flag=True,
    help="keep the state of a query though its meaning has changed",
)


@offline(FILE, PROFILE, AGAIN, ACCEPT)
def run(output: Output, file: Path, profile: str, again: bool, accept_changes: bool) -> int:
    """Run the queries of a pipeline's FILE, each by its trigger, until Ctrl-C.

    Ctrl-C lets running batches finish; a second one ends at once. The next run goes on where this one
    stopped. On a terminal it shows each query's progress, elsewhere (or with --json) a line of JSON for
    each batch.
    """
    return _run(output, file, profile, once=False, consent=Consent(again, accept_changes))


@offline(FILE, PROFILE, AGAIN, ACCEPT)
def once(output: Output, file: Path, profile: str, again: bool, accept_changes: bool) -> int:
    """Process what is in the sources now, then end: 0 if every query did, 1 if one failed, 4 if the file has
    mistakes.

    Triggers of the file are ignored.
    """
    return _run(output, file, profile, once=True, consent=Consent(again, accept_changes))


def _run(output: Output, file: Path, profile: str, *, once: bool, consent: Consent) -> int:
    given = dict(os.environ)
    try:
        declared = read(file, profile)
    except PipelineError as error:
        _refuse(output, error.problems)
        return MISTAKEN
    problems, _ = check(declared)
    if not problems and declared.lease is None:  # with a lease it may change until it is ours
        problems = refusals(declared, again=consent.again)
    recorder = Recorder(declared, this_process(), time.time)
    if problems:
        recorder.refused("\n".join(map(str, problems)))
        _refuse(output, problems)
        return status_of_problems(problems, MISTAKEN)
    from ...pipeline.running.life import Life
    from .screen import Lines, screen_of

    with screen_of(output, declared) as screen:
        meter = Meter(declared, recorder)
        publisher = Publisher(declared, recorder, meter)
        presence = Presence(declared, this_process(), time.time)
        watcher = told(screen, recorder, meter, publisher, presence)
        life = Life(declared, watcher, once=once, consent=consent)
        try:
            ended = life.run()
        except HeadraceError as error:
            recorder.broke(str(error))
            if isinstance(screen, Lines):
                screen.refused([str(error)])
            raise
        finally:
            meter.close()
            publisher.close(is_over=life.begins_anew is None)
            if life.begins_anew is None:
                recorder.over()
            presence.close()
        if life.begins_anew is None:
            screen.summary(ended)
    if life.begins_anew is not None:
        begin_anew(life.begins_anew, given)
    return _status(ended, life.signals)


def _refuse(output: Output, problems: Sequence[Problem]) -> None:
    """Tell mistakes as what else is told of a run: for programs as an event in a line."""
    if output.is_text:
        tell_problems(output, problems)
        return
    from .screen import Lines

    Lines().refused(problems)


def _status(ended: list[Ended], signals: dict[str, int]) -> int:
    for each in ended:
        if each.problem is not None:
            print(each.problem, file=sys.stderr)
    if any(each.state == "failed" for each in ended):
        return 1
    return INTERRUPTED if "SIGINT" in signals else 0


@offline(
    FILE,
    PROFILE,
    click.option("--query", required=True, metavar="NAME", help="whose rows are made again"),
    click.option(
        "--from", "begin", required=True, metavar="WHERE", help="earliest, a sequence or a time"
    ),
    click.option(
        "--to", "end", default="latest", metavar="WHERE", help="inclusive (a time is not)"
    ),
    click.option("--as", "name", required=True, metavar="NAME", help="sets the results apart"),
    click.option(
        "--into", default="", metavar="SINK", help="the sink whose format and options are used"
    ),
)
def replay(
    output: Output, file: Path, profile: str, query: str, begin: str, end: str, name: str, into: str
) -> int:
    """Run a range of the streams through a query again, as one batch.

    Files go to a folder of their own, <path>-<NAME>; messages are published under a sinkId of their own. The
    checkpoint of the query is not touched.
    """
    declared = opened(output, file, profile)
    if declared is None:
        return MISTAKEN
    (sink,) = resets.chosen(declared, [query])
    (target,) = resets.chosen(declared, [into or query])
    first, last = resets.parse_position(begin), resets.parse_position(end)
    from ...pipeline.running.run import replay as again
    from ...pipeline.running.run import session_of

    with exclusively(declared, replay=f"{target.name}-{name}"):
        spark = session_of(declared)
        try:
            lacking = again(declared, spark, sink, target, name, first, last)
        except PipelineError as error:
            tell_problems(output, error.problems)
            return 1
        finally:
            spark.stop()
    document = {"query": query, "as": name, "from": str(first), "to": str(last), "partial": lacking}
    output.line(document, "\n".join(["done", *lacking]))
    return 0
