"""Who is let into a stream, asked of the checks themselves: nothing is stored by asking."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.api.errors import Errors
from headrace.broker.core.jetstream.config.refused import Refused
from headrace.broker.core.jetstream.headers.ttl import NEVER_NS
from headrace.broker.core.jetstream.publish.admission import Admission, PublishChecks
from headrace.limits import HEADER_BYTES_MAX
from jetstream_world import World

NOW_NS = 1_000_000_000_000


def block(**headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def checks(**config: Any) -> PublishChecks:
    """Those of a stream with three messages: ``s.a``, ``s.b`` and ``s.a``, the last with the id ``x``."""
    world = World()
    client = world.client()
    created = client.stream(**config)
    assert "error" not in created, created
    for subject, headers in ((b"s.a", {}), (b"s.b", {}), (b"s.a", {"Nats_Msg_Id": "x"})):
        client.put(subject, b"", **headers)
    return world.streams["S"].checks


def admit(found: PublishChecks, headers: bytes = b"", payload: bytes = b"") -> Admission:
    return found.admit(b"s.a", headers, payload, NOW_NS)


def refusal(found: PublishChecks, headers: bytes = b"", payload: bytes = b"") -> int:
    with pytest.raises(Refused) as refused:
        admit(found, headers, payload)
    return refused.value.error.err_code


def test_what_says_nothing_is_admitted_as_it_is() -> None:
    for headers in (b"", b"NATS/1.0\r\n\r\n", block(A="b"), block(nats_msg_id="x")):
        assert admit(checks(), headers) == Admission()


def test_an_id_is_admitted_once() -> None:
    found = checks()
    assert admit(found, block(Nats_Msg_Id="new")) == Admission(b"new")
    again = found.admit(b"s.b", block(Nats_Msg_Id="x"), b"", found._stream.time())
    assert again == Admission(b"x", duplicate_of=3)


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
        assert admit(found, block(**headers)) == Admission()
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
    assert admit(found, b"", b"x" * 20) == Admission()
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
    found = world.streams["S"].checks
    if is_full:
        assert refusal(found) == Errors.STREAM_STORE_FAILED.err_code
    else:
        assert admit(found) == Admission()
    assert world.streams["S"].store.messages == len(world.streams["S"].store.present(range(9)))


def test_a_duplicate_is_no_news_to_a_full_stream() -> None:
    found = checks(discard="new", max_msgs=3)
    now_ns = found._stream.time()
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
    assert refusal(world.streams["S"].checks) == Errors.STREAM_SEALED.err_code
