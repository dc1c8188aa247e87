"""Subjects made of columns: ``orders.{region}.{id}``. Pure, except that Arrow does the work."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

_PART: Final = re.compile(r"\{([^{}]+)\}|([{}])")

PART_OF_LEVEL: Final = r"^[^\s.*>\x00-\x1f\x7f]+$"
"""What a column may put in a template: part of one token, so that nobody's value leads somewhere else."""


PART_OF_KEY: Final = r"^[-/_=A-Za-z0-9]+$"
"""What a column may be of a bucket's key, beside others."""

WHOLE_KEY: Final = r"^[-/_=A-Za-z0-9]+(\.[-/_=A-Za-z0-9]+)*$"
"""What a column may be that is the whole key."""

_COMPLAINTS: Final = {
    PART_OF_LEVEL: (
        "a column of its subject is null, empty, or no part of a token (blanks, '.', '*', '>')"
    ),
    PART_OF_KEY: (
        "a column of its key is null, empty, or has other characters than letters, digits, '-', '/', '_' and "
        "'='"
    ),
    WHOLE_KEY: (
        "its key is null, empty, or no key of a bucket: letters, digits, '-', '/', '_', '=', and '.' in "
        "between"
    ),
}


class TemplateError(ValueError):
    """A template is malformed; the text says how."""


class Template(NamedTuple):
    """A subject with columns in it: ``parts`` are text and, at odd places, names of columns."""

    parts: tuple[str, ...]
    fits: str = PART_OF_LEVEL
    """The expression for what a column may put in."""

    @classmethod
    def of_bucket(cls, bucket: str, columns: Sequence[str]) -> Template:
        """The subjects of a bucket's keys, of these columns."""
        parts = [f"$KV.{bucket}."]
        for column in columns:
            parts += [column, "."]
        parts[-1] = ""
        return cls(tuple(parts), WHOLE_KEY if len(columns) == 1 else PART_OF_KEY)

    @classmethod
    def parse(cls, text: str) -> Template:
        """Read ``orders.{region}.{id}``. Raises TemplateError."""
        parts, at = [], 0
        for found in _PART.finditer(text):
            if found[2]:
                raise TemplateError(f"{found[2]!r} at {found.start() + 1} has no counterpart")
            parts += [text[at : found.start()], found[1].strip()]
            at = found.end()
        return cls((*parts, text[at:]))

    @property
    def complaint(self) -> str:
        """What is wrong where a row has no subject."""
        return _COMPLAINTS[self.fits]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in it, in order."""
        return self.parts[1::2]

    @property
    def literal(self) -> str | None:
        """The subject, if no column is in it."""
        return self.parts[0] if len(self.parts) == 1 else None

    def example(self) -> str:
        """A subject as it makes them, for checks of what is around the columns."""
        return "".join("x" if index % 2 else part for index, part in enumerate(self.parts))

    def pattern(self) -> str:
        """A pattern that every subject of it matches: a token with a column in it is a wildcard."""
        marked = "".join("{" if index % 2 else part for index, part in enumerate(self.parts))
        several = ">" if self.fits == WHOLE_KEY else "*"
        return ".".join(several if "{" in token else token for token in marked.split("."))

    def render(self, batch: pa.RecordBatch) -> pa.Array:
        """The subjects of a batch's rows; null where a value is null or is no part of a token."""
        import pyarrow as pa
        import pyarrow.compute as pc

        pieces: list[Any] = []
        for index, part in enumerate(self.parts):
            if index % 2 == 0:
                pieces.append(pa.scalar(part, pa.string()))
                continue
            column = batch.column(batch.schema.get_field_index(part))
            text = pc.cast(column, pa.string())
            fits = pc.match_substring_regex(text, self.fits)
            pieces.append(pc.if_else(fits, text, pa.scalar(None, pa.string())))
        return pc.binary_join_element_wise(*pieces, "", null_handling="emit_null")
