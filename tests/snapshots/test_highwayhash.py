"""HighwayHash against the golden values its authors publish."""

from __future__ import annotations

from headrace.snapshots.records import HighwayHash

KEY = bytes(range(32))
GOLDEN = {  # by size: of the bytes 0, 1, 2, …
    0: "536ec222de567a90",
    1: "78ddcdc7aa43ab7e",
    2: "623db5b09a56d0b8",
    3: "803d468aabef6b5c",
    4: "da7e009368a405f2",
    15: "3bf349a4863f7940",
    16: "32b87ef98934abcf",
    17: "e2c0c5c8d267fe19",
    31: "685a03cf7c00c79f",
    32: "fc80d5ecd964c9a0",
    33: "fc8131a03cf7902c",
    39: "dc973f0cf9f250a1",
}


def test_golden_values() -> None:
    hashes = HighwayHash(KEY)
    for size, digest in GOLDEN.items():
        assert hashes.digest(bytes(range(size))).hex() == digest, size
