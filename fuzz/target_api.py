"""JetStream's API and everything else a broker reads from clients: always one answer, in JSON, or a status.

An input is the subject of a request, a line feed, the body; a third part, after two line feeds, are headers.
"""

from __future__ import annotations

import json
import random

from headrace.subjects import is_valid_subject
from jetstream_world import World
from mutation import Target

API = b"$JS.API."


def request(verb: str, document: object = "") -> bytes:
    return f"{verb}\n{document if isinstance(document, str) else json.dumps(document)}".encode()


STREAM = {
    "name": "S",
    "subjects": ["s.>"],
    "retention": "limits",
    "storage": "memory",
    "max_age": 1_000_000_000,
    "max_msgs_per_subject": 2,
    "duplicate_window": 1_000_000_000,
    "allow_direct": True,
    "metadata": {"a": "b"},
    "republish": {"src": ">", "dest": "r.>"},
    "subject_transform": {"src": "s.*", "dest": "t.{{wildcard(1)}}"},
    "sources": [{"name": "T", "filter_subject": "t.>", "opt_start_seq": 1}],
}
CONSUMER = {
    "durable_name": "C",
    "ack_policy": "explicit",
    "deliver_policy": "by_start_time",
    "opt_start_time": "2024-01-01T00:00:00Z",
    "ack_wait": 1_000_000_000,
    "backoff": [1, 2],
    "max_deliver": 3,
    "filter_subjects": ["s.a", "s.*.b"],
    "priority_groups": ["g"],
    "priority_policy": "pinned_client",
    "inactive_threshold": 5,
}
PULL = {"batch": 5, "expires": 1_000_000, "no_wait": True, "max_bytes": 100, "group": "g"}
CORPUS = [
    request("STREAM.CREATE.S", STREAM),
    request("STREAM.UPDATE.S", STREAM),
    request("STREAM.CREATE.T", {"name": "T", "subjects": ["t"], "retention": "workqueue"}),
    request("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": ">", "offset": 0}),
    request("STREAM.PURGE.S", {"filter": "s.a", "seq": 3}),
    request("STREAM.PURGE.S", {"keep": 1}),
    request("STREAM.MSG.GET.S", {"seq": 1, "next_by_subj": "s.>"}),
    request("STREAM.MSG.DELETE.S", {"seq": 1, "no_erase": True}),
    request("STREAM.NAMES", {"subject": "s.a", "offset": 0}),
    request("STREAM.LIST"),
    request("STREAM.DELETE.S"),
    request("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": CONSUMER, "action": "create"}),
    request("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"deliver_subject": "d"}}),
    request("CONSUMER.INFO.S.C"),
    request("CONSUMER.LIST.S"),
    request("CONSUMER.PAUSE.S.C", {"pause_until": "2030-01-01T00:00:00Z"}),
    request("CONSUMER.UNPIN.S.C", {"group": "g"}),
    request("CONSUMER.RESET.S.C", {"seq": 2}),
    request("CONSUMER.MSG.NEXT.S.C", PULL),
    request("CONSUMER.MSG.NEXT.S.C", "5"),
    request("CONSUMER.DELETE.S.C"),
    request("DIRECT.GET.S", {"seq": 1, "batch": 3, "multi_last": ["s.>"], "up_to_seq": 9}),
    request("INFO"),
    b"s.a\nhello\n\nNats-Msg-Id: 1\r\nNats-TTL: 1s\r\nNats-Expected-Last-Sequence: 0\r\n",
    b"s.a\nhello\n\nNats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1\r\n",
    b"s.b\n+1\n\nNats-Incr: +5\r\nNats-Rollup: sub\r\nNats-Schedule: @every 1s\r\n",
    b"$JS.ACK.S.C.1.1.1.1700000000000000000.0\n+ACK",
    b'$JS.ACK.S.C.1.1.1.1700000000000000000.0\n-NAK {"delay": 5}',
    b'$JS.ACK.S.C.1.1.1.1700000000000000000.0\n+NXT {"batch": 2}',
]
TOKENS = [
    *(
        b"null",
        b"true",
        b"[]",
        b"{}",
        b'""',
        b"0",
        b"-1",
        b"1e99",
        b"9" * 20,
        b'"',
        b":",
        b",",
        b"\n",
    ),
    *(b"S", b"C", b".", b"*", b">", b"\xff", b"[" * 200, b'{"a":' * 200, b"\\u0000", b"name"),
    *(b"max_msgs", b"filter_subject", b"1700000000000000000", b"-NAK", b"+TERM", b"+WPI", b"\n\n"),
]


class Harness:
    """One broker for some thousand inputs, then a new one: what came before must not matter."""

    def __init__(self) -> None:
        self._left = 0

    def check(self, data: bytes, rng: random.Random) -> None:
        """Raise what a request makes the broker raise, or if its answer is none."""
        if not self._left:
            self._world = World()
            self._client = self._world.client()
            self._inbox = self._client.subscribe(b"_INBOX.fuzz")
            self._client.subscribe(b"d")
            self._client.stream(storage="memory", allow_direct=True)
            self._client.consumer()
            self._client.put(b"s.a", b"1")
            self._left = 2_000
        self._left -= 1
        subject, _, rest = data.partition(b"\n")
        body, _, lines = rest.partition(b"\n\n")
        if not subject.startswith((b"$JS.ACK", b"s.")):
            subject = API + subject
        if not is_valid_subject(subject) or len(subject) > 2_000:
            return
        block = b"NATS/1.0\r\n" + lines + b"\r\n" if lines else b""
        if block:
            sizes = (len(block), len(block) + len(body))
            head = b"HPUB %b _INBOX.fuzz %d %d\r\n" % (subject, *sizes)
        else:
            head = b"PUB %b _INBOX.fuzz %d\r\n" % (subject, len(body))
        self._client.send(head + block + body + b"\r\n")
        assert not self._client.session.closed, self._client.session.close_reason
        if rng.random() < 0.05:
            self._world.advance(rng.choice((0.001, 1.0, 40.0)))
        for answer in self._inbox.take():
            if subject.startswith(API) and b"MSG.NEXT" not in subject and b"DIRECT" not in subject:
                # Messages that an earlier pull asked for come here, too, with subjects of their own.
                if answer.subject == b"_INBOX.fuzz" and not answer.headers:
                    assert isinstance(json.loads(answer.payload), dict), (
                        "an answer that is no object"
                    )


TARGET = Target("api", CORPUS, TOKENS, Harness().check, joined_max=1)
