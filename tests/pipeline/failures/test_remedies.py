"""What helps against a failure beside its own sentence: the command to type, the disk that is full."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.identity import Sameness
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.failures.causes import FULL_BYTES, Cause, remedy
from headrace.spark.offsets import Offset, StreamHead, refusal, reset_of

from ..conftest import ORDERS


def test_a_new_checkpoint_is_a_command_to_type(write: Callable[..., Path]) -> None:
    declared = read(write(ORDERS))
    out = declared.sinks["out"]
    lost = Cause("mistake", "messages were removed. Start again with a new checkpoint")
    command = f"headrace pipeline reset {declared.file} --query out --to earliest"
    assert remedy(declared, out, lost) == f"the command: {command}"
    assert remedy(declared, out, Cause("other", "ValueError: boom")) == ""


def test_a_stream_that_is_not_the_same_has_an_option_and_not_a_command_that_reads_all_again(
    write: Callable[..., Path],
) -> None:
    declared = read(write(ORDERS))
    offset = Offset(5, "2026-01-01T00:00:00Z", stored_ns=1)
    head = StreamHead("2026-01-02T00:00:00Z", 1, 4, 4, 400)
    for same in (Sameness.OTHER, Sameness.GONE):
        error = refusal(reset_of(offset, head, "ORDERS", same), offset, same)
        said = remedy(declared, declared.sinks["out"], Cause("mistake", str(error)))
        assert said.endswith('among the options of its source: onStreamReset = "continue"')
    error = refusal("it ends", offset._replace(stored_ns=0), Sameness.OTHER)
    said = remedy(declared, declared.sinks["out"], Cause("mistake", str(error)))
    assert said.startswith("the command: headrace pipeline reset")


def test_a_full_disk_is_named_by_its_directory(write: Callable[..., Path], tmp_path: Path) -> None:
    declared = read(write(ORDERS))
    full = Cause("other", "no space is left on the disk")

    def free(folder: Path) -> int:
        return FULL_BYTES - 1 if folder == tmp_path / "out" else FULL_BYTES

    assert remedy(declared, declared.sinks["out"], full, free) == f"full are: {tmp_path}/out"
    assert remedy(declared, declared.sinks["out"], full, lambda folder: FULL_BYTES) == ""
    named = Cause("other", "no space is left on the disk of /data/x")
    assert remedy(declared, declared.sinks["out"], named, free) == ""
