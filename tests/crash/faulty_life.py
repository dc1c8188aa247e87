"""A broker's life over a disk one call of which goes wrong, and what must be true when it is repaired.

The same seed plays the same life up to that call. From there on its clients only read and acknowledge,
whatever they are told; then the broker is started again on a sound disk, and what was confirmed before
has to be there: the ledgers of ``sim.whole`` judge.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from faultfs import FaultFS
from faultplan import FaultPoint, FaultyFiles
from headrace.errors import StoreError
from sim.whole.simulation import Simulation

__all__ = ["calls_of", "live_with"]

MOVES = (30, 14)
"""So many before a restart in the middle of the life, and after it."""
AFTERMATH = 12
RECOVERED = 12


def calls_of(seed: int) -> Counter[str]:
    """What a life without faults calls, by kind."""
    life = _Life(seed, ())
    life.live()
    return Counter(life.files.calls)


def live_with(seed: int, point: FaultPoint) -> None:
    """Live with one fault. Raises AssertionError with seed and fault."""
    life = _Life(seed, [point])
    try:
        life.live()
        assert life.files.hit == [point], "the call never came"
        life.survive_a_lie() if point.what == "lie" else life.repair()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {point}: {error}") from error


class _Life(Simulation):
    def __init__(self, seed: int, plan: list[FaultPoint] | tuple[()]) -> None:
        super().__init__(seed, FaultyFiles(FaultFS(wholes=seed % 2 == 1), plan))
        self._dice = random.Random(seed)
        self.stage.is_lied_to = any(point.what == "lie" for point in plan)
        self._is_sound = False
        self._lost: dict[str, set[int]] = {}  # what the store has said to have lost, by stream

    @property
    def files(self) -> FaultyFiles:
        files = self.plant.fs
        assert isinstance(files, FaultyFiles)
        return files

    def live(self) -> None:
        """Until the fault, and a little longer."""
        try:
            self.start()
            if self._moves(MOVES[0]):
                self.restart("kill")
                if not self.files.hit:
                    self._moves(MOVES[1])
        except StoreError:
            assert self.files.hit  # a start that is refused says so
        if self.files.hit:
            self._aftermath()

    def _reconcile(self) -> None:
        """A start that met the fault may be without what it could not read: the next one judges."""
        if self.files.hit and not self._is_sound:
            self.plant.is_up = False
        else:
            super()._reconcile()

    def _moves(self, count: int) -> bool:
        """False if the fault has come."""
        for _ in range(count):
            self.stage.loose = True  # from the very call on
            self.move()
            if self.files.hit:
                return False
        return True

    def _aftermath(self) -> None:
        """Clients that read and acknowledge, while nobody publishes or changes anything."""
        plant = self.plant
        if not plant.is_up or not self.stage.streams:
            return
        for _ in range(AFTERMATH):
            worker = self._dice.choice(self.workers)
            worker.act()
            worker.link.push()
            plant.tick()
            plant.commit()
            plant.complete()

    def restart(self, way: str) -> None:
        self._note_findings()
        super().restart(way)

    def _note_findings(self) -> None:
        if hasattr(self.plant, "storage"):
            for finding in self.plant.storage.report:
                if finding.lost is not None:
                    first, last = finding.lost
                    self._lost.setdefault(finding.stream, set()).update(range(first, last + 1))

    def named(self, name: str) -> set[int]:
        self._note_findings()
        return self._lost.get(name, set())

    def _read(self, name: str) -> tuple[list[Any], int]:
        """Once more, if it was this reading that the fault was for."""
        before = len(self.files.hit)
        try:
            found = super()._read(name)
        except (OSError, StoreError):
            assert len(self.files.hit) > before
        else:
            if len(self.files.hit) == before:
                return found
        return super()._read(name)

    def survive_a_lie(self) -> None:
        """A disk that says "synced" and is not may lose what was confirmed, but invents nothing."""
        self.files.heal()
        self.plant.lose_power()
        try:
            self.plant.boot()
        except StoreError as error:
            assert any(f"'{name}'" in str(error) for name in self.stage.streams), error
            return
        self.plant.settle()
        assert self.plant.hub.engine is not None
        for name in self.plant.hub.engine.registry.streams:
            known = (self.stage.streams.get(name), self.stage.former.get(name))
            lives = [ledger for ledger in known if ledger is not None]
            for message in self._read(name)[0] if name not in "MT" else ():
                shown = (message.subject, message.payload)
                records = [life.every.get(message.sequence) for life in lives]
                assert any(r and (r.subject, r.payload) == shown for r in records), (
                    f"{name} {message.sequence}: never published"
                )

    def repair(self) -> None:
        """Start again on a sound disk; everything confirmed is there, and work goes on."""
        self.files.heal()
        self._is_sound = True
        self.stage.loose = False
        if not self.stage.streams:
            self.plant.die()
            self.start()
            self._moves(MOVES[0])
        self.restart(self._dice.choice(("kill", "cut")))
        self.go(RECOVERED)
        self.finish()
