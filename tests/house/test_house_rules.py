"""The rules of CONTRIBUTING.md that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.scenarios.everything import ALL

ROOT = Path(__file__).resolve().parents[2]
FUNCTION_LINES_MAX = 70
SLEEP_S_MIN = 0.01
ELAPSES_MAX = 41
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring, which may be as long as it is useful."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        assert first.end_lineno is not None
        lines -= first.end_lineno - first.lineno + 1
    return lines


def too_long(text: str) -> Iterator[str]:
    """Functions of a file that are too long to read."""
    if text.count("\n") <= FUNCTION_LINES_MAX:
        return
    for function in functions(ast.parse(text)):
        if code_lines(function) > FUNCTION_LINES_MAX:
            yield f"{function.name} (line {function.lineno}): {code_lines(function)} lines"


def test_functions_are_small_enough_to_read() -> None:
    assert len(SOURCES) > 500
    found = {
        str(path.relative_to(ROOT / "src")): what
        for path in SOURCES
        if (what := list(too_long(path.read_text())))
    }
    assert not found


def test_what_is_too_long_is_found() -> None:
    body = "\n".join(["    x = 1"] * FUNCTION_LINES_MAX)
    function = f"def f():\n{body}\n"
    assert list(too_long(function)) == [f"f (line 1): {FUNCTION_LINES_MAX + 1} lines"]
    documented = function.replace("    x = 1\n", "    '''What\n\n    it does.'''\n", 1)
    assert not list(too_long(documented))


POINTS_ELSEWHERE = re.compile(r"The same\b|Nothing\b|What is said of\b|Those of this\b")
"""Beginnings of docstrings that say nothing without the one before them."""


def docstrings_that_point_elsewhere(text: str) -> list[str]:
    """The beginnings of docstrings that begin with neither a verb nor the noun itself."""
    if not POINTS_ELSEWHERE.search(text):
        return []  # most files: reading all of them as Python takes seconds
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    found = [ast.get_docstring(node) or "" for node in nodes]
    return [text[:60] for text in found if POINTS_ELSEWHERE.match(text)]


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = {
        str(path.relative_to(ROOT / "src")): said
        for path in SOURCES
        if (said := docstrings_that_point_elsewhere(path.read_text()))
    }
    assert not found


def test_a_docstring_that_points_elsewhere_is_found() -> None:
    text = (
        'def f():\n    """The same for many."""\n\n\nclass A:\n    """A thing. Nothing else."""\n'
    )
    assert docstrings_that_point_elsewhere(text) == ["The same for many."]


def module_of(path: Path) -> Path:
    """The module, or the room, that a file of tests bears the name of."""
    name = path.stem.removeprefix("test_")
    folder = ROOT / "src" / "headrace" / path.parent.relative_to(ROOT / "tests")
    return folder / name if (folder / name).is_dir() else folder / f"{name}.py"


def test_tests_have_the_folders_of_the_source() -> None:
    source = ROOT / "src" / "headrace"
    rooms = [ROOT / "tests" / path.name for path in source.iterdir() if path.is_dir()]
    folders = {path.parent for room in rooms for path in room.rglob("*.py")}
    assert len(folders) > 20
    strays = [f for f in folders if not (source / f.relative_to(ROOT / "tests")).is_dir()]
    assert not strays


def test_a_file_of_tests_that_is_named_after_no_module_says_what_it_is_about() -> None:
    source = ROOT / "src" / "headrace"
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if path.parent != ROOT / "tests"]
    others = [path for path in files if (source / path.parent.relative_to(ROOT / "tests")).is_dir()]
    nameless = [path for path in others if not (module_of(path).exists())]
    assert len(nameless) > 20
    silent = [path for path in nameless if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not silent


@pytest.mark.parametrize(
    "module",
    [
        "broker/core/jetstream/consumer/delivery_state",
        "broker/core/jetstream/consumer/acks",
        "broker/core/jetstream/consumer/journal",
        "broker/core/jetstream/consumer/pull_recipients",
        "broker/core/jetstream/engine/registry",
        "broker/core/jetstream/publish/admission",
        "broker/core/jetstream/publish/duplicate_window",
        "broker/store/commit/commit",
        "broker/store/format/record",
        "broker/store/format/segment",
        "broker/store/log/file_log",
        "broker/store/recovery",
    ],
)
def test_what_decides_what_may_be_lost_has_tests_of_its_own(module: str) -> None:
    path = Path(module)
    assert (ROOT / "src" / "headrace" / f"{module}.py").is_file()
    assert (ROOT / "tests" / path.parent / f"test_{path.name}.py").is_file()


def is_fixed(argument: ast.expr) -> bool:
    """Whether it is a number of at least 10 ms, or made of numbers and CONSTANTS."""
    if isinstance(argument, ast.Constant):
        return isinstance(argument.value, int | float) and argument.value >= SLEEP_S_MIN
    names = [node.id for node in ast.walk(argument) if isinstance(node, ast.Name)]
    calls = any(isinstance(node, ast.Call | ast.Attribute) for node in ast.walk(argument))
    return not calls and all(name.isupper() for name in names)


def fixed_sleeps(text: str) -> list[int]:
    """The lines that sleep for a time fixed beforehand."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            if name == "sleep" and is_fixed(node.args[0]):
                found.append(node.lineno)
    return found


def test_no_test_sleeps_for_a_fixed_time() -> None:
    """There is an event, or virtual time, or a reason to say (``waiting.elapse``)."""
    files = {*(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")}
    files.remove(ROOT / "tests" / "waiting.py")
    assert len(files) > 300
    sleeping = {
        str(path.relative_to(ROOT)): lines
        for path in files
        if "sleep" in (text := path.read_text()) and (lines := fixed_sleeps(text))
    }
    assert not sleeping, "see tests/waiting.py"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("time.sleep(0.01)", [1]),
        ("sleep(1)", [1]),
        ("anyio.sleep(2 * POLL_S)", [1]),
        ("asyncio.sleep(0)", []),
        ("asyncio.sleep(0.002)", []),
        ("time.sleep(seconds)", []),
        ("time.sleep(self.delay_s)", []),
    ],
)
def test_fixed_sleeps_are_found(line: str, found: list[int]) -> None:
    assert fixed_sleeps(line) == found


PLAIN_READERS = {
    "documents.py": "it is the reader",
    "broker/core/auth/jwt.py": "catches what is nested too deep; tells a wrong type apart",
    "broker/core/jetstream/consumer/acks.py": "of a fixed type; catches what is nested too deep",
    "cli/serve/config.py": "catches the error of the reader",
    "client/publish/awaited.py": "of a fixed type, for each answer; catches what is nested too deep",
    "client/publish/fast_answers.py": "of a fixed type, for each answer; catches what is nested too deep",
    "client/jetstream/backup.py": "writes",
    "demo/flights.py": "of a fixed type: what the demo has published",
    "pipeline/declaring/document.py": "catches the error of the reader",
    "pipeline/running/run.py": "what Spark says of its own queries",
    "spark/decoding/jsons.py": "per message; catches what is nested too deep",
    "spark/reading/gets.py": "of a fixed type, for each message; catches what is nested too deep",
}
"""Who reads JSON or TOML by other means than ``headrace.documents``, and why that is right there."""

_PLAIN_READER = re.compile(
    r"\bjson\.loads?\(|\btomllib\.|\bjson\.Decoder\(|\bjson\.decode\(|\bload_toml\("
)


def test_documents_of_others_are_read_in_one_place() -> None:
    """One that limits how deep they are nested. The jobs have their own, for their frameworks."""
    source = ROOT / "src" / "headrace"
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if "jobs" not in path.relative_to(source).parts and _PLAIN_READER.search(path.read_text())
    }
    assert found - PLAIN_READERS.keys() == set(), "see headrace.documents"


def test_a_package_that_the_lock_has_is_missed_where_ci_runs_and_not_passed_over() -> None:
    """By ``peers.package``. What a system may be without is no package of the lock."""
    texts = [path.read_text() for path in (ROOT / "tests").rglob("*.py")]
    skipped = {name for text in texts for name in re.findall(r"importorskip\(\"(\w+)", text)}
    assert skipped == {"fcntl"}


def test_what_elapses_is_little_and_has_a_reason() -> None:
    """Each waits out a time that is really spent: so few that it can be told why each is needed."""
    texts = [path.read_text() for path in (ROOT / "tests").rglob("*.py")]
    count = sum(len(re.findall(r"\belapse(?:_here)?\(", text)) for text in texts)
    assert count <= ELAPSES_MAX


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text())
    missing = [link for link in links if not (path.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("script", ["install-postgres", "install-tools", "make-env", "make-lock"])
def test_scripts_name_no_host(script: str) -> None:
    text = (ROOT / "scripts" / script).read_text()
    assert "://" not in text
    subprocess.run(["bash", "-n", ROOT / "scripts" / script], check=True)


@pytest.mark.parametrize("lock", ["lock.txt", "peers-3.13.txt"])
def test_the_locks_name_no_host_and_pin_everything_by_hash(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    assert "://" not in text
    packages = re.findall(r"(?m)^[a-z0-9][^\s;]*==[^\s;]+.*(?:\n    --hash=.*)*", text)
    assert packages
    assert all("--hash=sha256:" in package for package in packages)


def test_every_line_of_the_threat_model_names_its_proof() -> None:
    lines = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line[:2] == "| "]
    proved = [line for line in lines if re.search(r"`[\w/]+\.py::\w+`|scenario\s+`", line)]
    heads = [line for line in lines if line.startswith(("| door |", "| attack |", "| --- |"))]
    assert len(lines) > 80
    assert [line for line in lines if line not in proved and line not in heads] == []


def test_the_tests_the_threat_model_names_are_there() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", text)
    assert len(named) > 30
    for file, function in named:
        path = ROOT / "tests" / file
        assert path.is_file(), file
        found = {f.name for f in functions(ast.parse(path.read_text()))}
        assert function in found, f"{file} has no {function}"
    scenarios = re.findall(r"scenario\s+`([^`]+)`", text)
    assert len(scenarios) > 10
    known = {scenario.name for scenario in ALL}
    assert not [name for name in scenarios if name not in known]
