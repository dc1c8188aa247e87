"""``headrace_connection`` where something else than pytest-asyncio runs the tests, as anyio does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from .plugin import login_of

if TYPE_CHECKING:
    from headrace import BrokerSettings, Connection, sync


@pytest.fixture
async def headrace_connection(
    headrace_broker: sync.Broker, headrace_settings: BrokerSettings
) -> AsyncIterator[Connection]:
    """An asyncio connection to ``headrace_broker``, in the test's event loop, with the settings' login."""
    from headrace import connect

    login = login_of(headrace_settings)
    async with connect(headrace_broker.client_url, **login) as connection:
        yield connection
