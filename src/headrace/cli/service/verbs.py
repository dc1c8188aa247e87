"""``headrace service ls``, ``info``, ``stats`` and ``ping``."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import click

from ...client.services.documents import Verb
from ..shared.errors import Failure
from ..shared.output import Sheet, Table
from ..shared.units import DURATION, counted
from ..shared.verbs import Session, online
from .asking import Answer, Endpoint, ask

_NOBODY: Final = "no service answers; headrace service serve NAME    would"
_WAIT: Final = click.option(
    "--wait", type=DURATION, default=0.3, help="end so long after the last answer (300ms)"
)
_NAME: Final = click.argument("name", required=False, default="")
_ID: Final = click.argument("instance", metavar="[ID]", required=False, default="")


@online(_NAME, _WAIT)
async def ls(session: Session, name: str, wait: float) -> None:
    """List the services, or with NAME the instances of one."""
    answers = await ask(session, "INFO", name, "", wait)
    documents = [each.document for each in answers]
    if name:
        table = Table(
            ["Id", "Version", "Endpoints", "Description"],
            title=f"Instances of service {name}",
            right=frozenset({"Endpoints"}),
            empty=f"service {name}: {_NOBODY}",
        )
        for each in answers:
            said = each.instance
            table.add(said.id, said.version, len(said.endpoints or ()), said.description or "")
        session.output.show(documents, table)
        return
    table = Table(
        ["Name", "Version", "Instances", "Endpoints", "Description"],
        title="Services",
        right=frozenset({"Instances", "Endpoints"}),
        empty=_NOBODY,
    )
    services: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    for each in answers:
        services[each.instance.name, each.instance.version].append(each)
    for (service, version), instances in services.items():
        last = instances[-1].instance
        endpoints = len({(each.name, each.subject) for each in _endpoints(instances)})
        table.add(service, version, len(instances), endpoints, last.description or "")
    session.output.show(documents, table)


@online(click.argument("name"), _ID, _WAIT)
async def info(session: Session, name: str, instance: str, wait: float) -> None:
    """Show the instances of a service, and the endpoints of each: subject, queue, metadata."""
    answers = await _some(session, "INFO", name, instance, wait)
    sheets = []
    for each in answers:
        said = each.instance
        sheet = Sheet(f"Service {said.name}, instance {said.id}")
        sheet.section("", [("Version", said.version), ("Description", said.description)])
        sheet.section("Metadata", list((said.metadata or {}).items()))
        for endpoint in said.endpoints or ():
            sheet.section(
                f"Endpoint {endpoint.name}",
                [
                    ("Subject", endpoint.subject),
                    ("Queue group", endpoint.queue_group or "none: each instance answers"),
                    *(endpoint.metadata or {}).items(),
                ],
            )
        sheets.append(sheet)
    session.output.show([each.document for each in answers], *sheets)


@online(_NAME, _ID, _WAIT)
async def stats(session: Session, name: str, instance: str, wait: float) -> None:
    """Show what each endpoint has done: requests, errors, time; of all services or of one."""
    answers = await _some(session, "STATS", name, instance, wait)
    table = Table(
        ["Service", "Id", "Endpoint", "Requests", "Errors", "Average", "Busy", "Last error"],
        title=f"{counted(len(answers), 'instance')}",
        right=frozenset({"Requests", "Errors", "Average", "Busy"}),
    )
    for each in answers:
        said = each.instance
        for endpoint in said.endpoints or ():
            table.add(
                said.name, said.id, endpoint.name,
                f"{endpoint.num_requests:,}", f"{endpoint.num_errors:,}",
                _time(endpoint.average_processing_time), _time(endpoint.processing_time),
                endpoint.last_error or "",
            )  # fmt: skip
    session.output.show([each.document for each in answers], table)


@online(_NAME, _ID, _WAIT)
async def ping(session: Session, name: str, instance: str, wait: float) -> None:
    """Measure the time to each instance and back."""
    answers = await _some(session, "PING", name, instance, wait)
    table = Table(["Service", "Id", "Version", "Time"], right=frozenset({"Time"}))
    for each in answers:
        said = each.instance
        table.add(said.name, said.id, said.version, _time(round(each.took_s * 1e9)))
    documents = [{**each.document, "took_ms": round(each.took_s * 1e3, 3)} for each in answers]
    session.output.show(documents, table)


async def _some(
    session: Session, verb: Verb, name: str, instance: str, wait: float
) -> list[Answer]:
    """The answers, of which there must be one. Raises Failure."""
    answers = await ask(session, verb, name, instance, wait)
    if answers:
        return answers
    if instance:
        raise Failure(f"service {name} has no instance {instance}", f"headrace service ls {name}")
    if name:
        raise Failure(
            f"service {name}: nobody answers", "headrace service ls    lists those there are"
        )
    raise Failure("no service answers", "headrace service serve NAME    would")


def _endpoints(answers: list[Answer]) -> list[Endpoint]:
    return [endpoint for each in answers for endpoint in each.instance.endpoints or ()]


def _time(nanoseconds: int) -> str:
    """A time as people read it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f} {unit}"
    return f"{nanoseconds} ns"
