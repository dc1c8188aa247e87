"""What buckets of keys and of objects have in common: the options that make one."""

from __future__ import annotations

from typing import Any, Final

import click

from ...client import JetStream
from .asking import may_go_on
from .configuration import key_values
from .output import Output
from .units import DURATION, SIZE, bytes_text
from .verbs import Declare

SETTINGS: Final[tuple[Declare, ...]] = (
    click.option("--ttl", type=DURATION, default=None, help="remove what is older than this"),
    click.option("--max-bucket-size", type=SIZE, default=None, help="how many bytes it holds"),
    click.option(
        "--storage", type=click.Choice(["file", "memory"]), default=None, help="where (file)"
    ),
    click.option("--replicas", type=int, default=None, help="copies in a cluster"),
    click.option("--compress/--no-compress", default=None, help="on disk"),
    click.option("--description", metavar="TEXT", default=None),
    click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="repeatable"),
)

_FIELDS: Final = {
    "ttl": "ttl", "max_bucket_size": "max_bytes", "storage": "storage", "replicas": "num_replicas",
    "compress": "compression", "description": "description",
}  # fmt: skip


def options_of(given: dict[str, Any]) -> dict[str, Any]:
    """The options of the bucket that are given. Raises Failure."""
    found = {field: given[name] for name, field in _FIELDS.items() if given[name] is not None}
    if given["metadata"]:
        found["metadata"] = key_values(given["metadata"])
    return found


async def delete_bucket(js: JetStream, output: Output, bucket: str, stream: str) -> None:
    """Delete it with everything in it, once it may be. Raises JetStreamApiError if there is none."""
    state = (await (await js.stream(stream)).info()).state
    entries = f"{state.messages:,} {'entry' if state.messages == 1 else 'entries'}"
    what = f"delete bucket {bucket} with {entries} ({bytes_text(state.bytes)})"
    if may_go_on(output, what):
        await js.delete_stream(stream)
        output.show({"deleted": bucket}, f"deleted bucket {bucket}")
