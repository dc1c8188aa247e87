"""Inputs for the fuzzers: entries of a small corpus, with accidents. Seeded, so that each is found again."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Check", "Target", "mutated"]

Check = Callable[[bytes, random.Random], None]
"""Raises if what is fuzzed does not do with an input what it promises."""


@dataclass(frozen=True)
class Target:
    """A parser: good inputs, pieces that mean something to it, and what it promises."""

    name: str
    corpus: Sequence[bytes]
    tokens: Sequence[bytes]
    check: Check
    joined_max: int = 3
    """How many entries of the corpus may stand in a row."""


def mutated(target: Target, rng: random.Random) -> bytes:
    """Some corpus entries in a row, with a few small accidents."""
    count = rng.randint(1, target.joined_max)
    data = bytearray(b"".join(rng.choices(target.corpus, k=count)))
    for _ in range(rng.choice((0, 1, 1, 2, 4, 8))):
        at = rng.randrange(len(data) + 1)
        until = min(len(data), at + rng.choice((0, 0, 1, 1, 2, 16)))
        accident = rng.randrange(6)
        if accident == 0:
            data[at:until] = rng.choice(target.tokens)
        elif accident == 1:
            data[at:until] = rng.randbytes(rng.randint(0, 3))
        elif accident == 2:
            del data[at:until]
        elif accident == 3:
            data[at:at] = data[at:until]
        elif accident == 4 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        else:
            data[at:] = data[at : rng.randint(at, len(data))]
    return bytes(data)
