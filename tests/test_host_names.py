"""Names a service is reached under, and pages that may change something."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.host_names import LOOPBACK_NAMES, Names, is_foreign, is_loopback, name_of


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:8080", "[::1]"]
)
def test_this_machine_s_names_are_accepted_with_any_port(host: str) -> None:
    assert Names(LOOPBACK_NAMES).accept(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evil.example:8080",
        "",
        "[::1",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "10.0.0.1",
        "jobs",
    ],
)
def test_other_names_are_not(host: str) -> None:
    assert Names(LOOPBACK_NAMES).accept(host) == (name_of(host) in LOOPBACK_NAMES)


def test_where_others_connect_addresses_and_names_without_a_dot_are_local() -> None:
    names = Names(["jobs.example"], local=True)
    for host in ("10.0.0.1:8080", "[fd00::1]", "jobs:8080", "jobs.example", "Jobs.Example:1"):
        assert names.accept(host)
    for host in ("evil.example", "jobs.example.evil.example", "", "1.2.3.4.evil.example"):
        assert not names.accept(host)


@pytest.mark.parametrize(
    ("host", "origin", "site", "foreign"),
    [
        ("localhost:8080", None, None, False),
        ("localhost:8080", "http://localhost:8080", "same-origin", False),
        ("localhost:8080", "http://localhost:8080", None, False),
        ("localhost:8080", None, "none", False),
        ("localhost:8080", None, "cross-site", True),
        ("localhost:8080", None, "same-site", True),
        ("localhost:8080", "http://localhost:9090", None, True),
        ("localhost:8080", "http://evil.example", None, True),
        ("localhost:8080", "null", None, True),
        ("localhost:8080", "http://localhost:x", None, True),
        ("jobs.example", "https://jobs.example", None, False),
        ("jobs.example:443", "https://jobs.example", None, False),
        ("JOBS.example", "http://jobs.EXAMPLE:80", None, False),
        ("jobs.example", "https://jobs.example.evil.example", None, True),
        ("", "http://evil.example", None, True),
        ("[::1]:8080", "http://[::1]:8080", None, False),
    ],
)
def test_a_page_is_foreign_unless_it_is_this_service_s_own(
    host: str, origin: str | None, site: str | None, foreign: bool
) -> None:
    assert is_foreign(host, origin, site) is foreign


@given(st.text(), st.one_of(st.none(), st.text()), st.one_of(st.none(), st.text()))
def test_any_headers_are_judged(host: str, origin: str | None, site: str | None) -> None:
    is_foreign(host, origin, site)
    Names(LOOPBACK_NAMES, local=True).accept(host)


def test_loopback_is_told_from_what_others_reach() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example", "")))
