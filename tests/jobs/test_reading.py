"""What is wrong with a file of settings is told with its line; the page has every key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from guides import ROOT
from headrace.errors import ConfigurationError
from headrace.field_docs import descriptions
from headrace.jobs.config import (
    Config,
    FeedConfig,
    GatewayConfig,
    OutcomesConfig,
    TlsConfig,
    load_config,
)
from headrace.jobs.seeds import SeedChannel, SeedConsumer, SeedProducer
from headrace.jobs.server import RELOADED
from readers import pieces_of

PAGE = ROOT / "docs" / "reference" / "jobs-configuration.md"
TABLES: dict[str, type[msgspec.Struct]] = {
    "": Config,
    "[tls]": TlsConfig,
    "[gateway]": GatewayConfig,
    "[[feeds]]": FeedConfig,
    "[outcomes]": OutcomesConfig,
    "[producers.<id>]": SeedProducer,
    "[channels.<id>]": SeedChannel,
    "[channels.<id>.consumers.<id>]": SeedConsumer,
}


def refused(tmp_path: Path, text: str, **overrides: Any) -> str:
    file = tmp_path / "jobs.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_config(file, overrides)
    return str(caught.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = 1\n\nhots = 'x'\n", "jobs.toml:3: no setting 'hots'; did you mean 'host'?"),
        ("zzz = 1\n", "jobs.toml:1: no setting 'zzz'; accepted are host, port, database, "),
        (
            "[[feeds]]\nchannel = 'c'\nstream = 's'\n[[feeds]]\nchannel = 'c'\nstram = 's'\n",
            "jobs.toml:6: no setting 'stram' in feeds.1; did you mean 'stream'?",
        ),
        (
            "[tls]\ncert = 'a'\nky = 'b'\n",
            "jobs.toml:3: no setting 'ky' in tls; did you mean 'key'?",
        ),
        (
            "[channels.c]\ntoken = 'a'\n[channels.c.consumers.k]\ntoken = 't'\ntyp = 'pull'\n",
            "jobs.toml:5: no setting 'typ' in channels.c.consumers.k; did you mean 'type'?",
        ),
        (
            "[channels.c]\ntoken = 'a'\n[channels.c.consumers.k.settings]\nconcurency = 1\n",
            "jobs.toml:4: no setting 'concurency' in channels.c.consumers.k.settings; did you mean 'concu",
        ),
        (
            "[producers.p]\ntokn = 'a'\n",
            "jobs.toml:2: no setting 'tokn' in producers.p; did you mean 'token'?",
        ),
        ("\nport = 'x'\n", "jobs.toml:2: port: Expected `int`, got `str`"),
        (
            "[[feeds]]\nchannel = 'c'\nstream = 's'\nbatch = 'x'\n",
            "jobs.toml:4: feeds[0].batch: Expected `int`",
        ),
        (
            "[[feeds]]\nchannel = 'c'\nstream = 's'\nbatch = 0\n",
            "jobs.toml:4: feeds[0].batch: 1 to 5000",
        ),
        ("\nmax_retries = -1\n", "jobs.toml:2: max_retries: 0 to"),
        ("port = \n", "jobs.toml: Invalid value (at line 1"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert refused(tmp_path, text).startswith(said)


def test_what_a_flag_says_is_not_looked_for_in_the_file(tmp_path: Path) -> None:
    assert refused(tmp_path, "port = 1\n", port=70000) == "port: 0 (any) to 65535"
    assert refused(tmp_path, "port = 1\n", port="x").startswith("settings: port: Expected `int`")


def shown(value: Any) -> str:
    if value in (None, "", (), [], {}):
        return ""
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value)
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def table_of_keys() -> list[str]:
    """Every key, as it stands on the page."""
    rows = []
    for table, kind in TABLES.items():
        texts = descriptions(kind)
        for field in msgspec.structs.fields(kind):
            again = "SIGHUP" if field.name in RELOADED and kind is Config else ""
            default = field.default if field.default is not msgspec.NODEFAULT else None
            cells = (f"`{table}`" if table else "", f"`{field.name}`", shown(default), again)
            assert texts[field.name], (table, field.name)
            rows.append(f"| {' | '.join(cells)} | {texts[field.name]} |")
    return rows


def test_the_page_has_every_key() -> None:
    _, _, rest = PAGE.read_text().partition("<!-- keys: checked by the tests -->\n")
    assert rest.strip().splitlines()[2:] == table_of_keys()


def test_the_file_of_the_page_is_read_and_its_mistakes_are_told_so(tmp_path: Path) -> None:
    file, told = pieces_of(PAGE)
    path = tmp_path / "jobs.toml"
    path.write_text(file.text)
    assert [each.stream for each in load_config(path, {}).feeds] == ["ORDERS"]
    mistakes = (("host", "hots"), ("stream =", "stram ="), ("= 30", '= "30"'))
    lines = told.text.splitlines()
    for (right, wrong), line in zip(mistakes, lines, strict=True):
        assert refused(tmp_path, re.sub(right, wrong, file.text)) == line
