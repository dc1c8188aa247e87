"""The descriptions of a bucket's objects: read, and replaced without treading on one another."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...api.errors import Errors
from ...api.names import ROLLUP
from ...errors import (
    DisconnectedError,
    HeadraceError,
    JetStreamApiError,
    OutcomeUnknownError,
    RequestTimeoutError,
    TimeoutUnknownError,
)
from ..jetstream.configuration import known_bucket
from ..jetstream.stored_message import if_found
from ..publish.awaited import change_id, publish_awaited
from .info import ObjectInfo, chunk_subject, decode_info, encode_info, meta_subject

if TYPE_CHECKING:
    from ..jetstream.calls import Api
    from ..jetstream.stream import Stream
    from ..publish.headers import PublishOptions
    from .writer import Leftovers

ATTEMPTS_MAX: Final = 10  # to describe an object that others change at the same time
UNANSWERED_MAX: Final = 3


class Descriptions:
    """What a bucket says of its objects."""

    def __init__(self, api: Api, stream: Stream, bucket: str, leftovers: Leftovers) -> None:
        self._api = api
        self._stream = stream
        self._leftovers = leftovers
        self.bucket = bucket

    async def replace(
        self, info: ObjectInfo, check: Callable[[ObjectInfo | None], None]
    ) -> ObjectInfo:
        """Publish a description in place of the last one, which ``check`` may refuse to replace.

        It replaces exactly the one that was checked: of several at the same time each removes the
        content of the one before it. What was sent may have arrived though no answer came, so it is
        looked for before it is sent again.

        Raises an OutcomeUnknownError if it may be described, and a RequestTimeoutError or DisconnectedError
        that is none if it certainly is not.
        """
        subject = meta_subject(self.bucket, info.name)
        document = encode_info(info)
        unanswered, is_sent = 0, False
        before: ObjectInfo | None = None
        for attempt in itertools.count(1):
            try:
                last = await self.last(info.name)
                if attempt > 1 and last is not None and encode_info(last) == document:
                    await self._forget_content(before, info)
                    return last
                check(last)
                before = last
                options: PublishOptions = {
                    "msg_id": change_id(self._api),
                    "expected_last_subject_sequence": last.revision if last else 0,
                }
                ack = await publish_awaited(self._api, subject, document, {ROLLUP: "sub"}, options)
            except JetStreamApiError as error:
                wrong = error.err_code == Errors.STREAM_WRONG_LAST_SEQUENCE.err_code
                if not wrong or attempt == ATTEMPTS_MAX:
                    raise
            except (RequestTimeoutError, DisconnectedError) as error:
                unanswered += 1
                is_unknown = isinstance(error, OutcomeUnknownError)
                is_sent = is_sent or is_unknown
                if unanswered == UNANSWERED_MAX or attempt == ATTEMPTS_MAX:
                    if is_sent and before is not None and before.chunks:
                        self._leftovers.note(before.nuid, info.name)
                    if is_sent and not is_unknown:  # an earlier attempt was
                        raise TimeoutUnknownError(
                            f"{info.name!r} may be described or not: {error}"
                        ) from error
                    raise
            else:
                break
        await self._forget_content(last, info)
        return dataclasses.replace(info, revision=ack.seq, modified_ns=time.time_ns())

    async def _forget_content(self, old: ObjectInfo | None, new: ObjectInfo) -> None:
        """Remove the content of what was replaced or deleted. The change itself is done: if this fails
        it is an event of the connection."""
        if old is None or not old.chunks or (old.nuid == new.nuid and not new.deleted):
            return
        try:
            await self._stream.purge(subject=chunk_subject(self.bucket, old.nuid))
        except HeadraceError as error:
            self._leftovers.note(old.nuid)
            self._api.session.report(error)

    async def last(self, name: str) -> ObjectInfo | None:
        """The newest description, of a deleted object too, or None."""
        with known_bucket(self.bucket):
            message = await if_found(self._stream.get_last_message(meta_subject(self.bucket, name)))
        if message is None:
            return None
        return decode_info(self.bucket, message.payload, message.sequence, message.timestamp_ns)
