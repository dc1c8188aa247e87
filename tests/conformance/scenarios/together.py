"""Many messages in one write: each is checked, stored and answered as if it had come alone."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.driver import Step
from conformance.steps import api, drain, raw, read, stream
from conformance.table import Scenario, Table

_INFO = "STREAM.INFO.S"


def _line(reply: str, number: int, subject: str, lines: Sequence[str]) -> str:
    payload = f"{number:02}"
    if not lines:
        return f"PUB {subject} {reply} {len(payload)}\r\n{payload}\r\n"
    block = "\r\n".join(["NATS/1.0", *lines, "", ""])
    total = len(block) + len(payload)
    return f"HPUB {subject} {reply} {len(block)} {total}\r\n{block}{payload}\r\n"


def _written(
    *messages: Sequence[str], subjects: Sequence[str] = ("a",), refused: Sequence[int] = ()
) -> list[Step]:
    """Publish messages with these header lines in one write, and record the answers.

    Refusals are heard apart: one server gives them at once, the other in the order of the messages.
    """
    lines = []
    for number, message in enumerate(messages):
        reply = f"{'no' if number in refused else 'yes'}.{number}"
        lines.append(_line(reply, number, subjects[number % len(subjects)], message))
    taken = len(messages) - len(refused)
    return [raw("".join(lines).encode()), read(taken, on="b"), read(len(refused), on="c")]


_ANSWERS = [raw("SUB yes.* 1\n", on="b"), drain("b"), raw("SUB no.* 1\n", on="c"), drain("c")]
_NAMED = [(f"Nats-Msg-Id: id-{number:02}",) for number in range(12)]

TABLE: Table = [
    Scenario(
        "many message ids in one write",
        [stream(subjects=["a"]), *_ANSWERS, *_written(*_NAMED), api(_INFO)],
    ),
    Scenario(
        "many message ids on several subjects in one write",
        [
            stream(subjects=["a.*"]),
            *_ANSWERS,
            *_written(*_NAMED, subjects=("a.x", "a.y", "a.z")),
            api("STREAM.MSG.GET.S", {"last_by_subj": "a.y"}),
        ],
    ),
    Scenario(
        "message ids that come twice in one write",
        [
            stream(subjects=["a"]),
            *_ANSWERS,
            *_written(*_NAMED[:8], _NAMED[3], *_NAMED[8:], _NAMED[3], _NAMED[11]),
            api(_INFO),
            api("STREAM.MSG.GET.S", {"seq": 9}),
        ],
    ),
    Scenario(
        "message ids written again",
        [stream(subjects=["a"]), *_ANSWERS, *_written(*_NAMED), *_written(*_NAMED), api(_INFO)],
    ),
    Scenario(
        "message ids with blanks around them in one write",
        [
            stream(subjects=["a"]),
            *_ANSWERS,
            *_written(*_NAMED[:8], ("Nats-Msg-Id:  id-03",), ("Nats-Msg-Id:id-04",)),
            api(_INFO),
        ],
    ),
    Scenario(
        "message ids beside other headers in one write",
        [
            stream(subjects=["a"]),
            *_ANSWERS,
            *_written(*[("K: v", *lines, "X: y") for lines in _NAMED]),
            *_written(*[(*lines, "K: v") for lines in _NAMED]),
            api("STREAM.MSG.GET.S", {"seq": 12}),
            api(_INFO),
        ],
    ),
    Scenario(
        "headers that say nothing to the stream in one write",
        [
            stream(subjects=["a"]),
            *_ANSWERS,
            *_written(*[(f"K: {number:02}",) for number in range(12)]),
            api("STREAM.MSG.GET.S", {"seq": 12}),
        ],
    ),
    Scenario(
        "message ids and expectations in one write",
        [
            stream(subjects=["a"]),
            *_ANSWERS,
            *_written(
                *_NAMED[:8],
                ("Nats-Expected-Last-Sequence: 8",),
                ("Nats-Expected-Last-Sequence: 8",),
                ("Nats-Expected-Last-Msg-Id: id-07",),
                (*_NAMED[8], "Nats-Expected-Stream: T"),
                _NAMED[8],
                refused=(9, 10, 11),
            ),
            api(_INFO),
        ],
    ),
    Scenario(
        "message ids, lifetimes and roll-ups in one write",
        [
            stream(subjects=["a"], allow_msg_ttl=True, allow_rollup_hdrs=True),
            *_ANSWERS,
            *_written(
                *_NAMED[:8],
                (*_NAMED[8], "Nats-TTL: 1h"),
                (*_NAMED[9], "Nats-TTL: soon"),
                (*_NAMED[10], "Nats-Rollup: sub"),
                _NAMED[11],
                refused=(9,),
            ),
            api(_INFO),
        ],
    ),
    Scenario(
        "messages with and without headers in one write",
        [
            stream(subjects=["a"]),
            *_ANSWERS,
            *_written(*_NAMED[:5], (), (), ("K: v",), *_NAMED[5:], ()),
            api(_INFO),
        ],
    ),
]
