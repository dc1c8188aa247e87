"""Reading a pull request and refusing what can not be, in the order of the public server."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from ......api import names
from ......api.base import DocumentError, decode
from ......api.consumers import ConsumerConfig, PullRequest
from ......quantities import go_duration_text
from ...config.ranges import check_ranges, read_number
from ...config.sizes import check_request_size
from ...headers.statuses import bad_request, status

_NS: Final = 1_000_000_000
_PRIORITY_MAX: Final = 9
_REMEMBERED_BYTES_MAX: Final = 256


class ParsedPull(msgspec.Struct, frozen=True):
    """A pull request, or the status that refuses it. ``plain``: the body was no JSON."""

    request: PullRequest
    plain: bool = False
    refusal: bytes = b""


def parse_pull(body: bytes) -> ParsedPull:
    """Read a body: empty, a number, a JSON object; any other text asks for one message.

    Clients repeat themselves, so the last few thousand bodies are remembered, unless they are long.
    """
    return _parse_again(body) if len(body) <= _REMEMBERED_BYTES_MAX else _parse(body)


def _parse(body: bytes) -> ParsedPull:
    text = body.strip()
    if not text.startswith(b"{"):
        batch = read_number(text.removeprefix(b"+"))
        batch = 1 if batch is None else batch
        return ParsedPull(PullRequest(batch=batch), plain=True)
    try:
        check_request_size(text)
        request = check_ranges(decode(text, PullRequest))
    except DocumentError as error:
        return ParsedPull(PullRequest(), refusal=bad_request(str(error)))
    if request.idle_heartbeat > 0 and 2 * request.idle_heartbeat > request.expires:
        return ParsedPull(request, refusal=bad_request("heartbeat value too large"))
    return ParsedPull(request)


_parse_again = lru_cache(maxsize=4096)(_parse)


def check_pull(parsed: ParsedPull, config: ConsumerConfig) -> bytes:
    """The status that refuses a request on a consumer with this configuration, or ``b""``."""
    request = parsed.request
    if parsed.refusal:
        return parsed.refusal
    if 0 < config.max_batch < request.batch:
        return status((409, f"Exceeded MaxRequestBatch of {config.max_batch}"))
    if 0 < config.max_expires < request.expires:
        limit = go_duration_text(round(config.max_expires * _NS))
        return status((409, f"Exceeded MaxRequestExpires of {limit}"))
    if 0 < config.max_bytes < request.max_bytes:
        return status((409, f"Exceeded MaxRequestMaxBytes of {config.max_bytes}"))
    policy = config.priority_policy
    if (request.min_pending or request.min_ack_pending) and policy != "overflow":
        return bad_request("Not a Overflow Priority consumer")
    if request.id and policy != "pinned_client":
        return bad_request("Not a Pinned Client Priority consumer")
    if not 0 <= request.priority <= _PRIORITY_MAX:
        return bad_request("Priority must be between 0 and 9")
    if policy != "none" and not parsed.plain:
        if not request.group:
            return bad_request("Priority Group missing")
        if request.group not in config.priority_groups:
            return bad_request("Invalid Priority Group")
    return b""


PIN_ID_MISMATCH: Final = status(names.PIN_ID_MISMATCH)
