"""SUB lines behind one another give the frames that each of them gives alone."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.wire import Parser
from headrace.wire.frames import BAD, SUB, Frame
from headrace.wire.repeats import sub_pattern

USUAL = st.sampled_from(
    [b"SUB a.b 1\r\n", b"SUB w.12.* 22\r\n", b"SUB a.> queue 333\r\n", b"SUB \xc3\xa4 \x80 z\r\n"]
)
LINES = st.one_of(
    USUAL,
    USUAL,
    USUAL,
    st.sampled_from(
        [
            b"sub a 1\r\n",
            b"SUB  a  q\t1 \r\n",
            b"SUB a 1\n",
            b"SUB a\x7f \x01q 1\r\n",
            b"SUB a\rb 1\r\n",
            b"UNSUB 1\r\n",
            b"PING\r\n",
            b"PUB a 9\r\nSUB a 1\r\n\r\n",
            b"SUB " + b"x" * 1100 + b" 1\r\n",
            b"SUB a b c d\r\n",
            b"SUB a\r\n",
            b"SUBa 1\r\n",
        ]
    ),
)


def told(chunks: list[bytes]) -> list[Frame | str]:
    parser = Parser.for_server(max_control_line=4096)
    frames = [frame for chunk in chunks for frame in parser.feed(chunk)]
    # What an error quotes is what has come until then.
    return [str(frame[1]).split(" in ")[0] if frame[0] == BAD else frame for frame in frames]


@given(st.lists(LINES, max_size=40), st.lists(st.integers(0, 400), max_size=4))
def test_lines_together_are_the_frames_of_the_lines_alone(
    lines: list[bytes], cuts: list[int]
) -> None:
    text = b"".join(lines)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:stop] for start, stop in pairwise(places)]
    assert told(pieces) == told(lines)


def test_a_run_is_read_by_the_expression() -> None:
    lines = [b"SUB w.%d.* %d\r\n" % (number, number) for number in range(500)]
    pattern = sub_pattern(1024)
    found = pattern.findall(b"".join(lines) + b"PING\r\nSUB a 1\r\n")
    assert found[0] == (SUB, b"w.0.*", b"", b"0")
    assert [*found[:500]] == told(lines)
    assert found[500] == (b"", b"", b"", b"PING\r\nSUB a 1\r\n")
