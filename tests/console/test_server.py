"""What the console logs of its connection."""

from __future__ import annotations

import logging

import pytest

from headrace import Broker, connect
from headrace.console.app import ConsoleServer
from headrace.console.settings import Settings
from headrace.errors import PullError
from waiting import until


async def test_what_a_server_says_is_logged_in_a_line_and_a_mistake_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        Broker() as broker,
        connect(broker.client_url) as connection,
        ConsoleServer(Settings(port=0), connection),
    ):
        connection._session.report(PullError(409, "Consumer Deleted"))
        connection._session.report(ValueError("a mistake"), "a message")

        def logged() -> list[logging.LogRecord]:
            found = [each for each in caplog.records if each.name == "headrace.console"]
            return found if len(found) == 2 else []

        said, mistake = await until(logged)
    assert (said.getMessage(), said.exc_info) == ("409 Consumer Deleted", None)
    assert mistake.getMessage() == "a message: a mistake"
    assert mistake.exc_info is not None
