from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import sync
from headrace.cli import main
from headrace.pipeline.checking.gaps import gaps
from headrace.pipeline.checkpoints.checkpoint import checkpoint_of
from headrace.pipeline.declaring.reading import read

from ..conftest import ORDERS


@pytest.fixture
def url(either_url: str) -> str:
    return either_url


def test_messages_that_the_next_run_would_miss_are_told_with_the_commands_that_lead_on(
    write: Callable[..., Path], url: str, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = ORDERS.replace('"parquet"', '"noop"').replace(
        '"ORDERS"', f'"{stream}", servers = "{url}"'
    )
    file = write(text)
    declared = read(file)
    assert gaps(declared) == [], "nothing has run"
    folder = Path(checkpoint_of(declared, "out").current().path)
    for kind in ("offsets", "commits"):
        (folder / kind).mkdir(parents=True)
    (folder / "commits" / "0").write_text("v1\n{}")

    def ends_at(sequence: int, epoch: str = "", stored: int = 0) -> None:
        noted = {"epoch": epoch, "seq": sequence, "stored": stored, "stream": stream, "v": 1}
        end = json.dumps(noted)
        (folder / "offsets" / "0").write_text(f"v1\n{{}}\n{end}")

    ends_at(3)
    assert gaps(declared) == []
    with sync.connect(url) as connection:
        connection.jetstream().stream(stream).purge(below=7)
    (problem,) = gaps(declared)
    assert problem.place.line == 6
    assert f"stream '{stream}' begins at sequence 7 now; up to 3 messages from 4 on" in problem.text
    assert f"reset {file} --query out --to earliest" in problem.text
    assert gaps(read(write(text.replace("servers", "failOnDataLoss = false, servers")))) == []
    write(text)
    assert main(["pipeline", "validate", str(file)]) == 1
    assert (
        f"{file}:6: query 'out' will not go on: stream '{stream}' begins" in capsys.readouterr().err
    )
    ends_at(6)
    assert gaps(declared) == []
    ends_at(6, "2001-01-01T00:00:00Z")
    (problem,) = gaps(declared)
    assert "whether it is the same one cannot be told" in problem.text
    ends_at(8, "2001-01-01T00:00:00Z", 1)
    (problem,) = gaps(declared)
    assert "is not the one this query read before" in problem.text
    assert gaps(read(write(text.replace("servers", 'onStreamReset = "continue", servers')))) == []
