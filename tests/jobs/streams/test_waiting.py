"""Which messages of a stream may be called next, whatever order they come, end and fail in."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.jobs.streams.waiting import Entry, Waiting

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "take", "untake", "end", "fail", "retried", "aside", "drop"]),
        st.integers(0, 7),
    ),
    max_size=120,
)
KEYS = ("a", "b", None)


def entry(seq: int, key: str | None) -> Entry[int]:
    return Entry(seq, key, 1, 0.0, seq)


class Played:
    """A stream, the lane that calls its messages, and the jobs that failed ones became."""

    def __init__(self, *, named: bool) -> None:
        self.waiting: Waiting[int] = Waiting()
        self.named = named  # whether busy keys are known by name
        self.keys: dict[int, str | None] = {}
        self.calling: list[int] = []
        self.jobs: dict[str, list[int]] = {"a": [], "b": []}  # unfinished, by key, in order
        self.order: dict[str, list[int]] = {"a": [], "b": []}  # what was called or became a job
        self.done: list[int] = []
        if not named:
            self.waiting.busy(None)

    def add(self, choice: int) -> None:
        seq = len(self.keys) + 1
        self.keys[seq] = KEYS[choice % 3]
        self.waiting.add(entry(seq, self.keys[seq]))

    def take(self, n: int) -> None:
        for seq in self.waiting.take(n):
            key = self.keys[seq]
            if key is not None:
                assert not self.jobs[key], "it waits behind unfinished jobs of its key"
                assert not [one for one in self.calling if self.keys[one] == key]
                self.order[key].append(seq)
            self.calling.append(seq)

    def untake(self, n: int) -> None:
        """What was taken could not be called: nothing has happened."""
        calling, order = list(self.calling), {key: list(seqs) for key, seqs in self.order.items()}
        before = len(calling)
        self.take(n)
        taken = self.calling[before:]
        self.waiting.untake(taken)
        self.calling, self.order = calling, order
        assert self.waiting.called == before

    def end(self, choice: int) -> None:
        if self.calling:
            seq = self.calling.pop(choice % len(self.calling))
            self.waiting.finish(seq)
            self.done.append(seq)

    def fail(self, choice: int) -> None:
        if self.calling:
            seq = self.calling.pop(choice % len(self.calling))
            key = self.keys[seq]
            if key is not None:
                self.jobs[key].append(seq)
                self.waiting.hold(key)
            self.waiting.finish(seq)
            self.done.append(seq)

    def retried(self, choice: int) -> None:
        key = "ab"[choice % 2]
        if self.jobs[key]:
            self.jobs[key].pop(0)
            self.waiting.busy({key for key in "ab" if self.jobs[key]} if self.named else None)

    def aside(self, n: int) -> None:
        asked = self.waiting.aside(n + 1)
        moved = []
        for seq in asked:
            key = self.keys[seq]
            assert key is not None
            if self.jobs[key]:
                self.jobs[key].append(seq)
                self.order[key].append(seq)
                moved.append(seq)
                self.done.append(seq)
        self.waiting.set_aside(asked, moved)

    def drop(self, choice: int) -> None:
        """What was dropped comes again, at once and in order."""
        if choice:
            return
        for seq in self.waiting.drop():
            self.waiting.add(entry(seq, self.keys[seq]))

    def run_out(self) -> None:
        """Nothing is left lying."""
        for _ in range(4 * len(self.keys) + 4):
            self.aside(1000)
            self.take(1000)
            while self.calling:
                self.end(0)
            for choice in (0, 1):
                self.retried(choice)
        assert sorted(self.done) == sorted(self.keys)
        assert (len(self.waiting), self.waiting.size) == (0, 0)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.booleans())
def test_one_of_a_key_is_called_at_a_time_in_order_and_none_is_left(
    steps: list[Step], named: bool
) -> None:
    played = Played(named=named)
    for what, choice in steps:
        getattr(played, what)(choice)
    played.run_out()
    for seqs in played.order.values():
        assert seqs == sorted(seqs)


@given(st.permutations(list(range(1, 9))), st.integers(0, 8))
def test_what_comes_again_out_of_order_waits_until_all_of_it_is_there(
    seqs: list[int], taken: int
) -> None:
    waiting: Waiting[int] = Waiting()
    waiting.recover()
    for seq in seqs:
        waiting.add(entry(seq, "ab"[seq % 2] if seq < 8 else None))
    assert waiting.take(taken) == [8][:taken], "one without a key waits for nothing"
    waiting.recovered()
    called: list[int] = []
    while found := waiting.take(8):
        for seq in found:
            called.append(seq)
            waiting.finish(seq)
    for key in (0, 1):
        of_key = [seq for seq in called if seq % 2 == key and seq < 8]
        assert of_key == sorted(of_key) and len(of_key) in (3, 4)


def test_a_message_at_hand_is_found_by_its_sequence() -> None:
    waiting: Waiting[int] = Waiting()
    waiting.add(entry(3, None))
    found = waiting.get(3)
    assert found is not None and found.item == 3
    assert waiting.get(4) is None
    assert waiting.called == 0
    waiting.take(1)
    assert waiting.called == 1
