"""No callback reaches inside: every vector here must be refused, by name, by number, by answer."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import ManualClock
from headrace.errors import ConfigurationError
from headrace.jobs.push.guard import Guard, RefusedAddressError, ResolveError
from headrace.jobs.push.sender import CallError, Sender

ADDRESSES = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1",
    "127.255.255.254", "169.254.169.254", "169.254.0.1", "172.16.0.1", "172.31.255.255", "192.0.0.1",
    "192.0.0.170", "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.255", "198.18.0.1",
    "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1",
    "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1",
    "2001:0:7f00:1::", "2001:db8::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "3fff::1", "5f00::1",
    "fc00::1", "fd12:3456::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
    "4000::1", "1::1",
]  # fmt: skip
URLS = [
    "http://127.1/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://0177.0.0.1/",
    "http://0/", "http://localhost/", "http://127.0.0.1.:80/", "http://[::ffff:7f00:1]/",
    "http://[::1]:8080/", "https://[fe80::1%25eth0]/",
]  # fmt: skip
SCHEMES = [
    "ftp://8.8.8.8/",
    "file:///etc/passwd",
    "gopher://8.8.8.8/",
    "//8.8.8.8/",
    "ws://8.8.8.8/",
]
PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "93.184.216.34",
    "100.128.0.1",
    "172.32.0.1",
    "2606:4700::1111",
    "2a00:1450::1",
]


def test_there_are_enough_vectors() -> None:
    assert len(ADDRESSES) + len(URLS) + len(SCHEMES) >= 60


@pytest.mark.parametrize("address", ADDRESSES)
async def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return [address]

    assert Guard().refusal(address)
    with pytest.raises(RefusedAddressError, match=r"rebound\.example"):
        await Guard(resolve=resolve).vet("rebound.example", 80)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_called(address: str) -> None:
    assert Guard().refusal(address) is None


@pytest.mark.parametrize("url", [*URLS, *SCHEMES])
async def test_no_way_of_writing_it_gets_through(url: str) -> None:
    sender = Sender(Guard(), ManualClock())
    with pytest.raises((RefusedAddressError, ResolveError, CallError)):
        await sender.post(url, {}, b"x", 2.0)


async def test_one_bad_address_among_good_ones_refuses_the_name() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["8.8.8.8", "10.0.0.1"]

    with pytest.raises(RefusedAddressError) as refused:
        await Guard(resolve=resolve).vet("mixed.example", 80)
    assert str(refused.value) == "mixed.example has an address that must not be called"


async def test_the_name_is_resolved_once_and_the_connection_goes_to_what_was_looked_at() -> None:
    asked = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.9.9.9"]

    guard = Guard(["127.0.0.1/32"], resolve=resolve)
    assert await guard.vet("rebinding.example", 80) == ["127.0.0.1"]
    assert asked == ["rebinding.example"]
    with pytest.raises(RefusedAddressError):
        await guard.vet("rebinding.example", 80)


async def test_a_name_that_is_not_ascii_is_looked_up_as_idna_2008_has_it() -> None:
    asked = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return []

    sender = Sender(Guard(resolve=resolve), ManualClock())
    for host in ("straße.example", "BÜCHER.example", "faß。example"):
        with pytest.raises(ResolveError):
            await sender.post(f"http://{host}/", {}, b"x", 2.0)
    assert asked == ["xn--strae-oqa.example", "xn--bcher-kva.example", "xn--fa-hia.example"]


def test_an_address_in_other_digits_is_the_address() -> None:
    with pytest.raises(RefusedAddressError, match=r"127\.0\.0\.1: loopback"):
        Guard().check_url(urlsplit("http://１２７.0.0.1/"))


def test_allowed_networks_are_exactly_those_given() -> None:
    guard = Guard(["127.0.0.0/8", "fd00::/8"])
    assert guard.refusal("127.0.0.1") is None
    assert guard.refusal("::ffff:127.0.0.1") is None
    assert guard.refusal("fd00::1") is None
    assert guard.refusal("10.0.0.1")
    assert guard.refusal("::1")
    with pytest.raises(ConfigurationError, match="allowed network"):
        Guard(["127.0.0.1/8"])


def test_https_only_refuses_plain_http() -> None:
    with pytest.raises(RefusedAddressError, match="https"):
        Guard(https_only=True).check_url(urlsplit("http://8.8.8.8/"))
    Guard(https_only=True).check_url(urlsplit("https://8.8.8.8/"))


@given(st.ip_addresses(v=4))
def test_nothing_that_is_not_global_is_let_through(address: object) -> None:
    if not address.is_global or address.is_multicast:  # type: ignore[attr-defined]
        assert Guard().refusal(str(address))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_the_same_when_mapped_into_ipv6(address: object) -> None:
    assert bool(Guard().refusal(f"::ffff:{address}")) == bool(Guard().refusal(str(address)))
