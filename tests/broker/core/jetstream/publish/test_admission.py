"""Who is let into a stream, asked of the checks themselves: nothing is stored by asking."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.api.errors import Errors
from headrace.broker.core.jetstream.config.options import Refused
from headrace.broker.core.jetstream.headers import NEVER_NS
from headrace.broker.core.jetstream.ports import Arrival
from headrace.broker.core.jetstream.publish.admission import Checks, Overlay
from headrace.limits import HEADER_BYTES_MAX
from jetstream_world import World

NOW_NS = 1_000_000_000_000


def block(**headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def checks(**config: Any) -> Checks:
    """Those of a stream with three messages: ``s.a``, ``s.b`` and ``s.a``, the last with the id ``x``."""
    world = World()
    client = world.client()
    created = client.stream(**config)
    assert "error" not in created, created
    for subject, headers in ((b"s.a", {}), (b"s.b", {}), (b"s.a", {"Nats_Msg_Id": "x"})):
        client.put(subject, b"", **headers)
    return world.streams["S"].publishes.checks


def admit(found: Checks, headers: bytes = b"", payload: bytes = b"") -> Arrival:
    return found.admit(b"s.a", headers, payload, NOW_NS)


def brought(arrival: Arrival) -> dict[str, Any]:
    """What comes with a message, beside itself."""
    found = vars(arrival).items()
    return {k: v for k, v in found if hasattr(Arrival, k) and v != getattr(Arrival, k)}


def refusal(found: Checks, headers: bytes = b"", payload: bytes = b"") -> int:
    with pytest.raises(Refused) as refused:
        admit(found, headers, payload)
    return refused.value.error.err_code


def test_what_says_nothing_is_admitted_as_it_is() -> None:
    for headers in (b"", b"NATS/1.0\r\n\r\n", block(A="b"), block(nats_msg_id="x")):
        arrival = admit(checks(), headers)
        assert (arrival.headers, brought(arrival)) == (headers, {})


def test_an_id_is_admitted_once() -> None:
    found = checks()
    assert brought(admit(found, block(Nats_Msg_Id="new"))) == {"message_id": b"new"}
    now_ns = found._context.clock.now_ns()
    again = found.admit(b"s.b", block(Nats_Msg_Id="x"), b"", now_ns)
    assert brought(again) == {"message_id": b"x", "duplicate_of": 3}


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"Nats_Expected_Stream": "S"}, None),
        ({"Nats_Expected_Stream": "T"}, Errors.STREAM_NOT_MATCH),
        ({"Nats_Expected_Last_Sequence": "3"}, None),
        ({"Nats_Expected_Last_Sequence": "2"}, Errors.STREAM_WRONG_LAST_SEQUENCE),
        ({"Nats_Expected_Last_Sequence": "three"}, Errors.STREAM_WRONG_LAST_SEQUENCE),
        ({"Nats_Expected_Last_Subject_Sequence": "3"}, None),
        ({"Nats_Expected_Last_Subject_Sequence": "1"}, Errors.STREAM_WRONG_LAST_SEQUENCE),
        ({"Nats_Expected_Last_Msg_Id": "x"}, None),
        ({"Nats_Expected_Last_Msg_Id": "y"}, Errors.STREAM_WRONG_LAST_MSG_ID),
        ({"Nats_TTL": "5s"}, Errors.MESSAGE_TTL_DISABLED),
        ({"Nats_Rollup": "sub"}, Errors.STREAM_ROLLUP_FAILED),
        ({"Nats_Incr": "+1"}, Errors.MESSAGE_INCR_DISABLED),
    ],
)
def test_an_expectation_holds_or_is_refused(headers: dict[str, str], error: Any) -> None:
    found = checks()
    if error is None:
        assert brought(admit(found, block(**headers))) == {}
    else:
        assert refusal(found, block(**headers)) == error.err_code


def test_the_last_sequence_of_another_subject_or_pattern_can_be_expected() -> None:
    found = checks()
    for subject, last in ((b"s.b", 2), (b"s.a", 3), (b"s.*", 3), (b"s.none", 0), (b"s..x", 0)):
        assert found.last_on(subject) == last
    other = "Nats_Expected_Last_Subject_Sequence_Subject"
    assert admit(found, block(Nats_Expected_Last_Subject_Sequence="2", **{other: "s.b"}))
    wrong = Errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID.err_code
    assert refusal(found, block(**{other: "s.b"})) == wrong


def test_sizes_have_limits_and_headers_count() -> None:
    found = checks(max_msg_size=20)
    assert brought(admit(found, b"", b"x" * 20)) == {}
    assert refusal(found, b"", b"x" * 21) == Errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM.err_code
    assert refusal(found, block(A="b"), b"x" * 6) == Errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM.err_code
    long = block(A="x" * HEADER_BYTES_MAX)
    assert refusal(checks(), long) == Errors.STREAM_HEADER_EXCEEDS_MAXIMUM.err_code


@pytest.mark.parametrize(
    ("config", "is_full"),
    [
        ({"max_msgs": 3}, True),
        ({"max_msgs": 4}, False),
        ({"max_bytes": 60}, True),
        ({"max_bytes": 10_000}, False),
        ({"max_msgs": 3, "max_msgs_per_subject": 2}, False),  # it takes the place of the oldest
        ({"max_msgs_per_subject": 2, "discard_new_per_subject": True}, True),
    ],
)
def test_a_full_stream_that_discards_the_new_refuses_it(
    config: dict[str, Any], is_full: bool
) -> None:
    world = World()
    client = world.client()
    client.stream(discard="new", storage="memory", **config)
    for subject in (b"s.a", b"s.b", b"s.a"):
        client.put(subject)
    found = world.streams["S"].publishes.checks
    if is_full:
        assert refusal(found) == Errors.STREAM_STORE_FAILED.err_code
    else:
        assert brought(admit(found)) == {}
    assert world.streams["S"].store.messages == len(world.streams["S"].store.present(range(9)))


def test_a_duplicate_is_no_news_to_a_full_stream() -> None:
    found = checks(discard="new", max_msgs=3)
    now_ns = found._context.clock.now_ns()
    assert found.admit(b"s.a", block(Nats_Msg_Id="x"), b"", now_ns).duplicate_of == 3


def test_a_lifetime_says_when_a_message_goes() -> None:
    found = checks(allow_msg_ttl=True)
    assert admit(found, block(Nats_TTL="5s")).expires_ns == NOW_NS + 5_000_000_000
    assert admit(found, block(Nats_TTL="never")).expires_ns == NEVER_NS
    assert refusal(found, block(Nats_TTL="soon")) == Errors.MESSAGE_TTL_INVALID.err_code


def test_a_sealed_stream_lets_nobody_in() -> None:
    world = World()
    world.client().stream()
    world.client().api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "sealed": True})
    assert refusal(world.streams["S"].publishes.checks) == Errors.STREAM_SEALED.err_code


class TestABatch:
    """A message of a batch is looked at as if those before it were stored; nothing is."""

    @staticmethod
    def refused(found: Checks, batch: Overlay, subject: bytes, headers: bytes) -> int:
        with pytest.raises(Refused) as refused:
            found.admit(subject, headers, b"", NOW_NS, batch)
        return refused.value.error.err_code

    def test_counts_those_before_a_message(self) -> None:
        found, batch = checks(), Overlay()
        marks = {"Nats_Batch_Id": "b", "Nats_Batch_Sequence": "1"}
        last = block(**marks, Nats_Expected_Last_Sequence="3")
        assert brought(found.admit(b"s.a", last, b"", NOW_NS, batch)) == {}
        again = block(**marks, Nats_Expected_Last_Sequence="3")
        wrong = Errors.STREAM_WRONG_LAST_SEQUENCE.err_code
        assert self.refused(found, batch, b"s.a", again) == wrong
        constant = Errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.err_code
        following = block(**marks, Nats_Expected_Last_Sequence="4")
        assert self.refused(found, batch, b"s.a", following) == constant
        on_subject = block(**marks, Nats_Expected_Last_Subject_Sequence="3")
        assert self.refused(found, batch, b"s.a", on_subject) == constant

    def test_knows_the_ids_and_roll_ups_before_a_message(self) -> None:
        found, batch = checks(allow_rollup_hdrs=True), Overlay()
        marks = {"Nats_Batch_Id": "b", "Nats_Batch_Sequence": "1"}
        for subject in (b"s.a", b"s.b"):
            found.admit(subject, block(**marks, Nats_Msg_Id=subject.decode()), b"", NOW_NS, batch)
        again = block(**marks, Nats_Msg_Id="s.a")
        assert self.refused(found, batch, b"s.c", again) == Errors.BATCH_DUPLICATE_ID.err_code
        failed = Errors.STREAM_ROLLUP_FAILED.err_code
        assert self.refused(found, batch, b"s.a", block(**marks, Nats_Rollup="sub")) == failed
        assert self.refused(found, batch, b"s.c", block(**marks, Nats_Rollup="all")) == failed
        arrival = found.admit(b"s.c", block(**marks, Nats_Rollup="sub"), b"", NOW_NS, batch)
        assert brought(arrival) == {"rollup": b"sub"}

    def test_adds_up_what_those_before_a_message_count(self) -> None:
        world = World()
        client = world.client()
        client.stream(allow_msg_counter=True)
        client.put(b"s.a", b"", Nats_Incr="+5")
        found, batch = world.streams["S"].publishes.checks, Overlay()
        marks = {"Nats_Batch_Id": "b", "Nats_Batch_Sequence": "1"}
        totals = [
            found.admit(b"s.a", block(**marks, Nats_Incr="+2"), b"", NOW_NS, batch).payload
            for _ in range(3)
        ]
        assert totals == [b'{"val":"7"}', b'{"val":"9"}', b'{"val":"11"}']
        assert world.streams["S"].store.messages == 1

    def test_takes_up_room(self) -> None:
        found, batch = checks(discard="new", max_msgs=5), Overlay()
        marks = block(Nats_Batch_Id="b", Nats_Batch_Sequence="1")
        for _ in range(2):
            found.admit(b"s.a", marks, b"", NOW_NS, batch)
        assert self.refused(found, batch, b"s.a", marks) == Errors.STREAM_STORE_FAILED.err_code
