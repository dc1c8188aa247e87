"""What rooms above the client are given of it by name, beyond what users see.

``groups``, ``locks`` and the console stand on the client. What they need of its inside is here, and they
reach for nothing else (``tests/house/test_seams.py``). This is the one file that reaches on their behalf.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Unpack

from ..api.acks import IN_PROGRESS
from ..errors import JetStreamApiError
from ..handling.dead_letter_headers import Letter
from .jetstream.consuming.answers import Answers
from .jetstream.consuming.feed import unheard
from .jetstream.message import place_of
from .jetstream.stored_message import StreamMessage
from .jetstream.stream import Stream
from .jetstream.streams import Streams
from .jetstream_context import JetStream

if TYPE_CHECKING:
    from ..api.streams import StreamConfig
    from .connection import Connection
    from .events import Event
    from .jetstream.calls import Api
    from .jetstream.consumer import Consumer
    from .jetstream.message import DeliveredMessage, JetStreamMessage
    from .kv import KeyValue
    from .message import HeadersLike, Payload
    from .net.session import Resident
    from .publish.headers import PublishOptions

__all__ = [
    "ManagedConsumption",
    "Residence",
    "answer_of",
    "answers_from_threads",
    "api_of",
    "change_key",
    "confirm",
    "create_empty_stream",
    "is_decided_elsewhere",
    "name_of",
    "note_answered",
    "place_of",
    "send_back",
]


def api_of(caller: JetStream | KeyValue) -> Api:
    """The calls of the JetStream API that a context, or a bucket, makes."""
    return caller._api


async def create_empty_stream(js: JetStream, config: StreamConfig) -> None:
    """Create a stream that is not there yet and that nobody publishes to, without messages that a deleted one
    has left. Raises JetStreamApiError, and StreamLeftoversError where they come back for some seconds."""
    await Streams(api_of(js)).create_empty(config)


async def change_key(
    bucket: KeyValue,
    key: str,
    value: Payload,
    headers: HeadersLike,
    **options: Unpack[PublishOptions],
) -> int:
    """Store a change of a key with the caller's own headers. Returns its revision; raises as ``update``."""
    return await bucket._change(key, value, headers, **options)


class Residence:
    """A resident's place on a connection: what works over it until ``end``, and ends when it is closed.

    Args:
        resident: what is asked to leave when the connection is closed.
    """

    def __init__(self, connection: Connection, resident: Resident) -> None:
        self._session = connection._session
        self._resident = resident

    def begin(self) -> None:
        """From now on closing the connection waits for the resident."""
        self._session.residents[self._resident] = None

    def end(self) -> None:
        """The resident has left."""
        self._session.residents.pop(self._resident, None)

    def emit(self, event: Event) -> None:
        """Tell those who listen to the connection's events."""
        self._session.hub.emit(event)

    def report(self, error: Exception, about: str = "") -> None:
        """Tell the user of an error that no caller waits for, and what it is about."""
        self._session.report(error, about)

    def traced(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """``handler`` with a span for each message, where the connection makes spans."""
        spans = self._session.spans
        return handler if spans is None else spans.traced(handler)


def name_of(connection: Connection) -> str:
    """What the connection's options call it; "" if nothing."""
    return connection._session.options.name


def answers_from_threads(connection: Connection, report: Callable[[Exception], None]) -> Answers:
    """Takes answers of handlers on threads, and sends them from the loop's."""
    return Answers(connection._session, report)


class ManagedConsumption:
    """A running consume whose messages, and whose end, its owner answers for.

    The owner says of what it holds that it is in progress, and decides what goes back at the end. Where a
    plain consume sends back whatever nobody took, this one sends back what the owner names. It hears by
    ``on_failed`` of an end that nobody asked for, before what came until then is taken.
    """

    def __init__(
        self,
        consumer: Consumer,
        *,
        expires: float,
        group: str,
        on_error: Callable[[Exception], object],
        on_failed: Callable[[Exception], object] | None = None,
    ) -> None:
        consumer._on_failed = on_failed or unheard
        self._consumption = consumer.consume(expires=expires, on_error=on_error, group=group)
        self._feed = self._consumption._feed
        self._session = consumer._session
        self._links_before = self._session.reconnects
        self.next_batch = self._consumption.next_batch
        self.drain = self._consumption.drain
        self.stop = self._consumption.stop

    # What is known of it

    @property
    def buffered(self) -> int:
        """Messages that came and were not taken yet."""
        return self._consumption.buffered

    @property
    def last_heard(self) -> float:
        """When something came last, in the loop's time."""
        return self._consumption._last_heard

    @property
    def is_linked(self) -> bool:
        """Whether there is a link now, by which something can be sent."""
        return self._session.link is not None

    @property
    def was_cut_off(self) -> bool:
        """Whether the link was lost, and made anew, since it began."""
        return self._session.reconnects > self._links_before

    def is_fed_by(self, observer: object) -> bool:
        """Whether ``observer`` of the connection is what brings its messages."""
        return observer is self._feed

    # What its owner says

    def say_in_progress(self, messages: list[JetStreamMessage]) -> None:
        """Neither these, nor what is in the buffer, shall be delivered again yet."""
        replies = [message._frame[3] for message in messages]
        replies += [frame[3] for frame in self._consumption._frames]
        if replies:
            self._session.send_control(self._session.outbox.answers(replies, IN_PROGRESS))

    def write_answers(self) -> None:
        """Send what was answered so far, without waiting for the end of the loop's turn."""
        self._session.outbox.write_now()

    # The end

    def pull_no_more(self) -> None:
        """Send no further pull. What the last one brings still comes, and the server still knows us by it."""
        self._feed.pull_no_more()

    def abandon(self) -> None:
        """End without a word to anybody; what is in the buffer can still be taken."""
        self._consumption._abandon()

    def give_back(self, taken: list[JetStreamMessage]) -> None:
        """End: these go back, what is in the buffer, and what is on its way."""
        self._consumption._give_back(taken)


# Messages


def send_back(messages: list[JetStreamMessage]) -> None:
    """Have them delivered again at once, the first of them first. Without a link they come by themselves."""
    if messages:
        messages[0]._session.send_back([message._frame[3] for message in messages])


def answer_of(message: DeliveredMessage) -> bool | str:
    """True of an acknowledgement, else what the final answer was called; False: there is none yet."""
    return message._answered


def note_answered(message: DeliveredMessage) -> None:
    """Another object for the same message was answered."""
    message._answered = True


async def confirm(message: DeliveredMessage, timeout: float | None) -> None:
    """As ``ack_sync``, but nobody is asked but the server that delivered it. Raises AckUnknownError, too."""
    await message._confirm(timeout, must_be_current=True)


def is_decided_elsewhere(message: DeliveredMessage) -> bool:
    """Whether another server than the one we talk to may be the one that confirms, as in a cluster."""
    return message._is_decided_elsewhere()


_GONE: Final = 10037  # no message found


async def send_again(
    js: JetStream, letters: Stream, message: StreamMessage, letter: Letter, target: str = ""
) -> None:
    """Publish the letter's message to whence it comes, or to ``target``; remove the letter when it is stored.

    Within the duplicate window of its stream it is stored once, however often this is tried. The letter's
    time is in its id: the first letter of a stream that was made again has the sequence of another one.
    """
    await js.publish(
        target or letter.subject,
        message.payload,
        headers=letter.headers,
        msg_id=f"{letters.name}.{message.sequence}.{message.timestamp_ns}.again",
    )
    try:
        await letters.delete_message(message.sequence)
    except JetStreamApiError as error:
        if error.err_code != _GONE:
            raise
