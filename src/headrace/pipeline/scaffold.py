"""The first draft of a pipeline and of a test of it, made of what a stream is asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..documents import DocumentError, read_json
from ..errors import HeadraceError
from ..spark.links.control import Control
from ..spark.links.link import Link
from ..spark.options import Connection
from ..spark.reading.gets import MessageGets

SINKS: Final = ("parquet", "json", "csv", "orc")

_TYPES: Final = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "STRING"}
_SAMPLES: Final[dict[str, Any]] = {"BOOLEAN": True, "BIGINT": 1, "DOUBLE": 1.5, "STRING": "text"}
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN: Final = ("sequence", "timestamp", "subject", "stream", "data", "partition", "headers", "key")


@dataclass(frozen=True)
class Draft:
    """What is asked for. ``fields``: of the JSON in the stream's messages, with their SQL types."""

    name: str
    stream: str
    servers: str
    sink: str = "parquet"
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """What the source is called: the stream's name as SQL has names."""
        name = re.sub(r"\W+", "_", self.stream, flags=re.ASCII).strip("_").lower() or "messages"
        return f"s_{name}" if name[0].isdigit() else name


def fields_of(payload: bytes, document: Any) -> dict[str, str]:
    """The fields of a message's JSON and their SQL types; none if it is no object of plain fields.

    Args:
        document: what ``payload`` is as JSON.
    """
    if not isinstance(document, Mapping) or not payload:
        return {}
    found = {
        name: _TYPES.get(type(value), "STRING")
        for name, value in document.items()
        if _FIELD.fullmatch(name) and not isinstance(value, list | dict)
    }
    return {name: kind for name, kind in found.items() if name.lower() not in _OWN}


def text_of(draft: Draft) -> str:
    """The pipeline's file."""
    schema = ""
    options = f"stream = {_quoted(draft.stream)}, servers = {_quoted(_servers(draft.servers))}"
    if draft.fields:
        columns = ", ".join(f"{name} {kind}" for name, kind in draft.fields.items())
        schema = f'schema = "sequence BIGINT, timestamp TIMESTAMP, {columns}"\n'
        options += ', valueFormat = "json"'
        select = f"SELECT sequence, timestamp, {', '.join(draft.fields)}\nFROM {draft.source}"
    else:
        select = f"SELECT sequence, timestamp, subject, CAST(data AS string) AS text\nFROM {draft.source}"
    return f'''# {draft.name}: what is in stream {draft.stream}, as files.
#
#   headrace pipeline validate FILE    finds mistakes
#   headrace pipeline test FILE        runs the tests beside it
#   headrace pipeline once FILE        processes what is there
#   headrace pipeline run FILE         until Ctrl-C
[pipeline]
name = {_quoted(draft.name)}
checkpoint = "checkpoint"

[sources.{draft.source}]
{schema}options = {{ {options} }}

[views.rows]
sql = """
{select}
"""

[[views.rows.expect]]
name = "has a time"
check = "timestamp IS NOT NULL"
otherwise = "drop"

[sinks.{draft.sink}]
from = "rows"
format = {_quoted(draft.sink)}
options = {{ path = {_quoted(draft.name)} }}
'''


def given_of(draft: Draft) -> str:
    """A first message for the source, in its test: values that are made up."""
    data: Any = {name: _SAMPLES[kind] for name, kind in draft.fields.items()} or "text"
    return json.dumps({"data": data}) + "\n"


def expected_of(draft: Draft) -> str:
    """What the view gives of that message."""
    values: dict[str, Any] = {name: _SAMPLES[kind] for name, kind in draft.fields.items()}
    return json.dumps({"sequence": 1, **(values or {"text": "text"})}) + "\n"


def _servers(servers: str) -> str:
    return f"${{NATS_URL:-{servers}}}"


def _quoted(text: str) -> str:
    """A text as TOML has it, which takes JSON's escapes."""
    return json.dumps(text, ensure_ascii=False)


_WITHIN_S: Final = 2.0


def fields_in(servers: str, stream: str) -> tuple[dict[str, str], str]:
    """The fields of the newest message of a stream, and what could not be seen, as a sentence.

    Args:
        servers: URLs, separated by commas.
    """
    urls = tuple(each.strip() for each in servers.split(","))
    try:
        link = Link.open(
            Connection(servers=urls, connect_timeout_s=_WITHIN_S, request_timeout_s=_WITHIN_S)
        )
    except HeadraceError as error:
        return {}, f"the messages of {stream} could not be looked at: {error}"
    try:
        last = Control(link, stream).head()[0].last_seq
        if not last:
            return {}, f"stream {stream} has no message to look at"
        gets = MessageGets(link, stream, _WITHIN_S)
        gets.ask([last])
        payloads = gets.take().payloads
        gets.close()
        if not payloads:
            return {}, f"the newest message of {stream} was removed"
        payload = payloads[0]
        try:
            return fields_of(payload, read_json(payload)), ""
        except DocumentError:
            return {}, ""  # it is read as text
    except HeadraceError as error:
        return {}, f"the messages of {stream} could not be looked at: {error}"
    finally:
        link.close()
