"""Waiting until a work queue has removed what was acknowledged, before its consumer is deleted.

A replicated stream of nats-server confirms an ack when the consumer's servers have it, and removes the
message a moment later. If the consumer is deleted in between (2.15.1) the message stays, and the next
owner of its partition is given it once more, though its ack was confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ....api.base import encode
from ....api.envelope import decode_response
from ....api.messages import GetMessageRequest, GetMessageResponse
from ....client.seam import api_of
from ....errors import ConnectionClosedError, HeadraceError, JetStreamApiError

if TYPE_CHECKING:
    from ....client import JetStream

__all__ = ["until_removed"]

ASK_FIRST_S: Final = 0.02
ASK_MAX_S: Final = 0.5
NOT_FOUND: Final = 404


async def until_removed(
    js: JetStream, stream: str, sequence: int, seconds: float, goes_on: Callable[[], bool]
) -> bool:
    """Wait until ``stream`` has no message with this sequence; False if it has, after ``seconds`` or when
    ``goes_on`` says no. A server that does not answer is asked again. Raises ConnectionClosedError."""
    time = asyncio.get_running_loop().time
    subject = api_of(js).subject("STREAM", "MSG", "GET", stream)
    request = encode(GetMessageRequest(seq=sequence))
    ends, pause = time() + seconds, ASK_FIRST_S
    while goes_on() and (left := ends - time()) > 0:
        try:
            answer = await js.connection.request(subject, request, timeout=left)
            decode_response(answer.payload, GetMessageResponse)
        except ConnectionClosedError:
            raise
        except JetStreamApiError as error:
            if error.code == NOT_FOUND:
                return True
        except HeadraceError:
            pass  # no leader, or the link is lost: there may be one again in time
        await asyncio.sleep(max(0.0, min(pause, ends - time())))
        pause = min(2 * pause, ASK_MAX_S)
    return False
