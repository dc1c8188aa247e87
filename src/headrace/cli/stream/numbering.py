"""How a stream numbers its subjects: it puts a partition before each, as static groups need it. Pure."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Final

from ...api.streams import StreamConfig, SubjectTransformConfig
from ...errors import HeadraceError
from ...subjects import matches

_NUMBERED: Final = re.compile(
    r"\{\{\s*partition\(\s*(?P<count>\d+)\s*(?P<key>(?:,\s*\d+\s*)+)?\)\s*\}\}\.(?P<rest>.+)"
)


class RepartitionError(HeadraceError):
    """The stream cannot be given other partitions, or not so."""


@dataclass(frozen=True, slots=True)
class Numbering:
    """How a stream numbers its subjects: the partition, a dot, and the subject as it was published."""

    count: int
    key: tuple[int, ...]
    src: str

    def transform(self, count: int) -> SubjectTransformConfig:
        """What numbers subjects as they are published."""
        return SubjectTransformConfig(src=self.src, dest=self._dest(count, 0))

    def renumbering(self, count: int) -> SubjectTransformConfig:
        """What gives stored subjects another number: the present one is their first wildcard."""
        return SubjectTransformConfig(src=self.stored, dest=self._dest(count, 1))

    @property
    def stored(self) -> str:
        """The pattern of stored subjects."""
        return f"*.{self.src}"

    def published(self, subject: str) -> str:
        """How a message was published that is stored with this subject."""
        _, _, rest = subject.partition(".")
        return rest if matches(self.stored.encode(), subject.encode()) else subject

    def _dest(self, count: int, shift: int) -> str:
        key = ",".join(str(each + shift) for each in self.key)
        return f"{{{{partition({count},{key})}}}}.{_replayed(self.src, shift)}"


def _replayed(src: str, shift: int) -> str:
    """A pattern as the destination that leaves its subjects as they are."""
    numbers = itertools.count(shift + 1)
    return ".".join(
        f"{{{{wildcard({next(numbers)})}}}}" if each == "*" else each for each in src.split(".")
    )


def numbering_of(config: StreamConfig) -> Numbering:
    """How the stream numbers its subjects. Raises RepartitionError: it does not, or in another form."""
    transform = config.subject_transform
    form = "'{{partition(4,1)}}.' and the subject, as static groups need it"
    if transform is None or not transform.src or not transform.dest:
        raise RepartitionError(
            f"stream {config.name} puts no partition before its subjects; what can be changed is a "
            f"subject_transform to {form}"
        )
    found = _NUMBERED.fullmatch(transform.dest)
    plain = (
        None
        if found is None
        else re.sub(r"\{\{\s*(\w+)\(\s*(\d+)\s*\)\s*\}\}", r"{{\1(\2)}}", found["rest"])
    )
    if found is None or plain != _replayed(transform.src, 0):
        raise RepartitionError(
            f"stream {config.name} makes {transform.dest!r} of {transform.src!r}; what can be "
            f"changed is {form}"
        )
    if not found["key"]:
        raise RepartitionError(
            f"stream {config.name} takes the whole subject as the key ({transform.dest!r}), which is not "
            "there alone any more once it is stored; its messages can only be published again"
        )
    key = tuple(int(each) for each in found["key"].split(",") if each.strip())
    return Numbering(int(found["count"]), key, transform.src)
