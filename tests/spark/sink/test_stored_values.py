"""What a stream has last on many subjects: asked for together, it is what each one says by itself."""

from __future__ import annotations

import pytest

from headrace.api.messages import GetMessageRequest
from headrace.errors import StreamNotFoundError
from headrace.spark.links.link import Link
from headrace.spark.sink import keyed as stored_values
from headrace.spark.sink.keyed import NOTHING, LastValues

from ..conftest import Feed


@pytest.fixture
def kept(server_url: str) -> Feed:
    return Feed(server_url, allow_direct=True, max_msgs_per_subject=1)


def fill(feed: Feed) -> list[bytes]:
    """Subjects, of which every third has nothing, and some have the server's own names in their headers."""
    link = feed.link
    for number in range(600):
        if number % 3:
            spoofed = b"Nats-Sequence: 1\r\nNats-Subject: other\r\n" if number % 2 else b""
            block = b"NATS/1.0\r\nX-Number: %d\r\n%b\r\n" % (number, spoofed)
            link.request_many([(f"{feed.name}.{number}", b"v" * (number % 7))], [block])
    return [b"%b.%d" % (feed.name.encode(), number) for number in range(600)][::-1]


def test_many_subjects_answer_together_what_each_answers_by_itself(
    kept: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects = fill(kept)
    exact = LastValues(kept.name, 5.0, direct=True).read(kept.link, subjects, exact=True)
    assert exact is not None
    sent: list[int] = []
    publish = Link.publish

    def counted(link: Link, subject: str, payload: bytes, reply: bytes = b"") -> None:
        sent.append(len(payload))
        publish(link, subject, payload, reply)

    monkeypatch.setattr(Link, "publish", counted)
    together = LastValues(kept.name, 5.0, direct=True).read(kept.link, subjects, exact=False)
    assert together is not None
    assert len(sent) == 1
    assert [each.sequence for each in together] == [each.sequence for each in exact]
    assert together.count(NOTHING) == 200
    assert all(each.headers.startswith(b"NATS/1.0\r\nX-Number") for each in exact if each.sequence)
    nothing = LastValues(kept.name, 5.0, direct=True)
    assert nothing.read(kept.link, [b"%b.none" % kept.name.encode()], exact=False) == [NOTHING]
    kept.close()


def test_a_server_that_does_not_answer_for_many_is_asked_for_each(
    kept: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects = fill(kept)
    values = LastValues(kept.name, 5.0, direct=True)
    exact = values.read(kept.link, subjects, exact=True)
    # More filters than a server takes are refused, as an older server refuses all.
    monkeypatch.setattr(stored_values, "DirectGetRequest", lambda **_: GetMessageRequest())
    found = values.read(kept.link, subjects, exact=False)
    assert exact is not None and found is not None
    assert [each.sequence for each in found] == [each.sequence for each in exact]
    assert values.ask(kept.link, subjects) is None
    kept.close()


def test_a_stream_that_answers_no_direct_gets_any_more_is_asked_by_its_leader(kept: Feed) -> None:
    subjects = fill(kept)[:10]
    values = LastValues(kept.name, 5.0, direct=True)
    exact = values.read(kept.link, subjects, exact=True)
    config = {"name": kept.name, "subjects": [f"{kept.name}.>"], "max_msgs_per_subject": 1}
    kept.call(f"STREAM.UPDATE.{kept.name}", config)
    found = None
    for turn in range(3):
        found = values.read(kept.link, subjects, exact=False)
        assert (found is not None) == (turn == 2), "many, then each, then the leader"
    assert exact is not None and found is not None
    assert [each.sequence for each in found] == [each.sequence for each in exact]
    with pytest.raises(StreamNotFoundError):
        LastValues("NONE", 5.0, direct=False).read(kept.link, subjects, exact=True)
    kept.close()
