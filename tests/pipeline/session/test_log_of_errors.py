"""Where PySpark's own words about an error go."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

import peers
from headrace.errors import ConfigurationError
from headrace.pipeline.session.session import _log_errors_to, check_java


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("no program at all", "cannot be run: Exec format error"),
        ("#!/nowhere/sh\n", "cannot be run: No such file or directory"),
        ("#!/bin/sh\nprintf '\\377\\376'; exit 1\n", "does not say its version"),
        (
            "#!/bin/sh\necho 'version \"11.0.1\"' >&2\n",
            "is 11; install a Java runtime, 17 or newer",
        ),
    ],
)
def test_a_java_that_is_none_is_told_in_a_sentence(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(script)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError) as caught:
        check_java()
    assert str(java) in str(caught.value)
    assert said in str(caught.value)


def test_what_pyspark_says_of_an_error_beside_raising_it_goes_to_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peers.package("pyspark")
    for number in (1, 2):  # another session of the same process has another log
        log = tmp_path / f"{number}.log"
        _log_errors_to(log)
        logging.getLogger("SQLQueryContextLogger").error("no column 'x'")
        assert [json.loads(line)["msg"] for line in log.read_text().splitlines()] == [
            "no column 'x'"
        ]
    assert capsys.readouterr() == ("", "")


def test_what_py4j_and_the_lease_s_thread_say_goes_to_the_log_and_other_warnings_of_ours_stay(
    tmp_path: Path,
) -> None:
    """In a process of its own: pytest gives the root handlers, and then nothing is added."""
    peers.package("pyspark")
    code = """
import logging, sys
from pathlib import Path
from headrace.pipeline.model import LeaseSettings
from headrace.pipeline.session.session import _log_errors_to
from headrace.pipeline.lease import Standby

_log_errors_to(Path(sys.argv[1]))
_log_errors_to(Path(sys.argv[1]))
logging.exception("Exception while sending command.")
logging.getLogger("py4j.java_gateway").error("no answer")
logging.getLogger("headrace.client").warning("disconnected")
logging.getLogger("headrace.client").info("nobody reads this")
lease = Standby(LeaseSettings(place=None), "p", print)._thread
lease.run = lambda: logging.getLogger("headrace.client").warning("the event loop stood still")
lease.start()
lease.join()
"""
    log = tmp_path / "spark.log"
    done = subprocess.run(
        [sys.executable, "-c", code, log], capture_output=True, text=True, check=True
    )
    assert done.stderr == "disconnected\n"
    assert done.stdout == ""
    told = log.read_text()
    assert told.count("Exception while sending command.") == told.count("no answer") == 1
    assert told.count("the event loop stood still") == 1
    assert "nobody" not in told
