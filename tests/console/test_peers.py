"""What a job service or a monitoring port answers in another form is told in words, never a defect."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

ODD = [b"no JSON", b"\xff", b"[" * 50_000, b"null", b"[]", b"5", b'"text"', b"{}", b'{"events": 1}']
ODD += [b'{"DeadJobs": [5], "Pages": {}}', b'{"DeadJobs": [{"JobRequeueURL": "x"}], "Pages": []}']
ODD += [
    b'{"account_statz": [{}]}',
    b'{"account_details": 5}',
    b'{"jobs": [], "pages": {"next": 1}}',
]


pytestmark = pytest.mark.parametrize("server", ["headrace"], indirect=True)
"""These pages say nothing about the server behind the console."""


async def test_an_answer_in_another_form_is_told_in_words(make_world: Callable[..., Any]) -> None:
    given: tuple[int, bytes] = (200, b"")
    asked = 0

    def answer(request: httpx2.Request) -> httpx2.Response:
        nonlocal asked
        asked += 1
        status, said = given
        return httpx2.Response(status, content=said)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as peer:
        world = await make_world(http=peer, jobs="http://jobs", monitoring="http://numbers")
        for given in itertools.product((200, 404), ODD):
            for path in ("/jobs", "/jobs/c/k/dead", "/jobs/c/list", "/accounts"):
                before = asked
                response = await world.http.get(f"/api{path}")
                assert asked > before, "each page asks anew"
                assert response.status_code in (200, 503), (given, path)
                if response.status_code == 503:
                    assert "answered" in response.json()["message"], (given, path)
