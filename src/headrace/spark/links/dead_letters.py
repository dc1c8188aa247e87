"""Dead letters on their way, of the source and of the sink."""

from __future__ import annotations

from collections.abc import Sequence

from ...api import base
from ...api.envelope import decode_pub_ack, decode_response
from ...api.streams import StreamNamesRequest, StreamNamesResponse
from ...errors import AuthorizationError, ConfigurationError, NoRespondersError
from .link import Link


def publish_letters(
    link: Link,
    subject: str,
    payloads: Sequence[bytes],
    blocks: list[bytes],
    *,
    who: str,
    option: str,
) -> None:
    """Publish letters to one subject, each with its header block, and wait until all are stored.

    Args:
        who, option: where the subject is from, for the error.

    Raises:
        ConfigurationError: no stream has the subject.
        NoRespondersError: one has it, and no leader at the moment.
    """
    try:
        for reply in link.request_many([(subject, payload) for payload in payloads], blocks):
            decode_pub_ack(reply.payload)
    except NoRespondersError as error:
        if _has_stream(link, subject):
            raise
        raise ConfigurationError(
            f"{who}: no stream takes the subject {subject!r} of {option}; create one"
        ) from error


def _has_stream(link: Link, subject: str) -> bool:
    """Whether a stream has ``subject``; no, if we may not ask or there is no JetStream."""
    body = base.encode(StreamNamesRequest(subject=subject))
    try:
        answer = link.request(link.api("STREAM", "NAMES"), body)
    except (AuthorizationError, NoRespondersError):
        return False
    return bool(decode_response(answer.payload, StreamNamesResponse).streams)
