"""A running service under fire for a moment, and the requests that were once answered 500.

``make fuzz-jobs`` is the whole.
"""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.jobs.errors import JobsError
from headrace.jobs.http import create_app
from headrace.jobs.http.asgi import Gateway
from headrace.jobs.push.attempt import retry_after_s
from jobs_world import World
from portions import portion

FUZZ = Path(__file__).resolve().parents[2] / "fuzz"
SECONDS = float(portion(2, few=1))
SEED = 7

sys.path.insert(0, str(FUZZ))
service: Any = importlib.import_module("jobs_service")
requests: Any = importlib.import_module("jobs_requests")
answers: Any = importlib.import_module("jobs_answers")
sys.path.remove(str(FUZZ))


async def test_nothing_that_strangers_say_ends_the_service_or_is_answered_500(
    tmp_path: Path, database_url: str
) -> None:
    fuzzed = service.Fuzzed(tmp_path, database_url, SEED)
    await fuzzed.run(SECONDS)
    assert fuzzed.requests > 20
    assert fuzzed.endpoint_answers > 0
    assert {"200", "400", "404"} <= set(fuzzed.statuses)


@pytest.mark.one_database
async def test_requests_that_once_failed_are_answered(world: World) -> None:
    transport = httpx2.ASGITransport(create_app(world.runtime), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for path in sorted(service.KEPT.glob("*.bin")):
            head, _, body = path.read_bytes().partition(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n")[0].decode("latin-1").split(" ", 2)
            response = await client.request(method, target, content=body)
            assert response.status_code < 500, path


def test_what_the_fuzzer_sends_is_found_again_by_its_seed() -> None:
    first, second = (
        [
            requests.request(random.Random(f"{SEED} {number}"), requests.Shared())
            for number in range(50)
        ]
        for _ in range(2)
    )
    assert first == second
    assert len({data for data, _ in first}) > 45


def test_a_traceback_in_the_log_is_shown_whole_and_the_log_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fuzzed = service.Fuzzed(tmp_path, "sqlite:///nothing", SEED)
    lines = ["before", "Traceback (most recent call last):", *["  a frame"] * 200, "KeyError: 'x'"]
    log = "\n".join([*lines, *["quiet"] * 5000])
    (tmp_path / "log").write_text(log)
    found = service.traceback_in(log)
    assert found.startswith("before\nTraceback")
    assert "KeyError: 'x'" in found
    assert fuzzed.keep_log().read_text() == log
    assert service.traceback_in("nothing\n") is None


@given(st.text(), st.binary(), st.floats(0, 1e12))
def test_any_signature_is_accepted_or_refused_in_words(
    text: str, body: bytes, now_s: float
) -> None:
    gateway = Gateway(["dGVzdC1obWFjLXNlY3JldC1mb3ItaW50ZWdyYXRpb24="])
    for signature in (text, f"t={text},v1=00", f"t=1,v1={text}", f"t=1,v2={text}"):
        with pytest.raises(JobsError):
            gateway.check(signature, "POST", "/", body, now_s)


@given(
    st.one_of(
        st.text(max_size=64),
        st.sampled_from(answers.RETRY_AFTER),
        st.lists(
            st.sampled_from(
                ["1", "99999999999", "Jan", "Fri,", "12:30", "+2400", "-9999999", "GMT", ":"]
            ),
            max_size=8,
        ).map(" ".join),
    )
)
def test_any_retry_after_is_at_most_an_hour_or_nothing(text: str) -> None:
    found = retry_after_s(text, 1_700_000_000.0)
    assert found is None or 0 <= found <= 3600
