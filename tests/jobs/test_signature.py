"""Standard Webhooks signatures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.jobs.signature import WebhookVerificationError, new_secret, sign, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_golden_vector_of_the_standard() -> None:
    headers = sign([SECRET], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_receivers_with_either_secret_accept_during_a_rotation() -> None:
    old, new = new_secret(), new_secret()
    headers = sign([new, old], "msg_1", 1000, b"x")
    for live in ([old], [new], [old, new]):
        verify(live, headers, b"x", 1000)
    with pytest.raises(WebhookVerificationError):
        verify([new_secret()], headers, b"x", 1000)


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "msg_2"},
        {"webhook-timestamp": "1001"},
        {"webhook-timestamp": "x"},
        {"webhook-timestamp": "-1"},
        {"webhook-id": ""},
        {"webhook-signature": ""},
        {"webhook-signature": "v2,abc"},
        {"webhook-signature": "v1,ä"},
        {"webhook-signature": "v1,\udcff"},
        {"webhook-id": "msg_1\udcff"},
        {"webhook-id": "\ud800"},
        {"webhook-id": "msg_\xff"},
        {"webhook-timestamp": "100\udcff"},
    ],
)
def test_a_changed_request_is_refused(change: dict[str, str]) -> None:
    headers = sign([SECRET], "msg_1", 1000, b"x")
    verify([SECRET], headers, b"x", 1000)
    with pytest.raises(WebhookVerificationError):
        verify([SECRET], {**headers, **change}, b"x", 1000)


def test_a_replay_after_five_minutes_is_refused() -> None:
    headers = sign([SECRET], "msg_1", 1000, b"x")
    verify([SECRET], headers, b"x", 1300)
    for now in (1301, 699):
        with pytest.raises(WebhookVerificationError, match="300 s"):
            verify([SECRET], headers, b"x", now)


def test_an_id_with_a_dot_is_never_signed() -> None:
    with pytest.raises(ValueError, match="dot"):
        sign([SECRET], "a.b", 1000, b"x")


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_only_the_signed_body_is_accepted(body: bytes, other: bytes) -> None:
    headers = sign([SECRET], "msg_1", 1000, body)
    verify([SECRET], headers, body, 1000)
    if other != body:
        with pytest.raises(WebhookVerificationError):
            verify([SECRET], headers, other, 1000)
