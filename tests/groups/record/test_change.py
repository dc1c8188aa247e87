"""The table of a change, against a model of record and work queue: whoever goes on after whatever step."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from headrace.groups import ElasticGroup, PartitioningFilter
from headrace.groups.record.change import (
    Queue,
    Step,
    begun,
    closing_again,
    ended,
    marked,
    next_step,
    recovered,
    switched,
    undoing,
)

FORMER = ElasticGroup("S", "g", 4, (PartitioningFilter("o.*", (1,)),), members=("a",))


class Model:
    """A stream that numbers its messages from 1, a work queue that copies them, members that handle them."""

    def __init__(self) -> None:
        self.record = FORMER
        self.published = 0
        self.reached = 0
        self.copied = 0
        self.queue: list[int] = []
        self.partitions = FORMER.max_members
        self.is_closed = False
        self.handled: list[tuple[int, int]] = []
        """Each with the number of partitions by which it was numbered."""

    def copy(self) -> None:
        while not self.is_closed and self.reached < self.published:
            self.reached += 1
            self.copied += 1
            self.queue.append(self.reached)

    def handle(self) -> None:
        if self.queue:
            self.handled.append((self.queue.pop(0), self.partitions))

    def seen(self) -> Queue:
        other = self.record.other_side()
        if self.partitions == self.record.max_members:
            numbering = "record"
        else:
            is_other = other is not None and other.max_members == self.partitions
            numbering = "other" if is_other else "neither"
        return Queue(self.is_closed, numbering, len(self.queue), self.copied)  # type: ignore[arg-type]

    def take(self, step: Step) -> None:
        record = self.record
        match step:
            case Step.CLOSE:
                self.is_closed = True
            case Step.REOPEN:
                self.is_closed = False
            case Step.MARK:
                self.record = marked(record, self.reached, self.copied)
            case Step.RECOVER:
                self.record = recovered(record, self.reached, self.copied)
            case Step.CLOSE_AGAIN:
                self.record = closing_again(record)
            case Step.SWITCH:
                assert not self.queue
                self.record = switched(record)
            case Step.RENUMBER:
                assert record.change is not None
                assert not self.queue
                self.reached = record.change.boundary
                self.partitions = record.max_members
                self.is_closed = False
            case Step.FINISH | Step.FORGET:
                self.record = ended(record)
            case Step.WAIT:
                self.handle()

    def finish(self) -> None:
        while (step := next_step(self.record, self.seen())) is not Step.NOTHING:
            self.take(step)


EVENTS = ("publish", "copy", "handle", "step", "step", "step", "undo", "change", "open", "forget")


@given(st.lists(st.sampled_from(EVENTS), max_size=60), st.data())
def test_nothing_is_lost_or_handled_again_wherever_a_change_is_left_off(
    events: list[str], data: st.DataObject
) -> None:
    """``open`` is somebody who gives the queue its limits back; ``forget`` somebody who writes the record
    anew without knowing of changes, which the next change completes first."""
    model = Model()
    for event in events:
        change = model.record.change
        match event:
            case "publish":
                model.published += 1
            case "copy":
                model.copy()
            case "handle":
                model.handle()
            case "step":
                model.take(next_step(model.record, model.seen()))
            case "undo" if change is not None and change.phase in ("closing", "draining"):
                model.record = undoing(model.record)
            case "change" if change is None:
                model.finish()
                most = data.draw(st.integers(1, 6))
                wanted = dataclasses.replace(model.record, max_members=most)
                if model.record.differences(wanted):
                    model.record = begun(model.record, wanted, -1)
            case "open" if change is not None and change.phase != "switching":
                model.is_closed = False
            case "forget":
                model.record = dataclasses.replace(model.record, change=None)
    model.finish()
    model.copy()
    while model.queue:
        model.handle()
    assert [number for number, _ in model.handled] == list(range(1, model.published + 1))
    assert model.partitions == model.record.max_members
    assert model.record.change is None
    assert not model.is_closed


def test_the_record_of_a_change_is_read_as_it_was_written() -> None:
    wanted = dataclasses.replace(FORMER, max_members=9, partitioning_filters=None)
    record = marked(begun(FORMER, wanted, 500), 77, 70)
    assert ElasticGroup.decode("S", "g", record.encode()) == record
    after = switched(record)
    assert ElasticGroup.decode("S", "g", after.encode()) == after
    assert (after.max_members, after.partitioning_filters, after.changed) == (9, None, 1)
    former = after.other_side()
    assert former is not None
    assert former.fixed_part() == FORMER.fixed_part()
    newer = dataclasses.replace(after, revision=2)
    assert newer.can_follow(FORMER)
    assert FORMER.can_follow(newer)  # it comes late
    assert not dataclasses.replace(newer, changed=0).can_follow(FORMER)
    assert not dataclasses.replace(FORMER, revision=3).can_follow(newer)
    assert not dataclasses.replace(newer, layout="per_partition").can_follow(FORMER)


def test_without_a_change_the_record_is_what_others_write() -> None:
    assert ended(begun(FORMER, FORMER, -1)).encode() == FORMER.encode()
    assert b"change" not in FORMER.encode()
