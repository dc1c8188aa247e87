"""Answers: a document or a refusal, in one envelope."""

from __future__ import annotations

import json

import pytest

from headrace.api.base import DocumentError
from headrace.api.envelope import (
    decode_create_consumer,
    decode_pub_ack,
    decode_response,
    encode_error,
    encode_pub_error,
    encode_response,
)
from headrace.api.errors import Errors
from headrace.api.messages import PubAck, SuccessResponse
from headrace.errors import JetStreamApiError


def test_an_answer_names_its_type_and_is_read_back() -> None:
    data = encode_response("stream_delete_response", SuccessResponse())
    assert json.loads(data) == {
        "type": "io.nats.jetstream.api.v1.stream_delete_response",
        "success": True,
    }
    assert decode_response(data, SuccessResponse) == SuccessResponse()


def test_a_refusal_becomes_an_exception_with_its_numbers() -> None:
    data = encode_error("stream_info_response", Errors.STREAM_NOT_FOUND)
    with pytest.raises(JetStreamApiError, match="stream not found") as caught:
        decode_response(data, SuccessResponse)
    assert (caught.value.code, caught.value.err_code) == (404, 10059)


def test_a_refused_publish_says_why() -> None:
    data = encode_pub_error("S", Errors.STREAM_WRONG_LAST_SEQUENCE.with_(seq=7))
    with pytest.raises(JetStreamApiError, match="wrong last sequence: 7"):
        decode_pub_ack(data)
    assert decode_pub_ack(b'{"stream":"S","seq":4}') == PubAck(stream="S", seq=4)


def test_a_raw_create_without_ack_policy_means_none() -> None:
    request = decode_create_consumer(b'{"stream_name":"S","config":{"durable_name":"d"}}')
    assert request.config.ack_policy == "none"
    given = decode_create_consumer(b'{"config":{"ack_policy":"all"}}')
    assert given.config.ack_policy == "all"


@pytest.mark.parametrize("data", [b"", b"[]", b'{"config":{"unknown":1}}', b'{"config": 3}'])
def test_a_malformed_create_is_refused(data: bytes) -> None:
    with pytest.raises(DocumentError):
        decode_create_consumer(data)


def test_the_error_table_has_each_number_once() -> None:
    rows = [row for row in vars(Errors).values() if hasattr(row, "err_code")]
    assert len(rows) > 150
    assert len({row.err_code for row in rows}) == len(rows)
