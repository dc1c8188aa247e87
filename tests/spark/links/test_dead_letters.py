"""Dead letters whose stream has no leader, or which no stream takes, on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import AuthorizationError, ConfigurationError, NoRespondersError
from headrace.spark.links.dead_letters import publish_letters
from headrace.spark.links.link import Link, Reply
from headrace.spark.options.table import BadRule
from headrace.spark.tasks.bad_messages import BadMessage, BadMessages

from ..conftest import Feed
from ..virtual import Time

pytestmark = pytest.mark.usefixtures("links_end")


@pytest.fixture
def leaderless(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Subjects of which each has no leader when it is published to next."""
    subjects: list[str] = []
    ask = Link.request_many

    def asked(link: Link, requests: list[tuple[str, bytes]], *rest: Any) -> list[Reply]:
        if requests[0][0] in subjects:
            subjects.remove(requests[0][0])
            raise NoRespondersError("nobody answers")
        return ask(link, requests, *rest)

    monkeypatch.setattr(Link, "request_many", asked)
    return subjects


def letters_to(link: Link, subject: str) -> None:
    publish_letters(link, subject, [b"x"], [b"NATS/1.0\r\n\r\n"], who="sink", option="onBadRow")


def test_a_letter_waits_for_the_leader_of_its_stream(feed: Feed, leaderless: list[str]) -> None:
    subject = f"{feed.name}.bad"
    leaderless += [subject, subject]
    rule, time = BadRule("deadletter", subject), Time()
    links: list[Link] = []

    def connect() -> Link:
        links.append(feed.connect())
        return links[-1]

    bad = BadMessages(rule, "S", connect, time.patience(60.0))
    bad.take([BadMessage(7, 1, b"s", b"", b"what it was", "a reason")])
    links[-1].close()
    assert len(time.slept) == 2
    assert [each.payload for each in feed.stored(range(1, 10))] == [b"what it was"]


def test_a_subject_that_no_stream_has_is_an_error_at_once(feed: Feed) -> None:
    with pytest.raises(
        ConfigurationError, match=r"sink: no stream takes the subject 'nobody\.has'"
    ):
        letters_to(feed.link, "nobody.has")


def test_who_may_not_ask_for_streams_is_told_at_once_too(
    feed: Feed, leaderless: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(link: Link, subject: str, payload: bytes = b"") -> Reply:
        raise AuthorizationError("Permissions Violation")

    monkeypatch.setattr(Link, "request", refused)
    leaderless.append(f"{feed.name}.bad")
    with pytest.raises(ConfigurationError, match="of onBadRow; create one"):
        letters_to(feed.link, f"{feed.name}.bad")
