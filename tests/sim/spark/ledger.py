"""What was published, and what must have come of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

__all__ = ["Ledger"]

_DATA = 1  # the column of the payload


class Ledger:
    """Knows every message by its payload.

    Attributes:
        lives: how often the source was made again.
        is_recut: a batch ran again in other partitions.
        batch: the one whose tasks run now.
        blind: batches that were planned while the server was away, at least once.
    """

    def __init__(self, delivery: str) -> None:
        self.delivery = delivery
        self.lives = 0
        self.is_recut = False
        self.batch = -1
        self._unsure_through = -1
        self._good: list[bytes] = []
        self._bad: list[bytes] = []
        self._may_be_absent: set[bytes] = set()
        self._numbers = 0
        self._seen: dict[object, list[Any]] = {}
        self._payloads: dict[int, set[bytes]] = {}
        self._torn: set[int] = set()
        self.blind: set[int] = set()

    def publish(self, good: bool, size: int) -> bytes:
        """The payload of a message that makes a row, or does not."""
        self._numbers += 1
        payload = b"%d:%d:" % (self.lives, self._numbers) + b"x" * size
        (self._good if good else self._bad).append(payload)
        return payload

    def source_is_reset(self) -> None:
        """What was not read of the old stream is gone."""
        self.lives += 1
        self._may_be_absent.update(self._good, self._bad)
        self._unsure_through = self.batch

    def target_is_reset(self) -> None:
        """What was written is gone; what was not is to come, and the batch under way may be either."""
        self._may_be_absent.update(self._good)
        self._torn.add(self.batch)

    def compare(self, batch: int, key: object, seen: list[Any]) -> None:
        """Rows of one partition of a batch: the same whenever it runs, unless its stream was made again."""
        if batch <= self._unsure_through:
            return
        rows = [row for each in seen for row in zip(*each.to_pydict().values(), strict=True)]
        self._payloads.setdefault(batch, set()).update(row[_DATA] for row in rows)
        assert self._seen.setdefault((batch, key), rows) == rows, (
            f"{key} of batch {batch} has other rows than before"
        )

    def judge(self, rows: list[bytes], letters: list[bytes] | None) -> None:
        """Raise AssertionError unless each good message made a row as often as promised."""
        counts = Counter(rows)
        strange = counts.keys() - set(self._good)
        assert not strange, f"rows that nobody published: {sorted(strange)[:3]}"
        missing = [each for each in self._good if each not in counts]
        lost = [each for each in missing if each not in self._may_be_absent]
        assert not lost, f"{len(lost)} rows are lost, the first is {lost[0]!r}"
        if self.delivery == "exactlyOnce" or (self.delivery == "dedupe" and not self.is_recut):
            doubled = [each for each, count in counts.items() if count > 1]
            assert not doubled, f"{len(doubled)} rows are doubled, one is {doubled[0]!r}"
        if self.delivery == "exactlyOnce":
            self._judge_torn(set(counts))
        if letters is not None:
            dead = set(letters)
            gone = [e for e in self._bad if e not in self._may_be_absent and e not in dead]
            assert not gone, f"no dead letter for {gone[0]!r}"

    def judge_keys(self, last: dict[str, bytes], key_of: Callable[[bytes], str]) -> None:
        """Raise AssertionError unless each key has its last good message, or one after the last sure one."""
        keys: dict[str, list[bytes]] = {}
        for payload in self._good:
            keys.setdefault(key_of(payload), []).append(payload)
        strange = last.keys() - keys.keys()
        assert not strange, f"keys that nobody published: {sorted(strange)}"
        for key, each in keys.items():
            sure = [at for at, payload in enumerate(each) if payload not in self._may_be_absent]
            if not sure:
                continue
            assert key in last, f"key {key!r} has no value"
            found = each.index(last[key]) if last[key] in each else -1
            assert found >= sure[-1], (
                f"key {key!r} ends with {last[key]!r}, which is number {found + 1} of {len(each)}"
            )

    def _judge_torn(self, there: set[bytes]) -> None:
        """A stream that was made again has a batch whole, or nothing of it."""
        for batch in self._torn - self.blind:
            if batch <= self._unsure_through:
                continue
            rows = self._payloads.get(batch, set()) & set(self._good)
            part = rows & there
            assert not part or part == rows, (
                f"{len(part)} of {len(rows)} rows of batch {batch} are in the stream that was made again"
            )
