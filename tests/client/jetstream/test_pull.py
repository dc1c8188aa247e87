"""Pull accounting: the document's algorithm as plain functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.api.consumers import PullRequest
from headrace.client.jetstream.pull import (
    ConsumeLimits,
    Meaning,
    PullAccount,
    Status,
    encode_request,
    heartbeat_for,
    meaning_of,
    message_size,
    read_status,
)
from headrace.errors import ConfigurationError
from headrace.wire.frames import MSG
from headrace.wire.headers import status_block


@pytest.mark.parametrize(
    ("code", "description", "meaning"),
    [
        (100, "Idle Heartbeat", Meaning.HEARTBEAT),
        (404, "No Messages", Meaning.ENDED),
        (408, "Request Timeout", Meaning.ENDED),
        (408, "Interest Expired", Meaning.ENDED),
        (408, "Requests Pending", Meaning.ENDED),
        (409, "Message Size Exceeds MaxBytes", Meaning.ENDED),
        (409, "Batch Completed", Meaning.ENDED),
        (409, "Exceeded MaxRequestBatch of 10", Meaning.WARNING),
        (409, "Exceeded MaxRequestExpires of 2s", Meaning.WARNING),
        (409, "Exceeded MaxRequestMaxBytes of 10", Meaning.WARNING),
        (409, "Exceeded MaxWaiting", Meaning.WARNING),
        (409, "Leadership Change", Meaning.WARNING),
        (409, "Server Shutdown", Meaning.WARNING),
        (400, "Bad Request - Priority Group missing", Meaning.ERROR),
        (412, "Required Api Level", Meaning.ERROR),
        (503, "", Meaning.ERROR),
        (999, "From The Future", Meaning.ERROR),
        (423, "Nats-Pin-Id mismatch", Meaning.UNPINNED),
        (423, "Nats-Wrong-Pin-Id", Meaning.UNPINNED),
        (409, "Consumer Deleted", Meaning.TERMINAL),
        (409, "Consumer is push based", Meaning.TERMINAL),
    ],
)
def test_every_status_has_its_class(code: int, description: str, meaning: Meaning) -> None:
    assert meaning_of(Status(code, description)) is meaning


def test_a_status_is_read_with_its_pending_headers() -> None:
    block = status_block(
        408, "Request Timeout", [("Nats-Pending-Messages", "7"), ("Nats-Pending-Bytes", "900")]
    )
    assert read_status(block) == Status(408, "Request Timeout", 7, 900)
    assert read_status(status_block(404, "No Messages")) == Status(404, "No Messages")
    odd = status_block(408, "Request Timeout", [("Nats-Pending-Messages", "many")])
    assert read_status(odd).pending_messages is None


def test_the_heartbeat_is_half_of_expires_within_its_bounds() -> None:
    assert heartbeat_for(30) == 15
    assert heartbeat_for(1) == 0.5
    assert heartbeat_for(600) == 30


def test_a_request_is_encoded_with_nanoseconds() -> None:
    request = PullRequest(batch=5, expires=1.5, idle_heartbeat=0.5)
    assert encode_request(request) == b'{"expires":1500000000,"batch":5,"idle_heartbeat":500000000}'


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"max_messages": 1, "max_bytes": 1}, "not both"),
        ({"max_messages": -1}, "max_messages"),
        ({"expires": 0.5}, "expires"),
        ({"heartbeat": 0.1}, "heartbeat"),
        ({"heartbeat": 20.0}, "heartbeat"),
        ({"max_messages": 10, "threshold_messages": 11}, "threshold_messages"),
        ({"threshold_bytes": 1}, "threshold_bytes"),
    ],
)
def test_limits_out_of_range_are_named(values: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        ConsumeLimits(**values)  # type: ignore[arg-type]


# The account


def account(**values: float) -> PullAccount:
    return PullAccount(ConsumeLimits(**values))  # type: ignore[arg-type]


def take(pulls: PullAccount, messages: int, size: int = 0) -> None:
    pulls.arrived(messages, size)
    pulls.processed(messages, size)


def test_the_first_pull_asks_for_everything() -> None:
    pulls = account(max_messages=100)
    assert pulls.due
    request = pulls.request()
    assert (request.batch, request.max_bytes) == (100, 0)
    assert (request.expires, request.idle_heartbeat) == (30, 15)
    assert not pulls.due


def test_a_pull_is_due_when_half_is_left_and_fills_up_again() -> None:
    pulls = account(max_messages=100)
    pulls.request()
    take(pulls, 49)
    assert not pulls.due
    assert pulls.taken_until_due == 1
    take(pulls, 1)
    assert pulls.due
    assert pulls.request().batch == 50
    assert pulls.pending_messages == 100


def test_messages_in_the_buffer_are_still_pending() -> None:
    pulls = account(max_messages=10)
    pulls.request()
    pulls.arrived(10, 0)
    assert not pulls.due
    assert not pulls.outstanding
    pulls.processed(5, 0)
    assert pulls.due


def test_one_message_at_a_time_does_not_get_stuck() -> None:
    pulls = account(max_messages=1)
    for _ in range(5):
        assert pulls.due
        assert pulls.request().batch == 1
        assert not pulls.due
        take(pulls, 1)


def test_a_threshold_of_its_own_is_kept() -> None:
    pulls = account(max_messages=100, threshold_messages=90)
    pulls.request()
    take(pulls, 10)
    assert pulls.due
    assert pulls.request().batch == 10


def test_a_status_gives_back_what_its_headers_say() -> None:
    pulls = account(max_messages=100)
    pulls.request()
    take(pulls, 30)
    assert pulls.status(Status(408, "Request Timeout", 70, 0)) is Meaning.ENDED
    assert pulls.pending_messages == 0
    assert pulls.pause == 0
    assert pulls.request().batch == 100


def test_with_bytes_the_batch_is_a_large_number_and_bytes_decide() -> None:
    pulls = account(max_bytes=1000)
    request = pulls.request()
    assert (request.batch, request.max_bytes) == (1_000_000, 1000)
    take(pulls, 3, 499)
    assert not pulls.due
    take(pulls, 1, 1)
    assert pulls.due
    assert pulls.request().max_bytes == 500


def test_a_message_that_does_not_fit_waits_for_room_in_the_buffer() -> None:
    pulls = account(max_bytes=1000)
    pulls.request()
    pulls.arrived(2, 600)
    assert pulls.status(Status(409, "Message Size Exceeds MaxBytes", 999_998, 400)) is Meaning.ENDED
    assert not pulls.due
    pulls.processed(2, 600)
    assert pulls.due
    assert pulls.request().max_bytes == 1000


def test_a_message_larger_than_all_room_is_an_error_and_tried_more_slowly() -> None:
    pulls = account(max_bytes=1000)
    pauses = []
    for _ in range(8):
        assert pulls.request().max_bytes == 1000
        status = Status(409, "Message Size Exceeds MaxBytes", 1_000_000, 1000)
        assert pulls.status(status) is Meaning.ERROR
        pauses.append(pulls.pause)
    assert pauses[:3] == [0.25, 0.5, 1.0]
    assert pauses[-1] == 5.0
    take(pulls, 1, 10)
    assert pulls.pause == 0


def test_a_refused_pull_is_given_back_whole_and_pauses() -> None:
    pulls = account(max_messages=100)
    pulls.request()
    take(pulls, 50)
    pulls.request()
    assert pulls.status(Status(409, "Exceeded MaxWaiting")) is Meaning.WARNING
    assert pulls.pending_messages == 50
    assert pulls.pause == 0.25
    assert pulls.status(Status(100, "Idle Heartbeat")) is Meaning.HEARTBEAT
    assert pulls.pause == 0


def test_limits_of_the_consumer_are_learned_from_its_refusals() -> None:
    pulls = account(max_messages=100, expires=30)
    pulls.request()
    assert pulls.status(Status(409, "Exceeded MaxRequestBatch of 10")) is Meaning.WARNING
    assert pulls.pause == 0
    assert pulls.request().batch == 10
    pulls.status(Status(409, "Exceeded MaxRequestExpires of 1m2.5s"))
    assert pulls.expires == 30  # longer than what we ask for: not the reason
    assert pulls.pause > 0
    pulls.status(Status(409, "Exceeded MaxRequestExpires of 2s"))
    request = pulls.request()
    assert (request.expires, request.idle_heartbeat) == (2, 1)
    heavy = account(max_bytes=1000)
    heavy.request()
    heavy.status(Status(409, "Exceeded MaxRequestMaxBytes of 300"))
    assert heavy.request().max_bytes == 300


@pytest.mark.parametrize("text", ["Nats-Pin-Id mismatch", "Nats-Wrong-Pin-Id"])
def test_losing_the_pin_makes_a_pull_due_at_once(text: str) -> None:
    pulls = account(max_messages=100)
    assert pulls.request("me").id == "me"
    assert pulls.status(Status(423, text)) is Meaning.UNPINNED
    assert pulls.due
    assert pulls.pause == 0
    assert pulls.request().id == ""


def test_after_a_restart_only_the_buffer_counts() -> None:
    pulls = account(max_messages=100)
    pulls.request()
    pulls.arrived(30, 0)
    pulls.restart()
    assert pulls.pending_messages == 30
    assert pulls.request().batch == 70
    pulls.status(Status(408, "Request Timeout", 70, 0))  # of the pull before the restart
    assert pulls.pending_messages == 30


def test_the_pull_that_keeps_a_pin_asks_for_nothing_that_could_come() -> None:
    pulls = account(max_messages=10)
    pulls.request("me")
    request = pulls.keep_pin_request("me")
    assert (request.batch, request.max_bytes, request.id) == (1, 1, "me")
    assert pulls.status(Status(408, "Request Timeout", 1, 1)) is Meaning.ENDED
    assert (pulls.pending_messages, pulls.pending_bytes) == (10, 0)


def test_priority_options_go_into_every_pull() -> None:
    pulls = PullAccount(ConsumeLimits(), {"group": "A", "priority": 3, "min_pending": 5})
    request = pulls.request()
    assert (request.group, request.priority, request.min_pending) == ("A", 3, 5)


def test_a_message_counts_as_the_server_counts_it() -> None:
    ack = b"$JS.ACK.S.C.1.1.1.1.0"
    headers = b"NATS/1.0\r\nA: 1\r\n\r\n"
    plain = (MSG, b"s.1", b"9", ack, b"", b"12345")
    assert message_size(plain) == len(b"s.1") + len(ack) + 5
    assert message_size((MSG, b"s.1", b"9", ack, headers, b"")) == 3 + len(ack) + len(headers)
    # The pin id is added after the size was taken.
    pinned = b"NATS/1.0\r\nNats-Pin-Id: abc\r\n\r\n"
    assert message_size((MSG, b"s.1", b"9", ack, pinned, b"12345")) == message_size(plain)
    both = b"NATS/1.0\r\nA: 1\r\nNats-Pin-Id: abc\r\n\r\n"
    assert message_size((MSG, b"s.1", b"9", ack, both, b"")) == 3 + len(ack) + len(headers)


class Server(RuleBasedStateMachine):
    """An honest server and an honest taker: the account must neither starve nor overfill."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 20
        self.pulls = account(max_messages=self.limit)
        self.open: list[int] = []  # what each pull at the server still asks for
        self.buffer = 0

    @rule()
    def pull_when_due(self) -> None:
        if self.pulls.due:
            self.open.append(self.pulls.request().batch)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.open) - 1))
        count = data.draw(st.integers(1, self.open[index]))
        self.open[index] -= count
        if not self.open[index]:
            del self.open[index]
        self.buffer += count
        self.pulls.arrived(count, 0)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        rest = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.pulls.status(Status(408, "Request Timeout", rest, 0))

    @precondition(lambda self: self.open)
    @rule()
    def refuse_the_last(self) -> None:
        if self.pulls._last[0] == self.open[-1]:
            self.open.pop()
            self.pulls.status(Status(409, "Exceeded MaxWaiting"))

    @rule()
    def lose_the_connection(self) -> None:
        self.open.clear()
        self.pulls.restart()

    @precondition(lambda self: self.buffer)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, self.buffer))
        self.buffer -= count
        self.pulls.processed(count, 0)

    @invariant()
    def what_is_pending_is_what_is_open_or_buffered(self) -> None:
        assert self.pulls.pending_messages == sum(self.open) + self.buffer
        assert self.pulls.pending_messages <= self.limit

    @invariant()
    def it_does_not_starve(self) -> None:
        assert self.pulls.due or self.open or self.buffer

    @invariant()
    def taking_as_many_as_said_makes_a_pull_due(self) -> None:
        missing = self.pulls.taken_until_due
        assert self.pulls.due or missing <= self.pulls.pending_messages


TestServer = Server.TestCase


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(1, 50))
def test_pulls_never_ask_for_more_than_the_buffer_holds(taken: list[int], limit: int) -> None:
    pulls = account(max_messages=limit)
    for count in taken:
        while pulls.due:
            pulls.request()
        assert pulls.pending_messages <= limit
        take(pulls, min(count, pulls.pending_messages))
