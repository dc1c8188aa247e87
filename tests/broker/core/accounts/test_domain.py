"""A server with a JetStream domain: its API answers under that name, and its answers say it."""

from __future__ import annotations

import json

import pytest

from headrace.broker import Broker
from headrace.broker.core.accounts.accounts import check_domain
from headrace.broker.core.jetstream.config.options import JetStreamOptions
from headrace.errors import ConfigurationError
from jetstream_world import World


def test_the_api_answers_under_the_name_of_the_domain_and_under_its_own() -> None:
    client = World(options=JetStreamOptions(domain="hub")).client()
    client.stream("S")
    for prefix in (b"$JS.API.", b"$JS.hub.API."):
        (answer,) = client.request(prefix + b"INFO").take()
        assert json.loads(answer.payload)["domain"] == "hub"
    assert client.api("STREAM.INFO.S")["domain"] == "hub"
    assert client.put(b"s.x") == {"stream": "S", "domain": "hub", "seq": 1}
    config = {"name": "C", "durable_name": "C", "ack_policy": "explicit"}
    client.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    (message,) = client.request(b"$JS.hub.API.CONSUMER.MSG.NEXT.S.C", b"1").take()
    assert message.subject == b"s.x"
    for nobody in (b"$JS.hub.API.CONSUMER.MSG.NEXT.S.D", b"$JS.other.API.INFO"):
        assert client.request(nobody, b"1").take()[0].status == "503"


@pytest.mark.parametrize("name", ["a.b", "*", "a b", ">", "API", "a\n"])
def test_a_domain_that_is_no_token_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"domain: .*; accepted is a name"):
        check_domain(name)
    with pytest.raises(ConfigurationError, match="domain"):
        Broker(domain=name)
