"""A worker on a bare socket: pulls, acknowledges with a reply, remembers every answer."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from typing import Any

from crash.kill_load import RECEIVE_BYTES, STREAM, Requester, connect

BATCH = 64
DURABLE = "WORK"

_DELIVERY = re.compile(
    rb"MSG crash\.\d+ 1 (\$JS\.ACK\.[^.]+\.[^.]+\.\d+\.(\d+)\.[^ ]+) \d+\r\n[^\r]*\r\n"
)
_ANSWER = re.compile(rb"MSG _INBOX\.ack\.(\d+) 2 0\r\n\r\n")


class Worker:
    """Works through a durable consumer; ``answered`` are the sequences whose ack was confirmed.

    What had no answer when the server was killed is asked again of the next one, by the same reply subject;
    ``asked_again`` counts that.
    """

    def __init__(self) -> None:
        self.answered: set[int] = set()
        self.delivered: list[int] = []
        self.asked_again = 0
        self._unanswered: dict[int, bytes] = {}

    def work(self, host: str, port: int, seconds: float, kill: Callable[[], None]) -> None:
        """Pull and acknowledge for so long, kill the server, take what it had still said."""
        wire = self._open(host, port)
        try:
            deadline = time.monotonic() + seconds
            data = b""
            while (remaining := deadline - time.monotonic()) > 0:
                wire.settimeout(remaining)
                try:
                    data = self._take(wire, data + wire.recv(RECEIVE_BYTES))
                except TimeoutError:
                    break
            kill()
            wire.settimeout(1.0)
            try:
                while chunk := wire.recv(RECEIVE_BYTES):
                    data = self._take(wire, data + chunk)
            except (ConnectionError, TimeoutError):
                pass  # that is what a killed server looks like
        finally:
            wire.close()

    def finish(self, host: str, port: int, patience: float) -> dict[str, Any]:
        """Work until the consumer has nothing left; returns its last info.

        What the broker says decides: an acknowledgement may have been taken whose answer the kill
        cut off. Gives up after ``patience`` seconds.
        """
        wire = self._open(host, port)
        deadline = time.monotonic() + patience
        data = b""
        try:
            wire.settimeout(0.2)
            while True:
                try:
                    data = self._take(wire, data + wire.recv(RECEIVE_BYTES))
                    continue
                except TimeoutError:
                    pass  # quiet: time to ask
                with Requester(host, port) as requester:
                    info = requester.ask(f"CONSUMER.INFO.{STREAM}.{DURABLE}")
                left = info["num_pending"] + info["num_ack_pending"]
                if not left or time.monotonic() > deadline:
                    return info
        finally:
            wire.close()

    def _open(self, host: str, port: int) -> socket.socket:
        wire = connect(host, port)
        wire.sendall(b"SUB _INBOX.work 1\r\nSUB _INBOX.ack.* 2\r\n")
        self._asked = 0
        self.asked_again += len(self._unanswered)
        wire.sendall(b"".join(map(_ack, self._unanswered.values(), self._unanswered)))
        self._ask(wire)
        return wire

    def _ask(self, wire: socket.socket) -> None:
        body = b'{"batch":%d,"expires":60000000000}' % BATCH
        subject = b"$JS.API.CONSUMER.MSG.NEXT.%s.%s" % (STREAM.encode(), DURABLE.encode())
        wire.sendall(b"PUB %s _INBOX.work %d\r\n%s\r\n" % (subject, len(body), body))
        self._asked += BATCH

    def _take(self, wire: socket.socket, data: bytes) -> bytes:
        """Acknowledge what was delivered, note what was answered; returns the incomplete rest."""
        acks, end = [], 0
        for found in _DELIVERY.finditer(data):
            end = max(end, found.end())
            sequence = int(found[2])
            self.delivered.append(sequence)
            self._asked -= 1
            self._unanswered[sequence] = found[1]
            acks.append(_ack(found[1], sequence))
        for found in _ANSWER.finditer(data):
            end = max(end, found.end())
            self.answered.add(int(found[1]))
            self._unanswered.pop(int(found[1]), None)
        try:
            if acks:
                wire.sendall(b"".join(acks))
            if self._asked <= BATCH // 2:
                self._ask(wire)
        except ConnectionError:
            pass  # killed meanwhile: reading tells
        return data[end:]


def _ack(reply: bytes, sequence: int) -> bytes:
    return b"PUB %s _INBOX.ack.%d 4\r\n+ACK\r\n" % (reply, sequence)
