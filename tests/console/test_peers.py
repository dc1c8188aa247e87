"""What a job service or a monitoring port answers in another form is told in words, never a defect."""

from __future__ import annotations

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


@pytest.fixture(scope="session", params=["headrace"])
def server(server: Any) -> Any:
    """These pages say nothing about the server behind the console."""
    return server


@pytest.mark.parametrize("said", ODD, ids=lambda said: said[:20].decode("latin-1"))
@pytest.mark.parametrize("status", [200, 404])
async def test_an_answer_in_another_form_is_told_in_words(
    make_world: Callable[..., Any], said: bytes, status: int
) -> None:
    transport = httpx2.MockTransport(lambda request: httpx2.Response(status, content=said))
    async with httpx2.AsyncClient(transport=transport) as peer:
        world = await make_world(http=peer, jobs="http://jobs", monitoring="http://numbers")
        for path in ("/jobs", "/jobs/c/k/dead", "/jobs/c/list", "/accounts"):
            response = await world.http.get(f"/api{path}")
            assert response.status_code in (200, 503), path
            if response.status_code == 503:
                assert "answered" in response.json()["message"], path
