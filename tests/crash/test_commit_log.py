"""The commit log: what only it has on disk is there after a crash, whatever was going on."""

from __future__ import annotations

import random

import pytest

from crash.store_world import SMALL_LOG, World, come_back, live
from faultfs import Fault, FaultFS, PowerCut
from headrace.broker.store.commit.commit_log import CommitLog
from headrace.errors import StoreError
from portions import portion, some

LOG_FILES = ["/store/commit-log/0.log", "/store/commit-log/1.log"]
SEEDS_PER_TEST = portion(12, 2)


class BusyWorld(World):
    """A world that flushes all the time, as a broker does, and whose metadata speaks of its messages.

    With ``lags`` nothing is done for the log between commits, as when they follow each other at once.
    """

    lags = False

    def open(self) -> None:
        super().open()
        writer = self.storage._writer
        submit = writer._submit
        if self.lags and submit is not None and writer.log is not None:
            log = writer.log
            writer._submit = lambda chore: None if log.is_ready else submit(chore)

    def flush(self) -> None:
        model = self.streams.get("A")
        if model is not None and self.rng.random() < 0.5:
            said = b"%d %d" % (id(model), model.last)
            self.storage.meta.put("said", said)
            self.meta_history.append({**self.meta_history[-1], "said": (said, [])})
        super().flush()

    def recover(self, fs: FaultFS) -> None:
        known = [models.get("A") for models in (self.acked_streams, self.streams)]
        super().recover(fs)
        assert not [f for f in self.storage.report if "commit log" in f.what], self.storage.report
        said = self.meta_history[0].get("said")
        if said is not None and "A" in self.streams:
            which, last = map(int, said[0].split())
            if which in map(id, known):
                assert last <= self.streams["A"].last, (
                    "metadata speaks of messages that are not there"
                )
        self.storage.meta.put("said", b"0 0")
        self.meta_history.append({**self.meta_history[-1], "said": (b"0 0", [])})

    def step(self) -> None:
        if self.streams and self.rng.random() < 0.6:
            self.flush()
        else:
            super().step()


class Watched:
    """How often the log did what the tests are about."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches = self.switches = self.settled = 0
        put, switch = CommitLog._put, CommitLog._switch
        settle = CommitLog._catch_up

        def counted_put(log: CommitLog, frame: bytes) -> None:
            put(log, frame)
            self.batches += 1

        def counted_switch(log: CommitLog) -> None:
            switch(log)
            self.switches += 1

        def counted_settle(log: CommitLog) -> None:
            settle(log)
            self.settled += 1

        monkeypatch.setattr(CommitLog, "_put", counted_put)
        monkeypatch.setattr(CommitLog, "_switch", counted_switch)
        monkeypatch.setattr(CommitLog, "_catch_up", counted_settle)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def started(seed: int, fs: FaultFS, *, lags: bool = False) -> World:
    """A world whose log is in use."""
    world = BusyWorld(seed, fs, commit_log=SMALL_LOG)
    world.lags = lags
    world.open()
    for name in "ABC":
        world.storage.create_stream(name)
        world.streams[name] = world.model()
    for _ in range(SMALL_LOG.after + 2):
        for name in "ABC":
            world.append(name, 1)
        world.flush()
    assert fs.exists(LOG_FILES[0])
    return world


@pytest.mark.parametrize("block", range(6))
def test_nothing_is_lost_whenever_the_power_goes_while_the_log_is_in_use(
    block: int, watched: Watched
) -> None:
    for seed in range(block * SEEDS_PER_TEST, (block + 1) * SEEDS_PER_TEST):
        rng = random.Random(seed)
        world = started(seed, FaultFS(wholes=seed % 2 == 1), lags=seed % 3 == 0)
        for _ in range(4):
            faults: list[Fault] = ["crash", "crash after"]
            world.fs.fail(world.fs.operations + rng.randrange(1, 900), rng.choice(faults))
            live(world, 300)
            come_back(world, rng)
    assert watched.batches > 60 * SEEDS_PER_TEST
    assert watched.switches > 3 * SEEDS_PER_TEST
    assert watched.settled > 0


@pytest.mark.parametrize(("wholes", "lags"), [(False, False), (True, False), (False, True)])
def test_every_operation_while_the_log_goes_round_is_a_place_where_the_power_may_go(
    wholes: bool, lags: bool, watched: Watched
) -> None:
    def run(fs: FaultFS, fault_at: int = 0) -> World:
        world = started(5, fs, lags=lags)
        if fault_at:
            fs.fail(world.fs.operations + fault_at, "crash after" if fault_at % 2 else "crash")
        live(world, 120)
        return world

    idle = started(5, FaultFS(wholes=wholes)).fs.operations
    lived = run(FaultFS(wholes=wholes))
    assert watched.switches >= 3
    for number in some(range(1, lived.fs.operations - idle + 1), 11, 4 * wholes + 8 * lags):
        world = run(FaultFS(wholes=wholes), number)
        come_back(world, random.Random(number))


@pytest.mark.parametrize(("fault", "beginning"), [("eio", 0), ("enospc", 1), ("short", 2)])
def test_every_operation_may_be_refused_while_the_log_goes_round(
    fault: Fault, beginning: int
) -> None:
    idle = started(6, FaultFS()).fs.operations
    lived = started(6, FaultFS())
    live(lived, 60)
    for number in some(range(1, lived.fs.operations - idle + 1), 7, 2 * beginning):
        world = started(6, FaultFS())
        world.fs.fail(world.fs.operations + number, fault)
        try:
            live(world, 60)
        except StoreError:
            assert world.storage.failed is not None
        rng = random.Random(number)
        world.recover(world.fs.power_cut(rng) if number % 2 else world.fs.kill())
        world.check_open()


def test_a_bit_that_flips_in_the_log_costs_nothing_where_the_files_have_the_data() -> None:
    world = started(7, FaultFS())
    live(world, 40)
    found = world.fs.kill()
    rng = random.Random(1)
    for path in LOG_FILES:
        size = len(found.content(path))
        for _ in range(portion(300, 50)):
            damaged = found.kill()
            damaged._off = False
            damaged.flip_bit(path, rng.randrange(8 * size))
            twin = World(7, damaged)
            twin.streams, twin.acked_streams = dict(world.streams), dict(world.acked_streams)
            twin.meta_history, twin.meta_acked = world.meta_history, world.meta_acked
            twin.recover(damaged)


def test_a_damaged_batch_whose_data_is_nowhere_else_is_told_by_stream_and_sequence() -> None:
    fs = FaultFS()
    world = started(8, fs)
    for _ in range(6):
        world.append("A", 2)
        world.flush()
    # The power takes from the files all that was not synced.
    fs.lose_unsynced()
    for node in list(fs._handles.values()):
        node.content = bytearray(node.synced)
    found = fs.kill()
    path = next(path for path in LOG_FILES if found.content(path).strip(b"\0"))
    content = found.content(path)
    last = world.streams["A"].live[world.streams["A"].last - 3]
    at = content.find(last.payload) if len(last.payload) > 8 else content.find(last.subject)
    assert at > 0
    found.flip_bit(path, 8 * at)
    world.fs = found
    world.open()
    store = world.storage.open_stream("A")
    report = world.storage.report
    assert store.last_seq >= world.streams["A"].last
    lost = [finding for finding in report if finding.lost is not None]
    assert lost, report
    assert {finding.stream for finding in lost} == {"A"}
    told = {
        n for finding in lost if finding.lost for n in range(finding.lost[0], finding.lost[1] + 1)
    }
    held = {message.sequence for message in store.read(1, None, 1000, 1 << 30, 1 << 40)}
    assert told == set(world.streams["A"].live) - held
    assert [f"{p}" for p in found.files() if "quarantine" in p]


def test_a_clean_stop_leaves_no_log_and_the_format_that_earlier_versions_read() -> None:
    fs = FaultFS()
    world = started(9, fs)
    assert b"format 2" in fs.content("/store/format")
    world.flush()
    world.storage.close()
    assert b"format 1" in fs.content("/store/format")
    assert not [path for path in fs.files() if path.startswith("/store/commit-log/")]
    survivor = fs.power_cut(random.Random(1))
    world.recover(survivor)
    world.check_open()


def test_the_power_that_goes_while_a_crash_is_recovered_from_costs_nothing() -> None:
    for seed in range(portion(10, 5)):
        world = started(seed, FaultFS(wholes=seed % 2 == 1))
        live(world, 30)
        found = world.fs.power_cut(random.Random(seed))
        for number in some(range(1, 40), 3, seed):
            trial = found.kill()
            trial._off = False
            trial.fail(number, "crash after" if number % 2 else "crash")
            twin = BusyWorld(seed, trial)
            twin.streams, twin.acked_streams = dict(world.streams), dict(world.acked_streams)
            twin.meta_history, twin.meta_acked = world.meta_history, world.meta_acked
            try:
                twin.recover(trial)
            except PowerCut:
                twin.recover(trial.power_cut(random.Random(number)))
            twin.check_open()


def test_a_write_back_that_failed_makes_the_store_read_only_whoever_was_told_of_it() -> None:
    """The system tells of it once by the file and once by the whole file system, to whoever asks first."""
    stopped = 0
    for seed in range(portion(400, 100)):
        rng = random.Random(seed)
        world = started(seed, FaultFS(wholes=seed % 8 != 0), lags=seed % 3 == 0)
        try:
            for _ in range(3):
                for _ in range(rng.randrange(1, 40)):
                    world.step()
                segments = [path for path in world.fs.unsynced() if path.endswith(".seg")]
                if segments:
                    world.fs.fail_write_back(rng.choice(segments))
            for _ in range(rng.randrange(60)):
                world.step()
        except StoreError:
            assert world.storage.failed is not None
            stopped += 1
        world.recover(world.fs.power_cut(rng))
        world.check_open()
    assert stopped > 5
