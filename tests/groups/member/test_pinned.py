"""Keeping the pin: which answers of a server say that it is kept."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import DisconnectedError, NoRespondersError, RequestTimeoutError
from headrace.groups.member.lease import Lease
from headrace.groups.member.pinned import Pinned


class Connection:
    """Answers requests as told."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []

    async def request(self, subject: str, body: bytes, timeout: float | None = None) -> Any:
        self.bodies.append(body)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, description = answer
        return SimpleNamespace(headers=SimpleNamespace(status=status, description=description))


def pinned(
    *answers: Any, pinned_to: str = "PIN", heard_at: float = 0.0
) -> tuple[Pinned, Connection]:
    async def info() -> Any:
        group = SimpleNamespace(group="PCG", pinned_client_id=pinned_to)
        return SimpleNamespace(priority_groups=(group,))

    connection = Connection(*answers)
    js: Any = SimpleNamespace(
        connection=connection, _api=SimpleNamespace(subject=lambda *tokens: ".".join(tokens))
    )
    consumer: Any = SimpleNamespace(stream_name="S", name="c", info=info)
    say = lambda: connection.bodies.append(b"in progress")  # noqa: E731
    return Pinned(js, consumer, "PIN", say, lambda: heard_at), connection


@pytest.mark.parametrize(
    ("status", "description", "kept"),
    [
        (408, "Request Timeout", True),
        (409, "Message Size Exceeds MaxBytes", True),
        (409, "Exceeded MaxWaiting", True),
        (423, "Nats-Pin-Id mismatch", False),
        (423, "Nats-Wrong-Pin-Id", False),
        (409, "Consumer Deleted", False),
        (409, "Leadership Change", False),
        (409, "Server Shutdown", False),
        (400, "Bad Request - Invalid Priority Group", False),
        (None, "", False),
    ],
)
async def test_only_some_answers_say_that_the_pin_is_kept(
    status: int | None, description: str, kept: bool
) -> None:
    keeper, connection = pinned((status, description))
    now = asyncio.get_running_loop().time()
    lease = Lease(5.0, since=now - 4.0)
    before = lease.until
    assert await keeper.renew(lease) is kept
    assert (lease.until > before) is kept
    assert connection.bodies[0] == b"in progress", "its answer is to prove that this was heard, too"
    assert b'"id":"PIN"' in connection.bodies[1]


async def test_a_consumer_that_nobody_is_pinned_to_answers_as_ours_does_and_is_not() -> None:
    for another in ("", "OTHER"):
        keeper, _ = pinned((408, "Request Timeout"), pinned_to=another)
        lease = Lease(5.0, since=asyncio.get_running_loop().time() - 4.0)
        before = lease.until
        assert not await keeper.renew(lease)
        assert lease.until == before


async def test_a_lost_link_is_given_until_the_lease_ends() -> None:
    keeper, connection = pinned(DisconnectedError("gone"), RequestTimeoutError("late"), (408, ""))
    now = asyncio.get_running_loop().time()
    lease = Lease(5.0, since=now)
    assert await keeper.renew(lease)
    assert len(connection.bodies) == 6
    assert connection.bodies[::2] == 3 * [b"in progress"], "it may have been lost with the link"
    keeper, connection = pinned(DisconnectedError("gone"))
    lease = Lease(5.0, since=now - 4.99)
    assert not await keeper.renew(lease)
    assert not await keeper.renew(lease)
    assert len(connection.bodies) <= 2


async def test_a_consumer_that_is_gone_is_told_at_once() -> None:
    keeper, _ = pinned(NoRespondersError("nobody"))
    with pytest.raises(NoRespondersError):
        await keeper.renew(Lease(5.0, since=asyncio.get_running_loop().time()))


@pytest.mark.parametrize(("over", "renewed"), [(0.5, False), (2.0, True), (4.5, True), (9.0, True)])
async def test_who_takes_over_begins_with_most_of_a_lease(over: float, renewed: bool) -> None:
    keeper, connection = pinned((408, "Request Timeout"))
    now = asyncio.get_running_loop().time()
    lease = Lease(5.0, since=now - over)
    assert await keeper.verify(lease) is not None
    assert bool(connection.bodies) is renewed
    assert lease.until >= now + 2 / 3 * 5.0


async def test_what_came_meanwhile_was_said_nothing_of_so_it_is_asked_twice() -> None:
    later = asyncio.get_running_loop().time() + 60.0
    keeper, connection = pinned((408, ""), (408, ""), heard_at=later)
    lease = Lease(5.0, since=later - 160.0)
    assert await keeper.verify(lease) is not None
    assert len(connection.bodies) == 4
    assert lease.holds(later - 56.0)
    assert not lease.holds(later - 54.0)


@pytest.mark.parametrize(("left_s", "pulls"), [(4.0, 0), (1.0, 1)])
async def test_who_leaves_a_lease_that_is_kept_pulls_only_where_little_is_left_of_it(
    left_s: float, pulls: int
) -> None:
    keeper, connection = pinned((408, "Request Timeout"), heard_at=-1.0)
    lease = Lease(6.0, since=asyncio.get_running_loop().time() - 6.0 + left_s)
    assert await keeper.verify_kept(lease) is not None
    assert connection.bodies.count(b"in progress") == pulls
    other, _ = pinned((408, "Request Timeout"), pinned_to="OTHER")
    assert await other.verify_kept(lease) is None
