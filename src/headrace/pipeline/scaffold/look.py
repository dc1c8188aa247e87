"""What a stream holds, for a first draft: asked of the server."""

from __future__ import annotations

from typing import Final

from ...documents import DocumentError, read_json
from ...errors import HeadraceError
from ...spark.links.control import Control
from ...spark.links.link import Link
from ...spark.options import Connection
from ...spark.reading.message_gets import MessageGets
from .draft import fields_of

_WITHIN_S: Final = 2.0


def fields_in(servers: str, stream: str) -> tuple[dict[str, str], str]:
    """The fields of the newest message of a stream, and what could not be seen, as a sentence.

    Args:
        servers: URLs, separated by commas.
    """
    urls = tuple(each.strip() for each in servers.split(","))
    try:
        link = Link.open(
            Connection(servers=urls, connect_timeout_s=_WITHIN_S, request_timeout_s=_WITHIN_S)
        )
    except HeadraceError as error:
        return {}, f"the messages of {stream} could not be looked at: {error}"
    try:
        last = Control(link, stream).head()[0].last_seq
        if not last:
            return {}, f"stream {stream} has no message to look at"
        gets = MessageGets(link, stream, _WITHIN_S)
        gets.ask([last])
        payloads = gets.take().payloads
        gets.close()
        if not payloads:
            return {}, f"the newest message of {stream} was removed"
        payload = payloads[0]
        try:
            return fields_of(payload, read_json(payload)), ""
        except DocumentError:
            return {}, ""  # it is read as text
    except HeadraceError as error:
        return {}, f"the messages of {stream} could not be looked at: {error}"
    finally:
        link.close()
