"""Commands on an event loop of their own: Ctrl-C ends them wherever it hits."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from headrace.cli.shared.verbs import run_loop


@pytest.fixture(autouse=True)
def _default_handler() -> Any:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("fast", [False, True])
def test_an_interrupt_between_the_look_at_a_future_and_its_result_is_no_error_of_the_loop(
    fast: bool,
) -> None:
    reported: list[dict[str, Any]] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        connected: asyncio.Future[None] = loop.create_future()

        def connect() -> None:
            if not connected.done():
                signal.raise_signal(signal.SIGINT)
                connected.set_result(None)

        loop.call_soon(connect)
        await connected
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        run_loop(work(), fast=fast)
    assert reported == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_ends_what_does_not_end_at_the_first() -> None:
    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_loop(work())


def test_ctrl_c_stays_ignored_where_a_shell_ignores_it() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def work() -> str:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        return "done"

    assert run_loop(work()) == "done"
