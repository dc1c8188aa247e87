from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import peers
from headrace import sync
from headrace.api import pipelines
from headrace.api.pipelines import PipelineRecord
from headrace.errors import BucketNotFoundError
from headrace.pipeline.checkpoints.totals import Batch, Totals
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import Declared
from headrace.pipeline.running.runner import Watcher
from headrace.pipeline.status.meter import Meter
from headrace.pipeline.status.notes import this_process
from headrace.pipeline.status.publishing import Publisher
from headrace.pipeline.status.recorder import Recorder, told
from waiting import until_here

from ..conftest import ORDERS


@pytest.fixture(params=[pytest.param("nats-server", marks=pytest.mark.peer), "headrace"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[peers.ServerProcess]:
    yield from peers.either_running(request.param, tmp_path / "server")


class Silent:
    def starting(self, what: str) -> None: ...


class Run:
    """A run that only tells what happens."""

    def __init__(self, declared: Declared) -> None:
        self.recorder = Recorder(declared, this_process(), lambda: 1_000_000.0)
        self.meter = Meter(declared, self.recorder)
        self.publisher = Publisher(declared, self.recorder, self.meter)
        silent: Watcher = Silent()  # type: ignore[assignment]
        self.tell = told(silent, self.recorder, self.meter, self.publisher)
        self.tell.starting("Spark")
        self.tell.started("out")

    def batch(self, number: int, behind: int) -> None:
        totals = Totals(None)
        batch = Batch("out", number, 5, 0.5, behind=behind)
        totals.add(batch)
        self.tell.batch(batch, totals)


def stored(url: str) -> dict[str, PipelineRecord]:
    with sync.connect(url) as connection:
        try:
            bucket = connection.jetstream().key_value(pipelines.BUCKET)
        except BucketNotFoundError:
            return {}
        keys = list(bucket.keys())
        found = {key: pipelines.decode(bucket.get(key).value) for key in keys}
    return {key: each for key, each in found.items() if each is not None}


def declared_for(write: Callable[..., Path], url: str, more: str = "") -> Declared:
    return read(write(ORDERS + f'[metrics]\nservers = "{url}"\n{more}'))


def test_a_server_is_told_how_a_run_is_and_when_it_has_ended(
    write: Callable[..., Path], server: peers.ServerProcess
) -> None:
    declared = declared_for(write, server.url)
    run = Run(declared)
    key = pipelines.key_of("orders", this_process().host, leased=False)
    until_here(lambda: key in stored(server.url), "nothing is published")
    run.batch(3, behind=40)
    until_here(lambda: stored(server.url)[key].queries["out"].behind == 40, "no batch is told")
    record = stored(server.url)[key]
    out = record.queries["out"]
    assert (record.name, record.process) == ("orders", this_process().number)
    assert (out.state, out.rows, out.batches, out.batch_s) == ("running", 5, 1, 0.5)
    assert record.graph == (
        "orders  source, stream ORDERS",
        f"└─ out  sink, parquet {'out'}",
    )
    assert record.silent_s(record.written + 3) == 3
    run.tell.restarting("out", 1, "a worker was lost", 2.0)
    run.publisher.close()
    record = stored(server.url)[key]
    assert (record.queries["out"].state, record.queries["out"].error) == (
        "restarting",
        "a worker was lost",
    )
    assert record.silent_s(record.written + 3) is None
    another = Run(declared)  # of this name on this machine
    another.batch(4, behind=0)
    another.publisher.close()
    assert stored(server.url).keys() == {key}
    assert stored(server.url)[key].queries["out"].behind == 0
    with sync.connect(server.url) as connection:
        config = connection.jetstream().stream(f"KV_{pipelines.BUCKET}").info().config
    assert config.max_age == pipelines.KEPT_S
    assert config.max_bytes == pipelines.BUCKET_BYTES
    assert config.max_msgs_per_subject == 1


def test_a_run_goes_on_while_the_server_is_away_and_is_told_when_it_is_back(
    write: Callable[..., Path],
    server: peers.ServerProcess,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(pipelines, "EVERY_S", 1.05)
    server.kill()
    run = Run(declared_for(write, server.url))
    until_here(lambda: "cannot be published" in caplog.text, "it is not said")
    run.batch(0, behind=7)
    server.start_again()
    until_here(lambda: len(stored(server.url)) == 1, "it is not told", within=60)
    run.publisher.close()
    (record,) = stored(server.url).values()
    assert (record.queries["out"].behind, record.ended > 0) == (7, True)
    assert caplog.text.count("cannot be published") == 1


def test_a_pipeline_that_names_no_server_tells_none_and_a_standby_says_nothing(
    write: Callable[..., Path], server: peers.ServerProcess
) -> None:
    run = Run(read(write(ORDERS)))
    run.publisher.close()
    lease = f'[lease]\nservers = "{server.url}"\n'
    declared = declared_for(write, server.url, lease)
    recorder = Recorder(declared, this_process(), lambda: 1_000_000.0)
    publisher = Publisher(declared, recorder, Meter(declared, recorder))
    publisher.starting("Spark")
    publisher.standby("another", None)
    publisher.close()
    assert stored(server.url) == {}


def test_what_is_told_is_bounded_and_what_nobody_wrote_is_none() -> None:
    query = pipelines.QueryRecord(error="x" * 5_000, why="y" * 5_000)
    record = PipelineRecord(
        "orders",
        "host",
        1,
        0.0,
        0.0,
        graph=("line" * 1_000,) * 1_000,
        queries={f"q{number}": query for number in range(500)},
    )
    value = pipelines.encode(record)
    assert len(value) < pipelines.RECORD_BYTES_MAX
    found = pipelines.decode(value)
    assert found is not None
    assert (len(found.queries), found.left_out) == (pipelines.QUERIES_MAX, 400)
    for wrong in (b"", b"{}", b"[" * 100_000, b'{"name": 3}', b" " * 600_000):
        assert pipelines.decode(wrong) is None
    assert pipelines.key_of("orders", "a.b c>*", leased=False) == "orders.a_b_c__"
    assert pipelines.key_of("orders", "a", leased=True) == "orders"
