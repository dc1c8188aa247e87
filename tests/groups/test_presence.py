from __future__ import annotations

import time

import pytest

from headrace.client import JetStream
from headrace.groups import ElasticGroup, StaticGroup
from headrace.groups.presence import Present, announce, instance_name, who_is_there

pytestmark = pytest.mark.peer

A = Present(member="a", instance="host/1", active=True, generation=7)
B = Present(member="b", instance="host/2")


async def test_those_who_have_joined_answer(js: JetStream) -> None:
    async with (
        await announce(js, ElasticGroup, "S", "g", lambda: B),
        await announce(js, ElasticGroup, "S", "g", lambda: A),
        await announce(js, ElasticGroup, "S", "other", lambda: A),
        await announce(js, StaticGroup, "S", "g", lambda: A),
    ):
        assert await who_is_there(js, ElasticGroup, "S", "g", within=0.1) == [A, B]
        await js.connection.publish("headrace.groups.elastic.S.g", b"nobody waits for an answer")
    assert await who_is_there(js, ElasticGroup, "S", "g", within=0.1) == []


async def test_strangers_on_the_subject_are_not_counted(js: JetStream) -> None:
    async with (
        await announce(js, ElasticGroup, "S", "g", lambda: A),
        await js.connection.subscribe(
            "headrace.groups.elastic.S.g", callback=lambda question: question.respond(b"?")
        ),
    ):
        assert await who_is_there(js, ElasticGroup, "S", "g", within=0.1) == [A]


async def test_it_takes_no_longer_than_is_given(js: JetStream) -> None:
    began = time.monotonic()
    assert await who_is_there(js, ElasticGroup, "S", "g", within=0.05) == []
    assert time.monotonic() - began < 5


async def test_an_instance_has_a_name_for_people(js: JetStream) -> None:
    assert instance_name(js).startswith("tests of groups/")
