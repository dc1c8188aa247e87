"""Look at transcripts: ``cd tests && python -m conformance [--only nats-server|headrace] [word …]``.

Without ``--only`` the differences are printed; with it, what that server said. Words select the
scenarios whose name contains one of them.
"""

from __future__ import annotations

import argparse
import difflib
import tempfile
from pathlib import Path

from conformance.pool import KINDS, Pool
from conformance.scenarios.everything import ALL


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    parser.add_argument("--only", choices=["nats-server", "headrace"])
    parser.add_argument("word", nargs="*")
    arguments = parser.parse_args()
    chosen = [s for s in ALL if not arguments.word or any(w in s.name for w in arguments.word)]
    different = 0
    with tempfile.TemporaryDirectory() as directory:
        pool = Pool(Path(directory))
        try:
            pool.play_ahead(chosen, [arguments.only] if arguments.only else KINDS)
            for scenario in chosen:
                if arguments.only:
                    lines = pool.transcript(arguments.only, scenario)
                else:
                    expected = pool.transcript("nats-server", scenario)
                    actual = pool.transcript("headrace", scenario)
                    diff = difflib.unified_diff(
                        expected, actual, "nats-server", "headrace", "", "", 4, ""
                    )
                    lines = list(diff)
                    different += bool(lines)
                if lines:
                    print(f"== {scenario.name}", *lines, sep="\n")
        finally:
            pool.close()
    if not arguments.only:
        print(f"{different} of {len(chosen)} scenarios differ")


if __name__ == "__main__":
    main()
