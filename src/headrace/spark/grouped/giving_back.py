"""Lets go of what a query holds that will not run again."""

from __future__ import annotations

from typing import Literal

from ..links.control import Control
from ..links.link import Link
from ..options import parse_options
from .holding import give_back_static, is_held_by, names_of
from .record import read_record, work_stream


def give_back(
    stream: str,
    group: str,
    member: str,
    *,
    kind: Literal["elastic", "static"] = "elastic",
    **options: str,
) -> list[str]:
    """Let ordinary instances have the partitions of ``member``, which a stopped query holds.

    To be called when the query is stopped for good; a running one fails then. What it had read but not
    committed is handled by the next owner.

    Args:
        stream, group, member, kind: as the query's options.
        options: the options of the connection, such as ``servers``.

    Returns:
        the names of the consumers that were let go of.

    Raises:
        ConfigurationError: there is no such group, or an option is wrong.
    """
    raw = {**options, "stream": stream, "group": group, "groupKind": kind, "member": member}
    parsed = parse_options(raw, streaming=True)
    assert parsed.group is not None
    link = Link.open(parsed.connection)
    try:
        record = read_record(link, stream, parsed.group)
        control = Control(link, work_stream(stream, parsed.group))
        found = []
        for name in names_of(record, member):
            info = control.consumer_info(name)
            if info is None or not is_held_by(info, member):
                continue
            if kind == "static":
                give_back_static(control, name)
            else:
                control.delete_consumer(name)
            found.append(name)
        return found
    finally:
        link.close()
