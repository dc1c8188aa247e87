"""``headrace packaging``: the files that run Headrace under systemd, in containers and on Kubernetes."""

from __future__ import annotations

import sys
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import click

from .shared.errors import Failure
from .shared.output import Output, Table, output_options

FILES: Final = {
    "headrace.toml": "settings of the broker, for the unit",
    "headrace.service": "systemd: the broker",
    "headrace-jobs.service": "systemd: the job service",
    "headrace-pipeline@.service": "systemd: a pipeline, an instance for each file",
    "headrace-backup.service": "systemd: a backup of all streams of all accounts",
    "headrace-backup.timer": "systemd: that backup, each night",
    "Dockerfile": "an image with broker, command, console and jobs",
    "Dockerfile.pipeline": "an image with a pipeline's Spark and Java",
    "container.toml": "settings of the broker in the image",
    "compose.yaml": "broker, jobs on PostgreSQL and console, in containers",
    "kubernetes.yaml": "the broker on Kubernetes, with its disk",
    "monitoring/headrace-alerts.yml": "Prometheus: alert rules of the broker",
    "monitoring/headrace-pipeline-alerts.yml": "Prometheus: alert rules of pipelines",
    "monitoring/headrace-dashboard.json": "Grafana: a dashboard",
}
"""Each with what it is for."""


@click.command("packaging")
@click.argument("file", required=False, default="")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="DIRECTORY",
    help="write them there, or FILE alone; what is there already stays",
)
@click.pass_context
def packaging(context: click.Context, /, file: str, into: Path | None, **flags: bool) -> None:
    """Show the files that run Headrace as a service, or print FILE.

    \b
    headrace packaging
    headrace packaging headrace.service | sudo tee /etc/systemd/system/headrace.service
    headrace packaging --into deploy
    """
    if file and file not in FILES:
        raise Failure(
            f"no file {file!r}; there are {', '.join(FILES)}",
            "headrace packaging    says what each is for",
        )
    if into is not None:
        _write([file] if file else list(FILES), into)
        return
    if file:
        sys.stdout.write(text_of(file))
        return
    table = Table(["File", "What it is for"])
    for name, what in FILES.items():
        table.add(name, what)
    output = Output.of(json=flags["json"], yaml=flags["yaml"])
    output.show([{"file": name, "for": what} for name, what in FILES.items()], table)
    output.note("headrace packaging FILE prints one, --into DIRECTORY writes all")


packaging.params += output_options()


def text_of(name: str) -> str:
    """The contents of one of them."""
    place: Traversable = resources.files("headrace").joinpath("packaging", *name.split("/"))
    return place.read_text(encoding="utf-8")


def _write(names: list[str], directory: Path) -> None:
    """Write them. Raises Failure, before anything is written, if one is there with other contents."""
    texts = {directory / name: text_of(name) for name in names}
    try:
        others = [
            path for path, text in texts.items() if path.exists() and path.read_text() != text
        ]
        if others:
            raise Failure(
                f"{others[0]} is there already and differs; nothing was written",
                "mv it away, or give another directory with --into",
            )
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(path)
    except (OSError, UnicodeError) as error:
        raise Failure(f"{directory}: {error}") from None
