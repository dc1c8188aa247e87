"""A reader on a bare socket: pulls, counts, acknowledges, and does nothing else.

It finds ack subjects in what comes and counts them; payloads are not looked at. So it shows what a
server can deliver, and how far a client is from that.
"""

from __future__ import annotations

import json
import re
import time

from rawsocket import RawConnection

INBOX = b"_INBOX.pull"
MARK = b"$JS.ACK."
RECEIVE_BYTES = 1 << 20

_ACK_SUBJECT = re.compile(rb"\$JS\.ACK\.[^ \r\n]+(?= )")
_ACK_END = b" 0\r\n\r\n"


def pull_all(
    connection: RawConnection,
    stream: str,
    consumer: str,
    messages: int,
    batch: int,
    *,
    acks: bool,
    in_flight: int = 1,
) -> float:
    """Pull ``messages`` in requests of ``batch``, ``in_flight`` of them at a time; returns the seconds.

    With ``acks`` each message is acknowledged, a batch in one write with the request for the next one.
    """
    wire = connection.socket
    body = json.dumps({"batch": batch, "expires": 30_000_000_000}).encode()
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}".encode()
    pull = b"PUB %b %b %d\r\n%b\r\n" % (subject, INBOX, len(body), body)
    wire.sendall(b"SUB " + INBOX + b" 3\r\n")
    started = time.perf_counter()
    wire.sendall(pull * in_flight)
    asked, taken, since = in_flight * batch, 0, 0
    tail, replies = b"", []
    buffer = bytearray(RECEIVE_BYTES)
    view = memoryview(buffer)
    while taken < messages:
        size = wire.recv_into(buffer)
        if not size:
            raise ConnectionError("the server closed the connection")
        data = tail + bytes(view[:size])
        if acks:
            found = _ACK_SUBJECT.findall(data)
            replies += found
            count = len(found)
            cut = data.rfind(found[-1]) + len(found[-1]) if found else 0
            tail = data[max(cut, len(data) - 1024) :]  # a subject may go on in the next chunk
        else:
            count = data.count(MARK)
            tail = data[-len(MARK) + 1 :]
        taken += count
        since += count
        if since >= batch:
            out = []
            if replies:
                out.append(b"PUB " + (_ACK_END + b"PUB ").join(replies) + _ACK_END)
                replies = []
            while since >= batch:
                since -= batch
                if asked < messages:
                    asked += batch
                    out.append(pull)
            if out:
                wire.sendall(b"".join(out))
    if replies:
        wire.sendall(b"PUB " + (_ACK_END + b"PUB ").join(replies) + _ACK_END)
    return time.perf_counter() - started
