"""The checker of the members' log finds every fault it is there for, and takes no take-over for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_processes.worklog import Log, parse, read
from group_processes.worklog_checker import Verdict, check


def judged(*events: str) -> Verdict:
    """``events`` are ``worker what number.generation``, or without the last; two messages of one key."""
    lines = []
    for at, event in enumerate(events, 1):
        worker, what, *rest = event.split()
        if rest:
            number, generation = rest[0].split(".")
            rest = ["k", number, str(100 + int(number)), generation]
        lines.append(parse(" ".join([str(10 * at), worker, what, *rest])))
    return check(lines, {"k": 2})


def handled(worker: str, message: str) -> list[str]:
    return [f"{worker} {what} {message}" for what in ("begun", "done", "acked")]


def test_a_key_that_moves_in_order_is_no_fault() -> None:
    verdict = judged(*handled("a", "0.1"), *handled("b", "1.2"))
    assert not verdict.faults
    assert (verdict.handled, verdict.repeated, verdict.taken_over) == (2, 0, 0)


def test_what_a_killed_worker_had_begun_is_handled_again_by_another_one() -> None:
    verdict = judged("a begun 0.1", "a killed", *handled("b", "0.2"), *handled("b", "1.2"))
    assert not verdict.faults
    assert verdict.taken_over == 0


def test_what_was_done_and_not_acked_is_counted_as_repeated() -> None:
    verdict = judged(
        "a begun 0.1", "a done 0.1", "a killed", *handled("b", "0.2"), *handled("b", "1.2")
    )
    assert not verdict.faults
    assert verdict.repeated == 1


def test_a_frozen_worker_may_be_taken_over_by_a_newer_generation() -> None:
    events = ["a begun 0.1", "a out", *handled("b", "0.2"), "a back", "a done 0.1"]
    verdict = judged(*events, *handled("b", "1.2"))
    assert not verdict.faults
    assert verdict.taken_over == 1
    # Members of the other implementation tell no generation.
    assert not judged(*(event.replace(".1", ".0").replace(".2", ".0") for event in events),
                      *handled("b", "1.0")).faults  # fmt: skip


def test_servers_that_were_away_are_an_outage_of_all() -> None:
    events = ["a begun 0.1", "* out", "* back", *handled("b", "0.2"), "a done 0.1"]
    assert not judged(*events, *handled("b", "1.2")).faults


def test_what_is_acked_while_it_is_handled_again_was_not_acked_before() -> None:
    events = ["a begun 0.1", "a out", "b begun 0.2", "a back", "a done 0.1", "a acked 0.1"]
    assert not judged(*events, "b done 0.2", "b acked 0.2", *handled("b", "1.2")).faults


def test_a_stranger_that_was_out_begins_what_it_had_got_before() -> None:
    taken_over = ["a out", *handled("b", "0.2"), "b begun 1.2", "a back"]
    verdict = judged(*taken_over, *handled("a", "0.0"), "b done 1.2", "b acked 1.2")
    assert not verdict.faults
    assert verdict.stale == 1
    cut_off = ["a out", *handled("b", "0.2"), "b begun 1.2", *handled("a", "0.0"), "a back"]
    assert not judged(*cut_off, "b done 1.2", "b acked 1.2").faults
    # It is the first one only; and those that tell their generation may not at all.
    late = judged(
        *taken_over, *handled("a", "0.0"), *handled("a", "0.0"), "b done 1.2", "b acked 1.2"
    )
    assert {*late.faults} == {"overlapping", "acked_before"}
    ours = judged(*taken_over, *handled("a", "0.1"), "b done 1.2", "b acked 1.2")
    assert {*ours.faults} == {"overlapping", "acked_before", "outdated"}


def test_a_stranger_that_was_out_may_have_got_a_message_twice() -> None:
    twice = ["a out", "a back", *handled("a", "0.0"), *handled("a", "0.0")]
    assert not judged(*twice, *handled("a", "1.0")).faults
    again = judged(*twice, *handled("b", "0.0"), *handled("a", "1.0"))
    assert {*again.faults} == {"acked_before"}
    ours = judged(*(event.replace(".0", ".1") for event in twice), *handled("a", "1.1"))
    assert {*ours.faults} == {"acked_before"}


@pytest.mark.parametrize(
    ("fault", "events"),
    [
        ("lost", handled("a", "0.1")),
        ("lost", [*handled("a", "0.1"), "a begun 1.1", "a killed"]),
        ("overlapping", ["a begun 0.1", "b begun 1.2", "a done 0.1", "b done 1.2"]),
        ("overlapping", ["a begun 0.1", "a begun 1.1", "a done 0.1", "a done 1.1"]),
        # Out, but within one generation, or before it began, or after the other one began.
        ("overlapping", ["a begun 0.1", "a out", "b begun 1.1", "a back", "b done 1.1", "a done 0.1"]),
        ("overlapping", ["a out", "a back", "a begun 0.1", "b begun 1.2", "b done 1.2", "a done 0.1"]),
        ("overlapping", ["a begun 0.1", "b begun 1.2", "a out", "a back", "b done 1.2", "a done 0.1"]),
        # The same message in two handlers of one worker: the later one does not last for ever.
        ("overlapping", ["a begun 0.0", "a begun 0.0", "a done 0.0", "a done 0.0", *handled("a", "1.0")]),
        ("disordered", [*handled("a", "1.1"), *handled("a", "0.1")]),
        ("outdated", [*handled("a", "0.2"), *handled("b", "1.1")]),
        ("acked_before", [*handled("a", "0.1"), *handled("a", "0.1"), *handled("a", "1.1")]),
        ("unknown", [*handled("a", "0.1"), *handled("a", "1.1"), *handled("a", "2.1")]),
    ],
)  # fmt: skip
def test_each_fault_is_found(fault: str, events: list[str]) -> None:
    verdict = judged(*events)
    assert list(verdict.faults) == [fault]
    assert fault in str(verdict)


def test_what_servers_forgot_when_they_were_killed_is_no_fault_of_the_members() -> None:
    events = [*handled("a", "0.1"), "* out", "* back", *handled("a", "0.2"), *handled("a", "1.2")]
    assert not judged(*events).faults


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", "a")
    about = log.begun(b"k 7", 107, 3)
    log.done(about)
    log.unacked(about, OSError("no\nway"))
    log.note("out", worker="b")
    log.close()
    with (tmp_path / "log").open("a") as file:
        file.write("99 a begun k")  # cut off by a kill
    lines = read(tmp_path / "log")
    assert [(line.worker, line.what, *line.details) for line in lines] == [
        ("a", "begun", "k", "7", "107", "3"),
        ("a", "done", "k", "7", "107", "3"),
        ("a", "unacked", "k", "7", "107", "3", "OSError('no|way')".replace("|", "\\n")),
        ("b", "out"),
    ]
    assert not read(tmp_path / "none")
