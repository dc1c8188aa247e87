"""The states of a session: the table of transitions, and a session that goes through it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.net.session import TRANSITIONS, Change, Session, State, TransitionError, after
from headrace.embedded import Broker
from headrace.errors import ConnectionClosedError
from waiting import until

RESTORING = {
    State.OPEN: State.OPEN_RESTORING,
    State.DRAINING: State.DRAINING_RESTORING,
    State.DRAINED: State.DRAINED_RESTORING,
}


@given(st.lists(st.sampled_from(Change)))
def test_a_session_is_what_three_flags_would_say(changes: list[Change]) -> None:
    """The model: is there a link, how far has a drain come, is it over?"""
    state = State.CONNECTING
    linked, was_linked, drain, closed = False, False, 0, False
    for change in changes:
        allowed = {
            Change.LINKED: not linked and not closed,
            Change.LOST: linked,
            Change.DRAIN: was_linked and not closed,
            Change.EMPTIED: drain > 0 or closed,
            Change.CLOSE: True,
        }[change]
        if not allowed:
            with pytest.raises(TransitionError, match=change.name):
                after(state, change)
            continue
        state = after(state, change)
        linked = change is Change.LINKED or (linked and change not in (Change.LOST, Change.CLOSE))
        was_linked = was_linked or linked
        closed = closed or change is Change.CLOSE
        if change is Change.DRAIN:
            drain = max(drain, 1)
        elif change is Change.EMPTIED and not closed:
            drain = 2
        assert (state is State.CLOSED) == closed
        if not closed:
            assert state.may_publish == (drain < 2)
            assert state.may_subscribe == (drain == 0)
            assert (state in RESTORING.values()) == (was_linked and not linked)


def test_every_state_can_be_reached_and_closed() -> None:
    reached, new = set(), {State.CONNECTING}
    while new:
        reached |= new
        new = {to for (state, _), to in TRANSITIONS.items() if state in new} - reached
    assert reached == set(State)
    assert all(after(state, Change.CLOSE) is State.CLOSED for state in State)
    ends = {to for (state, _), to in TRANSITIONS.items() if state is State.CLOSED}
    assert ends == {State.CLOSED}


def test_a_lost_link_keeps_how_far_a_drain_has_come() -> None:
    for state, restoring in RESTORING.items():
        assert after(state, Change.LOST) is restoring
        assert after(restoring, Change.LINKED) is state


async def test_a_session_goes_through_the_table(tmp_path: Path) -> None:
    async with Broker(port=-1, store_dir=tmp_path / "s") as broker:
        connection = await broker.connect(reconnect_wait=0.01)
        session: Session = connection._session
        seen = [session.state]
        genuine = session.change

        def noted(change: Change) -> None:
            genuine(change)
            seen.append(session.state)

        session.change = noted  # type: ignore[method-assign]
        subscription = await connection.subscribe("a")
        assert session.link is not None
        session.link.transport.abort()
        await until(lambda: seen == [State.OPEN, State.OPEN_RESTORING, State.OPEN], within=5)
        await connection.publish("a", b"x")
        await connection.flush()
        draining = asyncio.create_task(connection.drain())
        await until(lambda: session.state is State.DRAINING, within=5)
        with pytest.raises(ConnectionClosedError, match="draining"):
            await connection.subscribe("b")
        assert [message.payload async for message in subscription] == [b"x"]
        await draining
    assert seen == [
        State.OPEN,
        State.OPEN_RESTORING,
        State.OPEN,
        State.DRAINING,
        State.DRAINED,
        State.CLOSED,
    ]
