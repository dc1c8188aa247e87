"""Descriptions of objects while others change them and answers are lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.api.errors import Errors
from headrace.client.net.handshake import ServerInfo
from headrace.client.nuid import Nuid
from headrace.client.objects.descriptions import ATTEMPTS_MAX, Descriptions
from headrace.client.objects.info import ObjectInfo
from headrace.client.objects.writer import Leftovers
from headrace.errors import HeadraceError, JetStreamApiError, RequestTimeoutError

CONFLICT = JetStreamApiError(
    Errors.STREAM_WRONG_LAST_SEQUENCE.code, Errors.STREAM_WRONG_LAST_SEQUENCE.err_code, "others"
)
NOTHING = JetStreamApiError(
    Errors.NO_MESSAGE_FOUND.code, Errors.NO_MESSAGE_FOUND.err_code, "nothing"
)


class Busy:
    """A stream that answers each publish with the next of these errors; its session and API, too."""

    def __init__(self, *errors: HeadraceError) -> None:
        self.errors = list(errors)
        self.session = self.requests = self
        self.info = ServerInfo()
        self.nuid = Nuid()
        self.loop = asyncio.get_running_loop()
        self.waits = self.trace = self.spans = None
        self.timeout = self.delivery_timeout = 1.0

    async def get_last_message(self, subject: str) -> Any:
        raise NOTHING

    def check_subject(self, subject: str) -> None:
        """Any will do."""

    def check_size(self, size: int) -> None:
        """Any will do."""

    async def ask(self, *_: object) -> Any:
        raise self.errors.pop(0)


async def replace(busy: Busy) -> None:
    described: Any = Descriptions(busy, busy, "bucket", Leftovers())  # type: ignore[arg-type]
    await described.replace(ObjectInfo(bucket="bucket", name="it", nuid="n"), lambda last: None)


async def test_the_last_attempt_may_go_unanswered() -> None:
    busy = Busy(*[CONFLICT] * (ATTEMPTS_MAX - 1), RequestTimeoutError("no answer"), CONFLICT)
    with pytest.raises(RequestTimeoutError, match="no answer"):
        await replace(busy)
    assert busy.errors == [CONFLICT]


async def test_a_conflict_on_the_last_attempt_is_told() -> None:
    busy = Busy(RequestTimeoutError("no answer"), *[CONFLICT] * ATTEMPTS_MAX)
    with pytest.raises(JetStreamApiError, match="others"):
        await replace(busy)
    assert busy.errors == [CONFLICT]
