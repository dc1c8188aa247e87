"""README, tutorial and guides as their readers use them: typed on terminals, in order, in one folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pyarrow.parquet
import pytest

import peers
from guides import ROOT
from headrace import SubjectTransformConfig, sync
from portions import portion
from readers import Reader, pieces_of, runs_of

DOCS: Final = ROOT / "docs"
LESSONS: Final = DOCS / "tutorial"

GUIDES: Final[dict[str, dict[str, str]]] = {
    "how-to/locks.md": {},
    "how-to/rate-limit.md": {},
    "how-to/saga.md": {},
    "how-to/scheduled.md": {},
    "how-to/idempotent.md": {
        "python examples/idempotent.py postgresql://localhost/shop [nats://127.0.0.1:4222]": (
            "another database; tests/examples/test_idempotent.py plays it with PostgreSQL"
        ),
    },
    "how-to/spark-elsewhere.md": {
        "python examples/parquet_bridge.py ORDERS s3://lake/orders": "asks for an account of S3",
    },
    "how-to/monitor.md": {},
    "how-to/changing.md": {},
}
"""The guides typed after the lessons, in this order, and what of them is not, with the reason."""

PLAYED: Final[dict[str, str]] = {
    "README.md": "tests/docs/test_typed_pages.py",
    "docs/index.md": "tests/acceptance/test_readme.py",
    "docs/backup.md": "tests/snapshots/test_guide.py",
    "docs/cli.md": "tests/cli/test_guide.py",
    "docs/client.md": "tests/client/test_guide.py",
    "docs/groups.md": "tests/groups/test_guide.py",
    "docs/testing.md": "tests/testing/test_plugin.py",
    "docs/worker.md": "tests/worker/test_guide.py",
    "docs/explanation/closing.md": "tests/client/test_programs_that_end.py",
    "docs/how-to/changing-a-pipeline.md": "tests/pipeline/test_page_of_failures.py",
    "docs/how-to/event-time.md": "tests/spark/test_pages_of_pipelines.py",
    "docs/how-to/permissions.md": "tests/roles.py",
    "docs/how-to/rejected-rows.md": "tests/spark/test_pages_of_pipelines.py",
    "docs/how-to/faststream.md": "tests/examples/test_faststream.py",
    "docs/how-to/from-celery.md": "tests/worker/test_guide.py",
    "docs/how-to/from-kafka.md": "tests/pipeline/test_page_of_failures.py",
    "docs/how-to/jobs-from-elsewhere.md": "tests/docs/test_elsewhere.py",
    "docs/how-to/outbox.md": "tests/worker/test_outbox.py",
    "docs/how-to/protobuf.md": "tests/examples/test_protobuf.py",
    "docs/how-to/tracing.md": "tests/examples/test_tracing.py",
    "docs/how-to/web.md": "tests/examples/test_web.py",
    "docs/how-to/when-a-pipeline-fails.md": "tests/pipeline/test_page_of_failures.py",
}
"""Pages whose programs or commands another test takes from the page, with what they need: a database, a
second server, a browser, a compiler, a Spark that is there already."""

NOT_TYPED: Final[dict[str, str]] = {
    "docs/architecture.md": "trees of files, and nothing to type",
    "docs/configuration.md": "pieces of files; tests/cli/serve/test_config.py reads its tables",
    "docs/console.md": "opens a console for others, with contexts; tests/docs/test_commands.py parses it",
    "docs/jobs.md": "pieces for a service of one's own; tests/docs/test_commands.py parses its commands",
    "docs/metrics.md": "settings of Prometheus; tests/docs/test_commands.py parses its commands",
    "docs/outgrow.md": "asks for a cluster; tests/docs/test_commands.py parses its commands",
    "docs/pipelines.md": "pieces of one file; tests/pipeline/declaring/test_keys.py compares its keys",
    "docs/spark.md": "pieces of queries that never end; tests/spark/test_options.py compares its options",
    "docs/how-to/deploy.md": "asks for root, Docker or a cluster; tests/docs/test_packaging.py parses it",
    "docs/how-to/jobs-access.md": "keys and certificates; tests/docs/test_commands.py parses its commands",
    "docs/how-to/jobs-operate.md": "moves a service; tests/docs/test_commands.py parses its commands",
    "docs/how-to/pipeline-standby.md": "asks for several machines; tests/docs/test_commands.py parses it",
    "docs/how-to/spark-cluster.md": "asks for a Spark cluster; tests/spark/test_spark_cluster.py runs one",
}
"""Pages that nobody types, and why."""


def lessons() -> list[str]:
    """In the order of the list."""
    listed = re.search(r"```\{toctree\}\n.*?\n(.*?)```", (LESSONS / "index.md").read_text(), re.S)
    assert listed is not None
    return [line for line in listed[1].splitlines() if line and not line.startswith(":")]


def prepare_shipping(url: str) -> None:
    """What ``changing.md`` calls a stream of static groups, and the consumer that it changes."""
    with sync.connect(url) as connection:
        numbered = "{{partition(4,1)}}.ship.{{wildcard(1)}}.{{wildcard(2)}}"
        transform = SubjectTransformConfig(src="ship.*.*", dest=numbered)
        js = connection.jetstream()
        js.create_stream(name="SHIPPING", subjects=["ship.*.*"], subject_transform=transform)


@pytest.mark.timeout(1200)  # some forty seconds on a quiet machine
def test_the_lessons_are_typed_in_order_in_one_folder_and_then_the_guides(tmp_path: Path) -> None:
    if not peers.java_is_there():
        peers.missing_peer("Java", "install a JRE, 17 or newer")
    folder = tmp_path / "lessons"
    folder.mkdir()
    # A pipeline's second run takes a second Java. The suite lets the demo go on where it was
    # (``tests/acceptance/test_demo.py``), in one.
    with Reader(folder, again=bool(portion(1, few=0))) as reader:
        for lesson in ("index", *lessons()):
            reader.read(LESSONS / f"{lesson}.md")
        rows = pyarrow.parquet.read_table(folder / "amounts").num_rows
        assert rows == (1010 if reader.again else 1000)
        prepare_shipping(reader.url)
        for name, left in GUIDES.items():
            reader.read(DOCS / name, left)
    for screen in reader.screens():
        assert "Traceback" not in screen


@pytest.mark.timeout(600)
def test_what_the_readme_shows_is_typed_after_its_program(tmp_path: Path) -> None:
    pieces = pieces_of(ROOT / "README.md")
    (program,) = [each for each in pieces if each.text.startswith("import asyncio\n")]
    (look,) = [each for each in pieces if each.name.startswith("headrace serve")]
    others = {each.name for each in pieces} - {look.name}
    with Reader(tmp_path) as reader:
        (tmp_path / "quickstart.py").write_text(program.text)
        shown = reader.type_command("python quickstart.py", "README.md")
        assert shown == ["orders.1 b'two apples'"]
        reader.read(ROOT / "README.md", others)
    (_, commands, *_) = reader.screens()
    assert "three pears" in "".join(reader.screens()) and "Traceback" not in commands


def pages() -> list[Path]:
    """Those with something in fences, but for the reference."""
    found = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [page for page in found if page.parent.name != "reference" and pieces_of(page)]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_typed_or_played_or_listed_with_the_reason(page: Path) -> None:
    name = page.relative_to(ROOT).as_posix()
    lists = [f"docs/{each}" for each in GUIDES], PLAYED, NOT_TYPED
    count = sum(name in each for each in lists)
    assert count == (0 if page.parent == LESSONS else 1), "list it once, in this file"


def test_the_lists_name_what_is_there() -> None:
    names = {page.relative_to(ROOT).as_posix() for page in pages()}
    assert {*PLAYED, *NOT_TYPED, *(f"docs/{each}" for each in GUIDES)} <= names
    for name, test in PLAYED.items():
        assert Path(name).stem in (ROOT / test).read_text(), f"{test} plays nothing of {name}"
    for reason in [
        *NOT_TYPED.values(),
        *(why for left in GUIDES.values() for why in left.values()),
    ]:
        assert len(reason.split()) > 4
        for test in re.findall(r"tests/[\w/]+\.py", reason):
            assert (ROOT / test).is_file(), test
    for name, left in GUIDES.items():
        pieces = pieces_of(DOCS / name)
        there = {each.name for each in pieces} | {
            line for each in pieces for _, line in runs_of(each)
        }
        assert left.keys() <= there, name


def test_every_lesson_is_in_the_list() -> None:
    assert sorted(lessons()) == sorted(
        path.stem for path in LESSONS.glob("*.md") if path.stem != "index"
    )
