"""The longest files of tests are begun first, and the page tells of the times that this goes by."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import suite_order
import suite_times
from suite_order import (
    BROWSER,
    ROOT,
    SPARK,
    UNKNOWN_S,
    Share,
    Taken,
    known,
    longest_first,
    share_of,
)

REPORT = """<testsuites><testsuite>
<testcase classname="tests.broker.core.test_a" name="one" time="1.5" />
<testcase classname="tests.broker.core.test_a.Kind" name="two[a.b]" time="0.25" />
<testcase classname="tests.spark.test_b" name="three" time="40" />
</testsuite></testsuites>
"""
TIMES = {
    "tests/broker/core/test_a.py": Taken(2, 1.75),
    "tests/broker/store/test_d.py": Taken(1, 2.0),
    "tests/spark/sink/test_c.py": Taken(1_200, 9.0),
    "tests/spark/test_b.py": Taken(1, 40.0),
    "tests/test_e.py": Taken(3, 0.2),
}


def test_the_longest_file_is_first_and_an_unknown_one_is_not_last() -> None:
    files = [
        "tests/test_e.py",
        "tests/new.py",
        "tests/spark/sink/test_c.py",
        "tests/spark/test_b.py",
    ]
    assert 9.0 < UNKNOWN_S < 40.0
    assert longest_first([*files, *files], TIMES) == [files[3], files[1], files[2], files[0]]


@pytest.mark.parametrize("share", [SPARK, BROWSER], ids=lambda share: share.folder)
def test_files_that_share_what_is_started_once_go_to_one_process(share: Share) -> None:
    """All that take the fixture, and no others."""
    fixture, kind = share.fixture.split(": ")
    taking = set()
    for path in (ROOT / share.folder).rglob("test_*.py"):
        arguments = {
            argument.arg: ast.unparse(argument.annotation or ast.Constant(None))
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("test_")
            for argument in node.args.args
        }
        if arguments.get(fixture) == kind:
            taking.add(path.relative_to(ROOT).as_posix())
    assert len(taking) > 5
    assert {share_of(file) for file in taking} == {share.name}
    assert share.files() == taking
    assert share_of("tests/wire/test_parser.py") == "tests/wire/test_parser.py"


def test_a_share_of_several_files_counts_as_long_as_all_of_them() -> None:
    one, other = sorted(SPARK.files())[:2]
    times = {one: Taken(1, 6.0), "a": Taken(1, 10.0), other: Taken(1, 5.0)}
    assert longest_first(["a", one, "b", other], {**times, "b": Taken(1, 1.0)}) == [
        one, other, "a", "b",
    ]  # fmt: skip


def test_files_of_the_same_time_stay_in_their_order() -> None:
    files = [f"tests/test_{letter}.py" for letter in "cab"]
    assert longest_first(files, dict.fromkeys(files, Taken(1, 1.0))) == files


def test_the_tests_of_a_file_stay_together_and_in_their_order(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = [item for item in request.session.items if item.path == Path(__file__)]
    others = [item for item in request.session.items if item.path != Path(__file__)]
    name = Path(__file__).relative_to(ROOT).as_posix()
    monkeypatch.setattr(suite_order, "known", lambda: {name: Taken(1, 10_000.0)})
    mixed = [*others, *mine] if len(others) < 2 else [others[0], *mine, *others[1:]]
    assert suite_order.in_order(mixed)[: len(mine)] == mine
    assert set(suite_order.in_order(mixed)) == set(mixed)


def test_a_report_says_what_each_file_took(tmp_path: Path) -> None:
    for file in ("tests/broker/core/test_a.py", "tests/spark/test_b.py"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    found = suite_times.taken_in(report, tmp_path)
    assert found == {name: TIMES[name] for name in found}
    assert len(found) == 2
    (tmp_path / "tests/spark/test_b.py").unlink()
    with pytest.raises(ValueError, match=r"names 'tests.spark.test_b'"):
        suite_times.taken_in(report, tmp_path)


def test_the_table_has_the_rooms_the_longest_first() -> None:
    lines = suite_times.table(TIMES).splitlines()[2:]
    assert lines == [
        "| `tests/spark` | 1,201 | 49 |",
        "| `tests/broker/store` | 1 | 2 |",
        "| `tests/broker/core` | 2 | 2 |",
        "| `tests/*.py` | 3 | 0 |",
    ]
    page = f"before\n\n{suite_times.HEAD}| `tests/old` | 1 | 1 |\n\nbehind\n"
    changed = suite_times.with_table(page, TIMES)
    assert changed == f"before\n\n{suite_times.table(TIMES)}\nbehind\n"


def test_what_is_written_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "seconds.txt"
    file.write_text(suite_times.written(TIMES))
    monkeypatch.setattr(suite_order, "SECONDS", file)
    tenths = {name: Taken(each.tests, round(each.seconds, 1)) for name, each in TIMES.items()}
    assert known() == tenths


def test_the_page_has_the_table_of_the_times_that_are_listed() -> None:
    text = suite_times.PAGE.read_text()
    assert suite_times.with_table(text, known()) == text, "python tests/suite_times.py"


def test_every_room_of_tests_is_listed() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    rooms = {suite_times.room_of(file) for file in files}
    listed = {suite_times.room_of(file) for file in known()}
    assert rooms == listed, "make test-seconds, or of one room as CONTRIBUTING.md says"
