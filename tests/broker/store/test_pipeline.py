"""Flushes under way while more is staged, some refused: what the owner sees at every moment."""

from __future__ import annotations

import copy
import errno
import random
from typing import Any

import pytest

from faultfs import Fault, FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.commit.commit import Batch, Chore, is_small
from headrace.errors import StoreFullError
from headrace.message import StoredMessage
from portions import portion

BIG = 1 << 40
Streams = dict[str, tuple[int, dict[int, StoredMessage]]]  # last sequence, live messages


class CrampedFS(FaultFS):
    """A disk that has no room now and then; it can always sync and free space."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self.share = 0.0

    def _step(self, what: str, about: str) -> Fault | None:
        if what in {"write", "allocate", "create", "mkdir"} and self._rng.random() < self.share:
            raise OSError(errno.ENOSPC, "No space left on device", about)
        return super()._step(what, about)


class Owner:
    """Uses a store as the broker does, with a commit thread that runs only when told."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.fs = CrampedFS(self.rng)
        self.storage = FileStorage("/s", fs=self.fs, segment_bytes=8192, cache_bytes=2000)
        self.committer = self.storage._committer
        by_hand = self.committer._queue.append  # in place of the thread
        self.committer.submit = self.submit  # type: ignore[method-assign]
        self.storage._cache.chore = self.storage._cache.compactor._submit = by_hand
        self.staged: Streams = {}
        self.acked: Streams = {}
        self.epoch = 0
        self.poisoned = False
        self.dirty = False
        self.outcomes: list[tuple[int, Exception | None]] = []
        self.flushes = 0
        self.own = 0
        self.stamp = 0

    def submit(self, item: Batch | Chore) -> None:
        """Now and then what is small is committed at once, as on a quick disk."""
        committer = self.committer
        if not isinstance(item, Batch) or committer._queue or self.rng.random() < 0.1:
            committer._queue.append(item)
        elif is_small(item):
            self.own += 1
            committer._commit_as_owner(item)
        else:
            committer._queue.append(item)

    def commit(self) -> None:
        """The commit thread does one round."""
        items = self.committer._next_group()
        if items:
            self.committer._run(items)

    def complete(self) -> None:
        self.storage.complete()

    def flush(self) -> None:
        number, self.flushes = self.flushes, self.flushes + 1
        epoch: int | None = self.epoch
        if self.poisoned:
            self.staged, self.poisoned, epoch = copy.deepcopy(self.acked), False, None
        snapshot = copy.deepcopy(self.staged)
        stores = {} if epoch is None else {n: self.storage.open_stream(n) for n in snapshot}
        self.dirty = False

        def done(error: Exception | None) -> None:
            self.outcomes.append((number, error))
            assert error is None or isinstance(error, StoreFullError)
            if error is None:
                assert epoch == self.epoch
                self.acked = snapshot
                assert all(stores[name].durable_seq >= last for name, (last, _) in snapshot.items())
            elif epoch == self.epoch:
                self.epoch += 1
                self.poisoned, self.dirty = self.dirty, False
                self.staged = copy.deepcopy(self.acked)

        self.storage.flush(done)

    def change(self) -> None:
        name = self.rng.choice("AB")
        if name not in self.staged:
            if name in self.acked or self.storage.pending_flushes:
                return  # deleting and making again in one flush is two commits
            self.dirty = True
            self.storage.create_stream(name, memory=name == "B" and self.rng.random() < 0.5)
            self.staged[name] = (0, {})
            return
        self.dirty = True
        store = self.storage.open_stream(name)
        last, live = self.staged[name]
        kind = self.rng.random()
        if kind < 0.6:
            for _ in range(self.rng.randrange(1, 8)):
                last += 1
                self.stamp += 1
                message = StoredMessage(last, b"s", b"", bytes(self.rng.randrange(900)), self.stamp)
                assert store.append(b"s", b"", message.payload, self.stamp) == last
                live[last] = message
        elif kind < 0.8:
            chosen = [self.rng.randrange(1, last + 2) for _ in range(4)]
            assert store.remove(chosen) == sum(live.pop(s, None) is not None for s in chosen)
        elif kind < 0.97:
            keep = self.rng.randrange(1, 30)
            gone = sorted(live)[: max(0, len(live) - keep)]
            assert store.trim(max_messages=keep) == len(gone)
            for sequence in gone:
                del live[sequence]
        else:
            self.storage.delete_stream(name)
            del self.staged[name]
        if name in self.staged:
            self.staged[name] = (last, live)

    def check(self) -> None:
        assert self.storage.streams() == sorted(self.staged)
        for name, (last, live) in self.staged.items():
            store = self.storage.open_stream(name)
            assert store.last_seq == last
            assert store.read(1, None, BIG, BIG, BIG) == [live[s] for s in sorted(live)]
            assert store.subject(b"s") == ((min(live), max(live), len(live)) if live else None)


@pytest.mark.parametrize("block", range(4))
def test_the_owner_sees_what_was_staged_and_after_a_refusal_what_was_acknowledged(
    block: Any,
) -> None:
    refused = own = 0
    for seed in range(block * 40, block * 40 + portion(40, 12)):
        owner = Owner(seed)
        owner.flush()
        while owner.storage.pending_flushes:
            owner.commit()
            owner.complete()
        for _ in range(250):
            owner.fs.share = 0.1 if owner.rng.random() < 0.2 else 0.0
            act = owner.rng.random()
            if act < 0.45:
                owner.change()
            elif act < 0.65:
                owner.flush()
            elif act < 0.8:
                owner.commit()
            else:
                owner.complete()
            if owner.rng.random() < 0.2:
                owner.check()
        owner.fs.share = 0.0
        for _ in range(3):
            owner.flush()
            while owner.storage.pending_flushes:
                owner.commit()
                owner.complete()
        owner.check()
        assert [number for number, _ in owner.outcomes] == list(range(owner.flushes))
        assert owner.outcomes[-1][1] is None
        refused += sum(error is not None for _, error in owner.outcomes)
        own += owner.own
        again = FileStorage("/s", fs=owner.fs.kill(), segment_bytes=8192, threaded=False)
        for name in again.streams():
            last, live = owner.acked[name]
            store = again.open_stream(name)
            assert store.last_seq == last
            assert store.read(1, None, BIG, BIG, BIG) == [live[s] for s in sorted(live)]
        assert again.report == []
    assert refused > portion(50, 15)
    assert own > portion(8, 2)
