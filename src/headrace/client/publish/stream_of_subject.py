"""Which stream has a subject: asked when a publish is not answered, or not by a leader.

"No responders" means an election, or that no stream has the subject. So the leader of JetStream is asked who
has it. If nobody has, the publish fails at once. Otherwise it is sent again until ``delivery_timeout``.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from ...api.base import DocumentError, encode
from ...api.envelope import decode_response
from ...api.errors import is_leaderless
from ...api.streams import StreamNamesRequest, StreamNamesResponse
from ...errors import (
    BufferFullError,
    DisconnectedError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    RequestTimeoutError,
    ServerError,
)
from ..jetstream.calls import Api

# Refusals within 15 s: a leader that does not hear from the others gives up after 10 s. The sequence may
# also be right, and the message gone.
BEHIND_MAX: Final = 16
_TOO_MANY: Final = 10211
ASK_S: Final = 1.0  # in a cluster, no answer for this long means that JetStream has no leader


def nobody_has(subject: str) -> NoRespondersError:
    """What is raised when no stream has a subject."""
    return NoRespondersError(f"no stream has the subject {subject!r}")


def may_pass(error: HeadraceError) -> bool:
    """Whether nobody took a message of a fast batch who leads; it is not stored."""
    return isinstance(error, NoRespondersError) or is_leaderless(error)


def is_passing(error: HeadraceError) -> bool:
    """Whether a stream has too many fast batches just now."""
    return isinstance(error, JetStreamApiError) and error.err_code == _TOO_MANY


class Who(Enum):
    """What is known of the stream of a subject."""

    STREAM = auto()
    NOBODY = auto()
    NOT_NOW = auto()
    """Nobody can say: JetStream itself has no leader, or the connection was lost."""
    UNTOLD = auto()
    """We may not ask, or nobody understands the question."""


class StreamAnswer(NamedTuple):
    """``of`` is what has no leader, in words."""

    who: Who
    of: str = "JetStream"


async def who_has(api: Api, subject: str) -> StreamAnswer:
    """Ask the leader of JetStream which stream has ``subject``.

    Raises ConnectionClosedError.
    """
    body = encode(StreamNamesRequest(subject=subject))
    session = api.session
    seconds = min(api.timeout, ASK_S) if session.info.cluster else api.timeout
    try:
        frame = await session.requests.ask(api.subject("STREAM", "NAMES"), b"", body, seconds)
        names = decode_response(frame[5], StreamNamesResponse).streams
    except NoRespondersError:
        return StreamAnswer(Who.NOBODY)  # there is no JetStream here
    except JetStreamApiError as error:
        return StreamAnswer(Who.NOT_NOW if is_leaderless(error) else Who.NOBODY)
    except (DisconnectedError, BufferFullError):
        return StreamAnswer(Who.NOT_NOW)
    except RequestTimeoutError:
        return StreamAnswer(Who.NOT_NOW if session.info.cluster else Who.UNTOLD)
    except (ServerError, DocumentError):
        return StreamAnswer(Who.UNTOLD)
    return StreamAnswer(Who.STREAM, f"stream {names[0]!r}") if names else StreamAnswer(Who.NOBODY)
