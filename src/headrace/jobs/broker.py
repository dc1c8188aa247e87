"""The broker of the channels that live in a stream: one connection for all of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..client import connect
from ..errors import (
    ConfigurationError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    StreamNotFoundError,
)
from . import limits
from .channel_stream import ORDERING_KEY, ChannelStream
from .errors import JobsError
from .ids import prefix_of
from .matching.filters import SUBJECT
from .models import NewMessage

if TYPE_CHECKING:
    from ..client import Connection, JetStream

__all__ = ["BrokerUnavailableError", "Place", "Streams", "streams_of"]

_OTHER_STREAM: Final = 10060


class BrokerUnavailableError(JobsError):
    """The broker did not answer. Of a publish nobody knows whether it is stored."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            503,
            "broker_unavailable",
            f"the broker of the stream did not answer ({reason}); the request may be repeated",
            retry_after_s=1.0,
        )


@dataclass(frozen=True, slots=True)
class Place:
    """A stream: when it was made, its first and last sequence, and the subjects it takes."""

    created: str
    first: int
    last: int
    subjects: tuple[str, ...] = ()


class Streams:
    """See the module. It connects when it is needed first, and again when the connection is lost.

    ``ack_wait_s``: after that the broker delivers again what a process had that died.
    """

    def __init__(self, url: str, ack_wait_s: float = limits.STREAM_ACK_WAIT_S_DEFAULT) -> None:
        self._url = url
        self.ack_wait_s = ack_wait_s
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._prefixes: dict[str, tuple[str, float]] = {}

    async def jetstream(self) -> JetStream:
        """The connected context. Raises BrokerUnavailableError."""
        async with self._connecting:
            if self._connection is None or self._connection.is_closed:
                try:
                    self._connection = await connect(
                        self._url, name="headrace-jobs", request_timeout=limits.STREAM_CALL_S
                    )
                except ConfigurationError:
                    raise
                except (HeadraceError, OSError) as error:
                    raise BrokerUnavailableError(str(error)) from error
            return self._connection.jetstream()

    async def place(self, name: str) -> Place:
        """Where a stream is; 409 if there is none."""
        js = await self.jetstream()
        try:
            info = await (await js.stream(name)).info()
        except StreamNotFoundError:
            raise _missing(name) from None
        except (HeadraceError, OSError) as error:
            raise BrokerUnavailableError(str(error)) from error
        state = info.state
        return Place(
            info.created or "", state.first_seq, state.last_seq, tuple(info.config.subjects)
        )

    async def prefix(self, name: str) -> str:
        """What the ids of a stream's messages begin with; a moment old."""
        now = asyncio.get_running_loop().time()
        found, asked = self._prefixes.get(name, ("", -limits.STREAM_LOOK_S))
        if now - asked < limits.STREAM_LOOK_S:
            return found
        found = prefix_of(name, (await self.place(name)).created)
        self._prefixes[name] = found, now
        return found

    async def check(self, stream: ChannelStream) -> None:
        """409 if the stream is not there, 400 if it does not take the channel's subject."""
        js = await self.jetstream()
        try:
            info = await (await js.stream(stream.name)).info()
        except StreamNotFoundError:
            raise _missing(stream.name) from None
        except (HeadraceError, OSError) as error:
            raise BrokerUnavailableError(str(error)) from error
        takes = ChannelStream(name=stream.name, filter=tuple(info.config.subjects))
        if stream.subject and not (info.config.subjects and takes.takes(stream.subject)):
            raise JobsError(
                400,
                "invalid_stream",
                f"the stream takes {', '.join(info.config.subjects) or 'no subjects'}",
                "stream.subject",
            )

    async def publish(
        self, stream: ChannelStream, messages: Sequence[NewMessage]
    ) -> list[tuple[int, bool]]:
        """Publish, in order, and return once all are on the broker's disk.

        The sequence of each, and whether the stream had it before. Raises BrokerUnavailableError, and
        JobsError for a message that the stream refuses.
        """
        js = await self.jetstream()
        # What stands in one line is sent in one: the calls begin in order, and wait together.
        answers = await asyncio.gather(
            *(self._publish(js, stream, message) for message in messages), return_exceptions=True
        )
        found = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer)
        return found

    async def _publish(
        self, js: JetStream, stream: ChannelStream, message: NewMessage
    ) -> tuple[int, bool]:
        subject = message.headers.get(SUBJECT) or stream.subject
        if not subject:
            raise JobsError(
                400,
                "subject_missing",
                "the channel publishes to no subject by itself: name one of the stream's",
                "X-Broker-Subject",
            )
        if not stream.takes(subject):
            raise JobsError(
                400,
                "invalid_subject",
                f"consumers of the channel get {', '.join(stream.filter)}",
                "X-Broker-Subject",
            )
        try:
            ack = await js.publish(
                subject,
                message.payload,
                headers=_headers(message),
                msg_id=message.message_id or "",
                expected_stream=stream.name,
            )
        except JetStreamApiError as error:
            status = 409 if error.err_code == _OTHER_STREAM else 503
            code = "other_stream" if status == 409 else "stream_refused"
            raise JobsError(
                status, code, f"the stream {stream.name}: {error}", "channelId"
            ) from error
        except NoRespondersError as error:
            raise JobsError(409, "other_stream", f"{error}", "X-Broker-Subject") from error
        except (HeadraceError, OSError) as error:
            raise BrokerUnavailableError(str(error)) from error
        return ack.seq, ack.duplicate

    async def close(self) -> None:
        """Close the connection, after what is written to it."""
        if self._connection is not None:
            await self._connection.close()


def streams_of(streams: Streams | None) -> Streams:
    """The broker; 409 if the service has none."""
    if streams is None:
        raise JobsError(
            409,
            "no_streams",
            "the service knows no broker: `[streams]` of its configuration names the url of one",
        )
    return streams


def _missing(name: str) -> JobsError:
    return JobsError(409, "stream_missing", f"the broker has no stream {name}", "stream")


def _headers(message: NewMessage) -> Mapping[str, str]:
    named = {name: value for name, value in message.headers.items() if name != SUBJECT}
    named["Content-Type"] = message.content_type
    if message.ordering_key is not None:
        named[ORDERING_KEY] = message.ordering_key
    return named
