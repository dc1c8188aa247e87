"""Whether a message is accepted: who may publish to the channel, and what a message may be."""

from __future__ import annotations

from ... import ids, limits
from ...errors import JobsError, bad_request, forbidden, not_found
from ...models import NewMessage, Options
from ...store import Row, Tx

__all__ = [
    "check_message",
    "publisher",
    "refuse_drained",
]


def publisher(
    tx: Tx,
    channel_id: str,
    channel_token: str,
    producer_id: str,
    producer_token: str,
    *,
    granted: bool = False,
) -> Row:
    """The channel and producer, checked in the specification's order: 404, 403, 401, 403.

    ``granted``: an API key stands for both tokens, and no producer has to be named.
    """
    row = tx.once(
        ("producer", channel_id, producer_id),
        lambda: tx.one("get_publisher", channel_id=channel_id, producer_id=producer_id),
    )
    if row is None:
        raise not_found("channel", "channelId")
    if not granted and not ids.token_matches(row["channel_token_hash"], channel_token):
        raise forbidden("X-Broker-Channel-Token")
    if row["producer_seq"] is None and (producer_id or not granted):
        raise JobsError(
            401, "unknown_producer", "there is no such producer", "X-Broker-Producer-ID"
        )
    if not granted and not ids.token_matches(row["producer_token_hash"], producer_token):
        raise forbidden("X-Broker-Producer-Token")
    refuse_drained(row)
    return row


def refuse_drained(channel: Row) -> None:
    """Refuse what is published to a channel that is drained (409)."""
    if channel["draining"]:
        raise JobsError(
            409,
            "channel_draining",
            "the channel is being drained: it takes no more messages",
            "channelId",
        )


def check_message(message: NewMessage, options: Options, now: int) -> None:
    """Reject invalid messages: 400, 412 (scheduled too soon), 413."""
    if not message.payload:
        raise bad_request("empty_payload", "a message needs a payload", "body")
    if len(message.payload) > options.payload_bytes_max:
        raise JobsError(
            413,
            "payload_too_large",
            f"at most {options.payload_bytes_max} bytes are accepted",
            "body",
        )
    if message.message_id is not None:
        ids.check_id(message.message_id, "X-Broker-Message-ID")
    if not 0 <= message.priority <= limits.PRIORITY_MAX:
        raise bad_request(
            "invalid_priority",
            f"0 to {limits.PRIORITY_MAX} is accepted",
            "X-Broker-Message-Priority",
        )
    if message.ordering_key is not None:
        ids.check_text(message.ordering_key, "X-Broker-Ordering-Key", limits.ORDERING_KEY_CHARS_MAX)
    ids.check_text(message.content_type, "Content-Type", limits.CONTENT_TYPE_CHARS_MAX)
    ids.check_header("Content-Type", message.content_type, "Content-Type")
    if len(message.headers) > limits.METADATA_HEADERS_MAX or (
        sum(len(name) + len(value) for name, value in message.headers.items())
        > limits.METADATA_BYTES_MAX
    ):
        raise bad_request(
            "too_many_headers",
            f"at most {limits.METADATA_HEADERS_MAX} headers of {limits.METADATA_BYTES_MAX} bytes are stored",
            "X-Broker-Metadata-Headers",
        )
    earliest = now + round(options.schedule_min_delay_s * 1e6)
    if message.scheduled_us is not None and message.scheduled_us < earliest:
        raise JobsError(
            412,
            "scheduled_too_soon",
            f"a message is scheduled at least {options.schedule_min_delay_s:g} s ahead",
            "X-Broker-Scheduled-For",
        )
