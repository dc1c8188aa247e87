"""Secrets at rest: sealed with the first key, opened with each; nothing begins without a key it needs."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import peers
from headrace.clock import ManualClock
from headrace.errors import ConfigurationError
from headrace.jobs.config import load_config
from headrace.jobs.errors import JobsError
from headrace.jobs.models import Options
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.store import open_database
from headrace.jobs.vault import PLAIN, Vault, read_keys, sealed_with
from jobs_world import World, http_of

peers.package("cryptography")


def new_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


OLD, NEW = new_key(), new_key()


async def stored(runtime: Runtime) -> list[dict[str, Any]]:
    rows: Any = await runtime.database.read(lambda tx: tx.all("page_secrets", after=0, n=99))
    return [dict(row) for row in rows]


@pytest.fixture
def start(database_url: str, clock: ManualClock, options: Options) -> Callable[..., Runtime]:
    def make(*keys: str) -> Runtime:
        database = open_database(database_url, threads=2, clock=clock, vault=Vault(keys))
        return Runtime(database, options, clock=clock)

    return make


async def told(runtime: Runtime, clock: ManualClock, *, define: bool = False) -> World:
    """The service of this runtime, which is started."""
    await runtime.start()
    http = http_of(runtime)
    world = World(http, runtime, clock)
    if define:
        await world.define()
    return world


async def works(world: World) -> None:
    """Its consumer is known by its token, and hands out a job."""
    await world.broadcast()
    assert len(await world.claim(5)) == 1


async def test_what_was_plain_is_sealed_at_the_start_and_everything_works_as_before(
    start: Callable[..., Runtime], clock: ManualClock
) -> None:
    plain = await told(start(), clock, define=True)
    secret = (await plain.http.post("/v2/channel/c/consumer/k/secret", json={})).json()["secret"]
    (row,) = await stored(plain.runtime)
    assert row["token"] == "kt"
    assert secret in row["secrets"]
    await plain.runtime.close()

    sealed = await told(start(OLD), clock)
    (row,) = await stored(sealed.runtime)
    assert {sealed_with(row[name]) for name in ("token", "secrets")} == set(Vault([OLD]).names)
    assert secret not in str(row)
    await works(sealed)
    rotated = await sealed.http.post("/v2/channel/c/consumer/k/token", json={"token": "kt"})
    assert rotated.json()["token"] == "kt"
    await sealed.http.post("/v2/channel/c/consumer/k/token", json={"token": "kt2"})
    await works(sealed)  # the token before is accepted, too
    (row,) = await stored(sealed.runtime)
    assert "kt" not in (row["token"], row["previous_token"])
    assert sealed_with(row["previous_token"]) is not None
    await sealed.runtime.close()


async def test_keys_are_rotated_without_a_gap(
    start: Callable[..., Runtime], clock: ManualClock
) -> None:
    first = await told(start(OLD), clock, define=True)
    await first.runtime.close()
    both = await told(start(OLD, NEW), clock)
    turned = await told(start(NEW, OLD), clock)
    (row,) = await stored(turned.runtime)
    assert sealed_with(row["token"]) == Vault([NEW]).names[0]
    await works(both)  # a process that still encrypts with the old one reads what the other wrote
    await works(turned)
    await both.runtime.close()
    await turned.runtime.close()
    alone = await told(start(NEW), clock)
    await works(alone)
    await alone.runtime.close()


@pytest.mark.parametrize("keys", [(), (NEW,)])
async def test_without_the_key_nothing_begins_and_nothing_is_lost(
    start: Callable[..., Runtime], clock: ManualClock, keys: tuple[str, ...]
) -> None:
    world = await told(start(OLD), clock, define=True)
    before = await stored(world.runtime)
    await world.runtime.close()
    name = Vault([OLD]).names[0]
    with pytest.raises(ConfigurationError, match=rf"not here: {name} \(1\).*Nothing was changed"):
        await start(*keys).start()
    again = await told(start(OLD), clock)
    assert await stored(again.runtime) == before
    await works(again)
    await again.runtime.close()


@pytest.mark.parametrize("rotated", [False, True])
async def test_one_secret_that_was_tampered_with_stops_its_consumer_only(
    start: Callable[..., Runtime], clock: ManualClock, rotated: bool
) -> None:
    world = await told(start(OLD), clock, define=True)
    await world.consumer("other", type="pull", token="kt")
    (first, _) = await stored(world.runtime)
    broken = first["token"][:-8] + "AAAAAAA="
    await world.runtime.database.write(
        lambda tx: tx.run(
            "reseal_consumer",
            seq=first["seq"],
            token=broken,
            previous_token=None,
            secrets=first["secrets"],
            was_token=first["token"],
            was_previous="",
            was_secrets=first["secrets"],
        )
    )
    if rotated:
        await world.runtime.close()
        world = await told(start(NEW, OLD), clock)
    await world.broadcast()
    refused = await world.lease("claim", 503)
    assert refused["code"] == "secret_unreadable"
    assert len(await world.claim(consumer="other")) == 1
    await world.runtime.close()


@pytest.mark.parametrize("column", ["token", "secrets"])
async def test_a_secret_that_was_moved_to_another_consumer_opens_nowhere_but_at_its_own(
    start: Callable[..., Runtime], clock: ManualClock, column: str
) -> None:
    world = await told(start(OLD), clock, define=True)
    await world.consumer("other", type="pull", token="kt")
    (first, second) = await stored(world.runtime)
    moved = {**first, column: second[column]}
    await world.runtime.database.write(
        lambda tx: tx.run(
            "put_secrets",
            **{name: moved[name] for name in ("seq", "token", "previous_token", "secrets")},
        )
    )
    refused = await world.lease("claim", 503)
    assert refused["code"] == "secret_unreadable"
    assert "moved here from another row" in refused["message"]
    assert await world.claim(consumer="other") == []
    await world.runtime.close()


@given(st.text(), st.integers(0, 3))
def test_what_was_sealed_is_opened_with_each_key_that_has_it(text: str, others: int) -> None:
    keys = [OLD, *(base64.b64encode(secrets.token_bytes(32)).decode() for _ in range(others))]
    sealed = Vault(keys[:1]).seal(text, "here")
    assert Vault(keys[::-1]).open(sealed, "here") == text
    assert sealed != Vault(keys[:1]).seal(text, "here")
    with pytest.raises(JobsError):
        PLAIN.open(sealed, "here")
    with pytest.raises(JobsError, match="moved here from another row"):
        Vault(keys).open(sealed, "there")


def test_without_keys_a_text_that_looks_sealed_is_refused_and_one_that_only_begins_so_is_plain() -> (
    None
):
    with pytest.raises(JobsError, match="look like an encrypted one"):
        PLAIN.seal(Vault([OLD]).seal("kt", "here"), "here")
    for text in ("sealed:", "sealed:orders", "sealed:0123:abc", "sealed:XXXXXXXX:abc"):
        assert PLAIN.open(PLAIN.seal(text, "here"), "here") == text


def test_what_is_no_key_is_refused_in_words(tmp_path: Path) -> None:
    for text in ("", "short", base64.b64encode(b"x" * 31).decode(), "ä" * 44):
        with pytest.raises(ConfigurationError, match=r"encryption key 2.*openssl rand -base64 32"):
            Vault([OLD, text])
    with pytest.raises(ConfigurationError, match="at most 16"):
        Vault([OLD] * 17)
    path = tmp_path / "keys"
    with pytest.raises(ConfigurationError, match="No such file"):
        read_keys(path)
    path.write_text("# none yet\n\n")
    with pytest.raises(ConfigurationError, match="no key in it"):
        read_keys(path)
    path.write_text(f"# the new one\n{NEW}\n\n{OLD}\n")
    assert read_keys(path) == [NEW, OLD]


def test_keys_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(NEW)
    file = {"encryption_keys_file": str(path)}
    assert load_config(None, file).vault().names == Vault([NEW]).names
    assert (
        load_config(None, {"encryption_keys": [OLD, NEW]}).vault().names == Vault([OLD, NEW]).names
    )
    assert load_config(None, {}).vault().names == ()
    with pytest.raises(ConfigurationError, match="but not both"):
        load_config(None, {**file, "encryption_keys": [OLD]})
