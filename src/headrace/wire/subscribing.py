"""Runs of SUB lines, read by one regular expression: who comes back subscribes to everything at once."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_PATTERNS_MAX: Final = 64
SUB_START: Final = b"SUB "


@lru_cache(maxsize=_PATTERNS_MAX)
def sub_pattern(token_max: int) -> re.Pattern[bytes]:
    """The expression for SUB lines in their usual form: its groups are the fields of the frame.

    Where no such line starts it matches all the rest, as the last field of a frame whose others are empty.
    So ``repeats.read_repeats`` reads with it.
    """
    token = rb"[!-\xff]{1,%d}+" % token_max  # without control characters: those go the general way
    line = rb"(?:(S)UB (%b) (?:(%b) )?|)" % (token, token)
    return re.compile(rb"%b((?(1)%b|.+))(?(1)\r\n)" % (line, token), re.DOTALL)
