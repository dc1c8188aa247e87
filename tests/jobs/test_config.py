"""Settings, definitions from configuration, and who may serve whom."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigurationError
from headrace.jobs.config import load_config
from headrace.jobs.models import Options
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.seeds import Seeds, apply_seeds
from headrace.jobs.store.base import Tx
from jobs_world import PULL, World

DOCUMENT = """
port = 0
max_retries = 7
retry_delays_seconds = [1, 2]

[producers.p]
token = "pt"

[channels.c]
token = "ct"

[channels.c.consumers.k]
token = "kt"
type = "pull"

[channels.c.consumers.h]
token = "ht"
callback_url = "http://127.0.0.1/"
settings = { concurrency = 3 }

[channels.c.consumers.odd]
token = "ot"
type = "both"
"""


def feed(**settings: str | int) -> str:
    """A feed of the configuration, with these settings."""
    named = {"channel": "c", "stream": "ORDERS", **settings}
    return "[[feeds]]\n" + "".join(f"{name} = {value!r}\n" for name, value in named.items())


def test_a_channel_may_have_several_feeds(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    keys = ("", "subject", "subject:3", "header:Customer-Id")
    path.write_text(
        "".join(
            feed(name=f"f{number}", group=f"g{number}", ordering_key=key)
            for number, key in enumerate(keys)
        )
        + feed(stream="OTHER", filter="orders.*.paid")
    )
    names = [each.feed_id for each in load_config(path, {}).feeds]
    assert names == ["f0", "f1", "f2", "f3", "OTHER"]


def test_flags_come_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(DOCUMENT)
    config = load_config(path, {"port": 99})
    assert (config.port, config.max_retries) == (99, 7)
    assert config.options().retry_delays_s == (1, 2)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("port = 'x'", "port"),
        ("port = 70000", "port"),
        ("prot = 1", "prot"),
        ("port =", "jobs.toml"),
        ("max_retries = -1", "max_retries"),
        ("payload_bytes_max = 0", "payload_bytes_max"),
        ("token_header = ''", "token_header"),
        ("rational_delay_seconds = -1", "rational_delay_seconds"),
        ("admin_token = 'sésame'", "admin_token: printable ASCII"),
        ("admin_token = ' sesame'", "admin_token: printable ASCII"),
        ("host = '0.0.0.0'", "admin_token"),
        ("host = '::'", "admin_token"),
        ("host = 'example.org'", "admin_token"),
        (feed(stream="a b"), r"feeds\[0\]\.stream"),
        (feed(group="a.b"), r"feeds\[0\]\.group"),
        (feed(channel="a b"), r"feeds\[0\]\.channel"),
        (feed(name="a b"), r"feeds\[0\]\.name"),
        (feed(url=""), r"feeds\[0\]\.url"),
        (feed(filter="a..b"), r"feeds\[0\]\.filter"),
        (feed(filter="$JS.API.STREAM.DELETE.PAYROLL"), "the server's own"),
        (feed(filter="_INBOX.>"), "the server's own"),
        (feed(batch=0), r"feeds\[0\]\.batch"),
        (feed(unfinished_max=0), r"feeds\[0\]\.unfinished_max"),
        (feed(ordering_key="subject:0"), r"feeds\[0\]\.ordering_key"),
        (feed(ordering_key="header:"), r"feeds\[0\]\.ordering_key"),
        (feed(ordering_key="payload"), r"feeds\[0\]\.ordering_key"),
        (feed() + feed(), "give each a `name`"),
        (feed() + feed(name="other"), "a `group` of its own"),
        ("[outcomes]\nsubject = '$JS.API.STREAM.DELETE.PAYROLL'", "the server's own"),
        ("[outcomes]\nsubject = '_INBOX.a'", "the server's own"),
        ("[outcomes]\nsubject = 'a.*'", "without wildcards"),
        ("[outcomes]\nurl = ''", r"outcomes\.url"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=named):
        load_config(path, {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml"):
        load_config(tmp_path / "none.toml", {})


def test_others_are_served_with_an_admin_token_or_on_demand() -> None:
    load_config(None, {"host": "0.0.0.0", "admin_token": "a"})
    load_config(None, {"host": "0.0.0.0", "insecure": True})
    for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        load_config(None, {"host": host})


async def test_definitions_are_applied_once_and_again_when_they_change(
    world: World, runtime: Runtime, tmp_path: Path
) -> None:
    import tomllib

    document = tomllib.loads(DOCUMENT)

    async def apply() -> bool:
        now = runtime.now_us()
        return await runtime.database.write(
            lambda tx: apply_seeds(tx, Seeds.read(document), Options(), now)
        )

    assert await apply()
    detail = (await world.http.get("/v2/channel/c/consumer/h")).json()
    assert detail["settings"]["concurrency"] == 3
    assert (await world.http.get("/channel/c/consumer/odd")).status_code == 404
    await world.http.patch("/v2/channel/c/consumer/h", json={"paused": True, "name": "by hand"})
    assert not await apply()
    assert (await world.http.get("/v2/channel/c/consumer/h")).json()["name"] == "by hand"
    document["channels"]["c"]["consumers"]["k"]["token"] = "new"
    assert await apply()
    assert (
        await world.http.get("/channel/c/consumer/k/queued-jobs", headers=PULL)
    ).status_code == 403
    assert (await world.http.get("/v2/channel/c/consumer/h")).json()["name"] == "by hand"


async def test_wrong_definitions_leave_nothing_behind(world: World, runtime: Runtime) -> None:
    def apply(document: Any, tx: Tx) -> bool:
        return apply_seeds(tx, Seeds.read(document), Options(), 1)

    for document in (
        {"producers": {"new": {"token": "t"}}, "channels": {"a b": {"token": "t"}}},
        {
            "producers": {"new": {"token": "t"}},
            "channels": {"x": {"token": ""}, "a\n": {"token": "x"}},
        },
    ):
        with pytest.raises(ConfigurationError, match="definitions"):
            await runtime.database.write(partial(apply, document))
    assert (await world.http.get("/producer/new")).status_code == 404
    with pytest.raises(ConfigurationError, match="tokn"):
        Seeds.read({"producers": {"new": {"tokn": "t"}}})
