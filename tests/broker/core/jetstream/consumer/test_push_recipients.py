"""A delivery pass of a push consumer: how far flow control lets it go, however many go out together."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.broker.core.jetstream.consumer import push
from headrace.broker.core.jetstream.consumer.delivery_pass import Sender
from jetstream_world import Received, World, publication

FIRST = 3_000
MESSAGES = 600


def size(message: Received) -> int:
    return len(message.subject + message.reply + message.headers + message.payload)


@pytest.mark.parametrize("options", [{}, {"headers_only": True}])
def test_flow_control_asks_and_waits_by_the_bytes_of_each_message(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """The numbers in reply subjects get longer and shorter meanwhile."""
    together = watched(monkeypatch)
    monkeypatch.setattr(push, "FLOW_WINDOW_BYTES_FIRST", FIRST)
    client = World().client()
    client.stream()
    client.send(b"".join(publication(b"s.1", b"x" * (n % 30)) for n in range(MESSAGES)))
    inbox = client.subscribe(b"d")
    client.consumer(deliver_subject="d", flow_control=True, idle_heartbeat=5_000_000_000, **options)
    limit, outstanding, asked_at, request, count = FIRST, 0, 0, b"", 0
    while heard := inbox.take():
        for message in heard:
            if message.reply.startswith(b"$JS.ACK"):
                assert outstanding <= limit, "the window was full"
                assert request or outstanding <= limit // 2, "it was time to ask"
                outstanding += size(message)
                count += 1
            else:
                assert not request and outstanding > limit // 2, "it was too early to ask"
                request, asked_at = message.reply, outstanding
        assert count == MESSAGES or outstanding > limit, "there was room for more"
        if request:
            limit, outstanding = 2 * limit, outstanding - asked_at
            answered, request = request, b""
            client.publish(answered)
    assert count == MESSAGES
    assert max(together) > 1


def watched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages are sent together each time."""
    together: list[int] = []
    real = Sender.send_stored

    def send_stored(self: Sender, target: Any, rows: list[Any]) -> None:
        together.append(len(rows))
        real(self, target, rows)

    monkeypatch.setattr(Sender, "send_stored", send_stored)
    return together
