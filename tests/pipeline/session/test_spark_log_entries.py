"""Lines of a log become entries: each with a time, and those that repeat are counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.session.spark_log import KNOWN_MAX, REPEATS_S, Entries

WARN = b"2026-11-26T22:01:06.123Z WARN  [query out] ProcessingTime: "
ERROR = b"2026-11-26T22:01:06.123Z ERROR [query out] Task: "


class Log:
    """Entries, and a clock."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.entries = Entries(lambda: self.now)
        self.text = b""

    def say(self, *lines: bytes) -> None:
        self.text += self.entries.take(b"".join(line + b"\n" for line in lines))

    def rest(self) -> None:
        self.text += self.entries.idle()

    def end(self) -> list[bytes]:
        self.text += self.entries.end()
        return self.text.splitlines()


def test_a_message_and_its_trace_are_one_entry_and_what_is_printed_gets_a_time() -> None:
    log = Log()
    log.say(ERROR + b"it failed", b"java.io.IOException: no", b"\tat x")
    log.rest()
    log.say(b"printed by a sink")
    assert log.end() == [
        ERROR + b"it failed",
        b"java.io.IOException: no",
        b"\tat x",
        b"1970-01-12T13:46:40.000Z PRINT printed by a sink",
    ]


def test_what_repeats_is_written_once_a_minute_and_counted() -> None:
    log = Log()
    for number in range(5):
        log.say(WARN + b"the batch took %d ms" % number)
    log.rest()
    assert log.text.splitlines() == [WARN + b"the batch took 0 ms"]
    log.now += REPEATS_S
    log.rest()
    (_, count) = log.text.splitlines()
    assert count == (
        b"1970-01-12T13:47:40.000Z INFO  came 4 times more, alike: "
        b"[query out] ProcessingTime: the batch took 0 ms"
    )
    log.say(WARN + b"the batch took 9 ms")
    assert log.end()[2:] == [WARN + b"the batch took 9 ms"]


def test_errors_and_prints_are_alike_only_word_by_word() -> None:
    log = Log()
    for line in (ERROR + b"task 1", ERROR + b"task 2", ERROR + b"task 1", ERROR + b"end"):
        log.say(line)
    log.rest()
    for line in (b"row 1", b"row 2", b"row 1"):
        log.say(line)
        log.rest()
    texts = [line.split(b" ", 2)[2].strip() for line in log.end()]
    assert texts == [
        b"[query out] Task: task 1",
        b"[query out] Task: task 2",
        b"[query out] Task: end",
        b"row 1",
        b"row 2",
        b"came once more, alike: [query out] Task: task 1",
        b"came once more, alike: row 1",
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.floats(0, 40), st.booleans(), st.integers(1, 9)),
        max_size=60,
    )
)
def test_every_entry_is_written_or_counted_however_it_comes(
    events: list[tuple[int, float, bool, int]],
) -> None:
    log = Log()
    said = 0
    for name, gap, pauses, cut in events:
        log.now += gap
        line = ERROR + b"number %d\n" % name
        said += 1
        for at in range(0, len(line), cut * 7):
            log.text += log.entries.take(line[at : at + cut * 7])
        if pauses:
            log.rest()
        assert len(log.entries._known) <= KNOWN_MAX
    lines = log.end()
    counted = 0
    for line in lines:
        if b" more, alike: " in line:
            word = line.split(b" came ")[1].split(b" ")[0]
            counted += 1 if word == b"once" else int(word)
        else:
            counted += 1
    assert counted == said
