"""The envelope of API answers: a ``type``, then either an ``error`` or the document's own fields."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from ..errors import ProtocolError
from .base import Document, DocumentError, from_wire, read_json, to_wire
from .consumers import CreateConsumerRequest
from .errors import ErrorSpec, api_error
from .messages import PubAck
from .names import RESPONSE_TYPE_PREFIX

D = TypeVar("D", bound=Document)


def encode_response(kind: str, document: Document | None, **extra: Any) -> bytes:
    """An answer of type ``kind`` (for example ``stream_info_response``) with a document's fields."""
    body = to_wire(document) if document is not None else {}
    return msgspec.json.encode({"type": RESPONSE_TYPE_PREFIX + kind, **extra, **body})


def encode_error(kind: str, error: ErrorSpec) -> bytes:
    """An error answer of type ``kind``."""
    return msgspec.json.encode({"type": RESPONSE_TYPE_PREFIX + kind, "error": error.to_wire()})


def encode_pub_error(stream: str, error: ErrorSpec) -> bytes:
    """The answer to a publish that a stream rejected."""
    return msgspec.json.encode({"error": error.to_wire(), "stream": stream, "seq": 0})


def decode_response(data: bytes, kind: type[D]) -> D:
    """Read an answer.

    Raises:
        JetStreamApiError: the answer is an error.
        DocumentError: the answer is not the expected document.
    """
    raw = _object(data)
    error = raw.get("error")
    if isinstance(error, dict):
        raise api_error(error)
    return from_wire(raw, kind)


def read_answer(subject: str, data: bytes, kind: type[D]) -> D:
    """Read what came on a request to ``subject``.

    Raises:
        JetStreamApiError: the answer is an error.
        ProtocolError: JetStream has not said this.
    """
    try:
        return decode_response(data, kind)
    except DocumentError as error:
        raise ProtocolError(f"the answer on {subject!r} is not understood: {error}") from error


def decode_pub_ack(data: bytes) -> PubAck:
    """Read a publish acknowledgement. Raises like ``decode_response``."""
    return decode_response(data, PubAck)


def decode_create_consumer(data: bytes) -> CreateConsumerRequest:
    """Read CONSUMER.CREATE strictly; an absent ``ack_policy`` means ``none``, as the server reads it.

    Raises:
        DocumentError: the request is malformed; the text completes ``invalid JSON: …``.
    """
    raw = _object(data)
    config = raw.get("config")
    if isinstance(config, dict):
        raw["config"] = {"ack_policy": "none", **{k: v for k, v in config.items() if v is not None}}
    return from_wire(raw, CreateConsumerRequest, strict=True)


def _object(data: bytes) -> dict[str, Any]:
    raw = read_json(data)
    if not isinstance(raw, dict):
        raise DocumentError("json: expected an object")
    return raw
