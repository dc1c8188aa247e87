"""Messages of a fast batch that may be stored or not: one after the other, until it is known again.

nats-server leaves out of a fast batch what has an id that the stream knows, and counts it as stored. But it
knows an id as soon as its leader has proposed the message to the others. A leader that is cut off from them
believes that it leads, and would count as stored what nobody else will ever have. An ordinary publish of
such a message is refused. So each is published by itself, until the stream has stored one anew: then all
that its leader had proposed before is stored, too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..jetstream.calls import Api
from ..net.leaders import patiently
from .awaited import RETRIES, PublishAgain, ask_stream

if TYPE_CHECKING:
    from ...api.messages import PubAck


async def publish_command(api: Api, command: bytes, seconds: float, limit: float) -> PubAck:
    """Publish what a PUB or HPUB command does, with an id among its headers, in an ordinary way.

    An answer is awaited for ``seconds``, and a leader for ``limit`` seconds. Raises as ``JetStream.publish``.
    """
    subject, block, payload = parts_of(command)
    again = PublishAgain(api, subject, RETRIES, deduplicated=True, expected=0)
    attempt = partial(ask_stream, api.session, subject, block, payload, seconds)
    return await patiently(api.session, limit, attempt, again.awaited)


def parts_of(command: bytes) -> tuple[str, bytes, bytes]:
    """Subject, headers and payload of a PUB or HPUB command that has a reply."""
    line, _, data = command.partition(b"\r\n")
    words = line.split(b" ")
    head = int(words[3]) if words[0] == b"HPUB" else 0
    return words[1].decode(), data[:head], data[head:-2]
