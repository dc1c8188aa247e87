"""Which server next, and how long to wait."""

from __future__ import annotations

import random

from headrace.client.net.handshake import Credentials, parse_servers
from headrace.client.net.servers import ServerPool
from headrace.client.nuid import Nuid, base62


def pool(*urls: str, max_attempts: int = -1, randomize: bool = False) -> ServerPool:
    return ServerPool(
        parse_servers(urls),
        randomize=randomize,
        max_attempts=max_attempts,
        random=random.Random(1),
    )


def test_servers_are_tried_in_turn() -> None:
    servers = pool("a", "b", "c", "a")
    assert [str(servers.next()) for _ in range(4)] == [
        "nats://a:4222",
        "nats://b:4222",
        "nats://c:4222",
        "nats://a:4222",
    ]


def test_a_server_that_failed_too_often_is_left_out_until_one_answers() -> None:
    servers = pool("a", "b", max_attempts=2)
    first, second = servers.next(), servers.next()
    assert first is not None
    assert second is not None
    for address in (first, first, second):
        servers.failed(address)
    assert {servers.next() for _ in range(3)} == {second}
    servers.failed(second)
    assert servers.next() is None
    servers.succeeded(second)
    assert servers.next() == second


def test_discovered_servers_join_with_the_credentials_of_the_given_ones() -> None:
    servers = pool("tls://u:p@a")
    servers.discover(["10.0.0.1:4223", "a:4222", "nats://[bad"])
    given, new = servers.addresses
    assert [str(given), str(new)] == ["tls://a:4222", "tls://10.0.0.1:4223"]
    assert new.credentials == Credentials("u", "p")
    servers.discover(["10.0.0.1:4223"])
    assert servers.addresses == [given, new]


def test_the_order_is_shuffled_on_request() -> None:
    urls = [f"h{number}" for number in range(20)]
    assert [a.host for a in pool(*urls).addresses] == urls
    assert [a.host for a in pool(*urls, randomize=True).addresses] != urls


def test_identifiers_do_not_repeat_and_have_their_form() -> None:
    nuid = Nuid(random.Random(7))
    seen = {nuid.next() for _ in range(10_000)}
    assert len(seen) == 10_000
    assert all(len(i) == 22 and i.isalnum() for i in seen)
    assert base62(61, 2) == "0z"
