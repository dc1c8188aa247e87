"""A group's planned changes, by our verbs or by those of another implementation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from group_processes.crowd import PeerRefusalError, PeerVerbs
from headrace.client import JetStream
from headrace.errors import HeadraceError
from headrace.groups import MemberMapping, elastic, static

__all__ = ["REFUSALS", "OurVerbs", "TheirVerbs", "Verbs"]

REFUSALS = (HeadraceError, PeerRefusalError)


class Verbs(Protocol):
    """What can be done to one group; refused with one of ``REFUSALS``."""

    async def step_down(self, member: str) -> None: ...

    async def add(self, members: Sequence[str]) -> None: ...

    async def drop(self, members: Sequence[str]) -> None: ...

    async def set_mappings(self, mappings: Sequence[MemberMapping]) -> None: ...

    async def delete_mappings(self) -> None: ...


@dataclass
class OurVerbs:
    """Ours, of one group."""

    js: JetStream
    kind: str
    stream: str
    group: str

    async def step_down(self, member: str) -> None:
        module = elastic if self.kind == "elastic" else static
        await module.step_down(self.js, self.stream, self.group, member)

    async def add(self, members: Sequence[str]) -> None:
        await elastic.add_members(self.js, self.stream, self.group, members)

    async def drop(self, members: Sequence[str]) -> None:
        await elastic.drop_members(self.js, self.stream, self.group, members)

    async def set_mappings(self, mappings: Sequence[MemberMapping]) -> None:
        await elastic.set_mappings(self.js, self.stream, self.group, mappings)

    async def delete_mappings(self) -> None:
        await elastic.delete_mappings(self.js, self.stream, self.group)


@dataclass
class TheirVerbs:
    """Those of another implementation, of one group."""

    verb: PeerVerbs
    kind: str
    stream: str
    group: str

    async def step_down(self, member: str) -> None:
        await self.verb(f"{self.kind}_member_step_down", self.stream, self.group, member)

    async def add(self, members: Sequence[str]) -> None:
        await self.verb("add_members", self.stream, self.group, [*members])

    async def drop(self, members: Sequence[str]) -> None:
        await self.verb("delete_members", self.stream, self.group, [*members])

    async def set_mappings(self, mappings: Sequence[MemberMapping]) -> None:
        told = [{"mapping": {"member": m.member, "partitions": [*m.partitions]}} for m in mappings]
        await self.verb("set_member_mappings", self.stream, self.group, told)

    async def delete_mappings(self) -> None:
        await self.verb("delete_member_mappings", self.stream, self.group)
