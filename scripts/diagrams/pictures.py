"""Each picture of the pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .canvas import AMBER, BLUE, GREEN, QUIET, RED, Canvas
from .flights import demo


def whole() -> Canvas:
    """What Headrace is, in one picture."""
    sheet = Canvas(
        900, 440,
        "Publishers write to a stream on disk; consumers remember who has handled what; workers, groups, "
        "Spark and HTTP endpoints take from them at their own rate.",
    )  # fmt: skip
    sheet.box(20, 84, 140, 54, "Publishers", "any NATS client")
    sheet.box(20, 348, 140, 54, "Web hooks", "curl, HTTP clients")
    sheet.frame(220, 24, 390, 290, "headrace serve: one process, or a NATS cluster")
    sheet.text(242, 76, "Stream ORDERS", is_bold=True)
    sheet.row(242, 90, ["1", "2", "3", "4", "5", "6", "7", "8", "…"], width=39)
    sheet.text(242, 138, "acknowledged: on disk; replayed from any time", size=12, colour=QUIET)
    sheet.box(242, 152, 346, 44, "Consumer “billing”", "handled up to 5", colour=GREEN)
    sheet.box(242, 204, 346, 44, "Group “shipping”", "4 partitions, by key", colour=GREEN)
    sheet.box(242, 256, 346, 44, "Consumer “lake”", "handled up to 8", colour=GREEN)
    sheet.frame(220, 326, 390, 96, "headrace jobs: SQLite, PostgreSQL")
    sheet.box(242, 356, 346, 50, "Jobs", "retries, schedules, dead letters", colour=AMBER)
    sheet.arrow(162, 110, 236, 106, "publish")
    sheet.arrow(162, 377, 236, 381, "POST", colour=AMBER)
    sheet.box(700, 84, 180, 54, "Worker", "fetch, next, consume")
    sheet.box(700, 160, 180, 54, "Members", "in order for each key")
    sheet.box(700, 236, 180, 54, "Spark", "source, sink, pipelines")
    sheet.box(700, 352, 180, 54, "Endpoint, worker", "signed push, or pull", colour=AMBER)
    sheet.arrow(698, 111, 592, 170, "", colour=GREEN)
    sheet.arrow(698, 187, 592, 224, "", colour=GREEN)
    sheet.arrow(698, 263, 592, 276, "", colour=GREEN)
    sheet.arrow(592, 380, 694, 380, "", colour=AMBER)
    sheet.text(700, 66, "pull: “10 more, please”", colour=GREEN, size=12)
    sheet.text(700, 38, "headrace console: all of it", colour=QUIET, size=12)
    return sheet


def pull() -> Canvas:
    """A pull request from the worker to the disk and back."""
    sheet = Canvas(
        860, 300,
        "A worker asks for ten messages, the consumer gives what there is, the worker acknowledges; what is "
        "not acknowledged comes again.",
    )  # fmt: skip
    sheet.text(30, 40, "Stream", is_bold=True)
    cells = [str(number) for number in range(1, 11)]
    colours = [QUIET] * 4 + [AMBER] * 3 + [BLUE] * 3
    sheet.row(30, 52, cells, width=40, colours=colours)
    sheet.text(30, 106, "1–4 acknowledged", colour=QUIET, size=12)
    sheet.text(190, 106, "5–7 handed out", colour=AMBER, size=12)
    sheet.text(310, 106, "8–10 waiting", colour=BLUE, size=12)
    sheet.box(30, 170, 400, 84, "Consumer", "remembers what is acknowledged, and what is out",
              "handed out longer than ack_wait: comes again", colour=GREEN)  # fmt: skip
    sheet.arrow(230, 114, 230, 164, "")
    sheet.box(670, 150, 160, 124, "Worker", "asks at its own rate")
    sheet.arrow(668, 178, 436, 178, "1  pull: at most 10, wait 1 s", colour=GREEN)
    sheet.arrow(432, 212, 664, 212, "2  messages 8, 9, 10", colour=BLUE)
    sheet.arrow(668, 246, 436, 246, "3  acknowledge each, or the last", colour=GREEN)
    return sheet


def priority() -> Canvas:
    """The policies overflow and pinned_client."""
    sheet = Canvas(
        880, 330,
        "Overflow: a helper gets messages only when enough are waiting. Pinned client: one worker gets all "
        "messages until it is silent, then the next one does.",
    )  # fmt: skip
    sheet.text(30, 38, "overflow", is_bold=True, size=16)
    sheet.box(30, 60, 150, 70, "Consumer", "1,200 waiting", colour=GREEN)
    sheet.box(270, 50, 140, 50, "Worker", "asks, always gets")
    sheet.box(270, 130, 140, 66, "Helper", "min_pending 1,000", colour=AMBER)
    sheet.arrow(182, 80, 266, 75)
    sheet.arrow(182, 112, 266, 158, "", colour=AMBER)
    sheet.text(30, 240, "The helper gets messages while 1,000 or more wait,", size=12, colour=QUIET)
    sheet.text(
        30, 258, "and none below: it sleeps when the worker keeps up.", size=12, colour=QUIET
    )
    sheet.text(470, 38, "pinned_client", is_bold=True, size=16)
    sheet.box(470, 60, 150, 70, "Consumer", "pinned to A", colour=GREEN)
    sheet.box(710, 50, 140, 50, "Worker A", "has the pin")
    sheet.box(710, 130, 140, 66, "Worker B", "stands by", colour=QUIET, is_dashed=True)
    sheet.arrow(622, 80, 706, 75)
    sheet.arrow(622, 112, 706, 158, "", colour=QUIET, is_dashed=True)
    sheet.text(
        470, 240, "All messages go to A, in order. If A is silent for", size=12, colour=QUIET
    )
    sheet.text(470, 258, "priority_timeout, or unpinned, B gets the pin.", size=12, colour=QUIET)
    sheet.text(
        470, 276, "What A has then stays with A until ack_wait is over.", size=12, colour=QUIET
    )
    return sheet


def elastic() -> Canvas:
    """Who copies what where in an elastic group."""
    sheet = Canvas(
        900, 400,
        "The work queue of an elastic group copies its stream and numbers each message with the partition of "
        "its key. Each member has a pinned consumer for its partitions; a second instance stands by.",
    )  # fmt: skip
    sheet.text(30, 40, "Stream ORDERS", is_bold=True)
    sheet.row(30, 52, ["a", "b", "c", "a", "d", "b"], width=36)
    sheet.text(30, 104, "subjects orders.<customer>", size=12, colour=QUIET)
    sheet.arrow(130, 116, 130, 168, "", colour=BLUE)
    sheet.text(142, 146, "the server copies, and puts the partition in front", size=12, colour=BLUE)
    sheet.text(30, 196, "Work queue ORDERS-billing", is_bold=True)
    sheet.row(30, 208, ["0.a", "2.b", "1.c", "0.a", "3.d", "2.b"], width=46,
              colours=[GREEN, AMBER, GREEN, GREEN, AMBER, AMBER])  # fmt: skip
    sheet.text(30, 260, "a message leaves when it is acknowledged", size=12, colour=QUIET)
    sheet.box(400, 170, 170, 60, "Consumer “ann”", "partitions 0, 1", colour=GREEN)
    sheet.box(400, 262, 170, 60, "Consumer “bob”", "partitions 2, 3", colour=AMBER)
    sheet.arrow(312, 216, 394, 204, "", colour=GREEN)
    sheet.arrow(312, 232, 394, 284, "", colour=AMBER)
    sheet.box(690, 128, 180, 50, "ann, pinned", "works", colour=GREEN)
    sheet.box(
        690, 194, 180, 50, "ann, 2nd instance", "stands by, warm", colour=QUIET, is_dashed=True
    )
    sheet.box(690, 268, 180, 50, "bob, pinned", "works", colour=AMBER)
    sheet.arrow(572, 192, 686, 156, "", colour=GREEN)
    sheet.arrow(572, 206, 686, 218, "", colour=QUIET, is_dashed=True)
    sheet.arrow(572, 292, 686, 292, "", colour=AMBER)
    sheet.text(30, 356, "A key lives in one partition; a partition has one member; one instance has its pin:",
               size=12, colour=QUIET)  # fmt: skip
    sheet.text(
        30,
        374,
        "so the messages of a key are handled in order, whoever comes, goes or dies.",
        size=12,
        colour=QUIET,
    )
    return sheet


def exactly_once() -> Canvas:
    """A batch of a pipeline, and what a failure at each step costs."""
    sheet = Canvas(
        900, 330,
        "Spark notes the range of a batch, reads it, writes the rows with a marker of the batch, and notes "
        "that it is done. After a failure the same range is read again, and a marker that is there says that "
        "nothing is to be written.",
    )  # fmt: skip
    steps = [
        ("1  Range noted", "checkpoint:", "5,001 to 6,000", BLUE),
        ("2  Range read", "the same rows,", "each time", BLUE),
        ("3  Rows and marker", "written together,", "or neither", GREEN),
        ("4  Batch noted", "checkpoint:", "done", BLUE),
    ]
    for number, (name, one, two, colour) in enumerate(steps):
        left = 24 + number * 220
        sheet.box(left, 60, 176, 84, name, one, two, colour=colour)
        if number:
            sheet.arrow(left - 42, 102, left - 4, 102)
    sheet.text(24, 38, "One batch", is_bold=True, size=16)
    sheet.text(24, 190, "After a failure", is_bold=True, size=16)
    sheet.row(24, 206, ["before 3"], width=150, colours=[QUIET])
    sheet.text(190, 226, "the range is read again, and written: nothing is lost", size=13)
    sheet.row(24, 246, ["between 3 and 4"], width=150, colours=[GREEN])
    sheet.text(
        190, 266, "the range is read again; its marker is there: nothing is written twice", size=13
    )
    sheet.row(24, 286, ["a frozen runner"], width=150, colours=[RED])
    sheet.text(
        190, 306, "wakes after another took over: the sink refuses its older generation", size=13
    )
    return sheet


def store() -> Canvas:
    """From a publish to its acknowledgement."""
    sheet = Canvas(
        900, 320,
        "Publishes of all connections are staged and written together; the acknowledgements leave after the "
        "disk has said that it is written and synced.",
    )  # fmt: skip
    for number in range(3):
        sheet.box(24, 56 + number * 66, 120, 46, f"Publisher {number + 1}")
        sheet.arrow(146, 79 + number * 66, 216, 138, "", colour=BLUE)
    sheet.box(220, 96, 150, 84, "Staged", "in memory,", "numbered", colour=AMBER)
    sheet.arrow(372, 138, 444, 138, "a turn")
    sheet.box(
        448, 96, 170, 84, "Commit thread", "one write, one sync", "for all that came", colour=BLUE
    )
    sheet.arrow(620, 138, 692, 138, "")
    sheet.text(700, 84, "Segments", is_bold=True)
    sheet.row(700, 98, ["1", "2", "3", "…"], width=44)
    sheet.row(700, 140, ["9", "10", "11", "…"], width=44)
    sheet.text(700, 192, "checksums, index, removals", size=12, colour=QUIET)
    sheet.arrow(690, 236, 150, 236, "on disk: acknowledged, and shown to consumers", colour=GREEN)
    sheet.text(24, 284, "A kill or power cut loses nothing acknowledged. A damaged record costs only itself.",
               size=12, colour=QUIET)  # fmt: skip
    return sheet


PICTURES: Final[dict[str, Callable[[], Canvas]]] = {
    "headrace": whole,
    "demo": demo,
    "pull": pull,
    "priority-groups": priority,
    "elastic-group": elastic,
    "exactly-once": exactly_once,
    "store": store,
}
"""By the name of their file."""
