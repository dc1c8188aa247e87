"""Subject transforms: from a source pattern to a destination with functions, as in NATS.

A destination token is literal text, ``$i`` (short for ``{{wildcard(i)}}``), or one of these, in any case:

============================  ===================================================================
``{{wildcard(i)}}``           the i-th ``*`` of the source, counted from 1
``{{partition(n[,i…])}}``     FNV-1a of those tokens (of the whole subject without any) modulo n
``{{random(n)}}``             a random number below n
``{{split(i,sep)}}``          the token cut at each separator
``{{splitFromLeft(i,n)}}``    the token cut in two, n bytes from the left
``{{splitFromRight(i,n)}}``   the token cut in two, n bytes from the right
``{{sliceFromLeft(i,n)}}``    the token cut into pieces of n bytes, the rest at the right
``{{sliceFromRight(i,n)}}``   the token cut into pieces of n bytes, the rest at the left
``{{left(i,n)}}``             the first n bytes of the token
``{{right(i,n)}}``            the last n bytes of the token
============================  ===================================================================

A token too short to cut, and an n of 0, leave it whole. ``>`` at the end stands for the rest; source
and destination must both have it, or neither. Index 0 means the first token of the subject, as in
nats-server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final, NoReturn, final

from .errors import InvalidSubjectError
from .subjects import SubjectFilter, check_pattern, is_valid_subject

__all__ = ["SubjectTransform", "fnv1a_32", "partition"]

_REMEMBERED_SUBJECTS: Final = 32_768
_INT_MAX: Final = 2**31 - 1

_FUNCTION: Final = re.compile(rb"\{\{\s*([a-zA-Z]+)\s*\((.*)\)\s*\}\}", re.DOTALL)
_COMMA: Final = re.compile(rb",\s*")

_Part = Callable[[Sequence[bytes]], bytes]
"""Makes one destination token from the tokens of a subject."""


@final
class SubjectTransform:
    """A compiled transform.

    Args:
        src: the pattern of subjects it applies to; ``b""`` means ``>``.
        dest: the destination.
        random: ``random(n)`` gives a number in ``[0, n)``; needed if ``dest`` uses ``random``.

    Raises:
        InvalidSubjectError: ``src`` or ``dest`` is malformed, or they do not fit each other.
    """

    __slots__ = ("apply", "dest", "src")

    apply: Callable[[bytes], bytes | None]
    """``apply(subject)``: the new subject, or None.

    Returns None if ``src`` does not match, or if the result would not be a valid subject (a token was
    cut to nothing). Results are cached for the last subjects, unless they are random.
    """

    def __init__(
        self, src: bytes, dest: bytes, *, random: Callable[[int], int] | None = None
    ) -> None:
        self.src = check_pattern(src or b">")
        self.dest = dest
        compiler = _Compiler(self.src, dest, random)
        matches = SubjectFilter([self.src]).matches
        check = is_valid_subject if compiler.may_vanish else None
        transform = partial(_transform, matches, compiler.parts, check)
        self.apply = transform if compiler.is_random else lru_cache(_REMEMBERED_SUBJECTS)(transform)

    def __repr__(self) -> str:
        return f"SubjectTransform({self.src!r}, {self.dest!r})"


def _transform(
    matches: Callable[[bytes], bool],
    parts: Sequence[_Part],
    check: Callable[[bytes], bool] | None,
    subject: bytes,
) -> bytes | None:
    if not matches(subject):
        return None
    tokens = subject.split(b".")
    result = b".".join([part(tokens) for part in parts])
    return result if check is None or check(result) else None


class _Compiler:
    """Turns a destination into parts; exists only while a transform is built."""

    def __init__(self, src: bytes, dest: bytes, random: Callable[[int], int] | None) -> None:
        self._dest = dest
        self._random = random
        self.is_random = False
        self.may_vanish = False  # a token may be cut down to nothing
        source = src.split(b".")
        self._stars = [position for position, token in enumerate(source) if token == b"*"]
        self._is_literal = not self._stars and source[-1] != b">"
        tokens = dest.split(b".")
        if (source[-1] == b">") != (tokens[-1] == b">"):
            self._refuse("source and destination must both end in `>`, or neither")
        rest = tokens.pop() if tokens[-1] == b">" else None
        self.parts = [self._part(token) for token in tokens]
        if rest is not None:
            self.parts.append(partial(_rest, len(source) - 1))

    def _part(self, token: bytes) -> _Part:
        if token[:1] == b"$" and token[1:].isdigit():
            return partial(_wildcard, self._position(token, token[1:]))
        if token.startswith(b"{{") and token.endswith(b"}}"):
            return self._function(token)
        if not is_valid_subject(token):
            self._refuse(f"{_shown(token)} is not a valid token")
        return partial(_constant, token)

    def _function(self, token: bytes) -> _Part:
        call = _FUNCTION.fullmatch(token)
        name = call.group(1).lower() if call else b""
        args = [arg.strip(b" ") for arg in _COMMA.split(call.group(2))] if call else []
        if name == b"partition":
            n, *indexes = args
            count = self._number(token, n)
            if self._is_literal:
                indexes = []  # as nats-server: without wildcards the whole subject is hashed
            positions = tuple(self._position(token, index) for index in indexes)
            return partial(_partition, count, positions)
        if name == b"random":
            return self._random_part(token, args)
        if name == b"wildcard":
            self._expect(token, args, 1)
            return partial(_wildcard, self._position(token, args[0]))
        if name == b"split":
            self._expect(token, args, 2)
            if not args[1] or b" " in args[1]:
                self._refuse(f"{_shown(token)} needs a separator without spaces")
            self.may_vanish = True
            return partial(_split, self._position(token, args[0]), args[1])
        cut = _CUTS.get(name)
        if cut is None:
            self._refuse(f"{_shown(token)} is not a known function: accepted are {_NAMES}")
        self._expect(token, args, 2)
        return partial(cut, self._position(token, args[0]), self._number(token, args[1]))

    def _random_part(self, token: bytes, args: list[bytes]) -> _Part:
        self._expect(token, args, 1)
        if self._random is None:
            self._refuse(f"{_shown(token)} needs a source of randomness, none was given")
        self.is_random = True
        n, random = self._number(token, args[0]), self._random
        return lambda tokens: b"%d" % random(n) if n else b"0"

    def _expect(self, token: bytes, args: list[bytes], count: int) -> None:
        if len(args) != count:
            self._refuse(f"{_shown(token)} takes {count} argument(s), {len(args)} given")

    def _number(self, token: bytes, arg: bytes) -> int:
        if not arg.isdigit() or int(arg) > _INT_MAX:
            self._refuse(f"{_shown(token)}: {_shown(arg)} is not a number from 0 to {_INT_MAX}")
        return int(arg)

    def _position(self, token: bytes, arg: bytes) -> int:
        """The number of the subject token that the wildcard with this index stands for."""
        index, last = self._number(token, arg), len(self._stars)
        if index > last or self._is_literal:
            self._refuse(f"{_shown(token)}: wildcard {index} of {last} in the source")
        return self._stars[index - 1] if index else 0

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidSubjectError(f"transform destination {_shown(self._dest)}: {what}")


def _constant(text: bytes, tokens: Sequence[bytes]) -> bytes:
    return text


def _rest(start: int, tokens: Sequence[bytes]) -> bytes:
    return b".".join(tokens[start:])


def _wildcard(at: int, tokens: Sequence[bytes]) -> bytes:
    return tokens[at]


def _partition(n: int, positions: tuple[int, ...], tokens: Sequence[bytes]) -> bytes:
    key = b"".join([tokens[at] for at in positions]) if positions else b".".join(tokens)
    return b"%d" % partition(key, n)


def _split(at: int, separator: bytes, tokens: Sequence[bytes]) -> bytes:
    return b".".join([piece for piece in tokens[at].split(separator) if piece])


def _split_from_left(at: int, n: int, tokens: Sequence[bytes]) -> bytes:
    token = tokens[at]
    return token[:n] + b"." + token[n:] if 0 < n < len(token) else token


def _split_from_right(at: int, n: int, tokens: Sequence[bytes]) -> bytes:
    token = tokens[at]
    return token[:-n] + b"." + token[-n:] if 0 < n < len(token) else token


def _slice_from_left(at: int, n: int, tokens: Sequence[bytes]) -> bytes:
    token = tokens[at]
    if not 0 < n < len(token):
        return token
    return b".".join([token[start : start + n] for start in range(0, len(token), n)])


def _slice_from_right(at: int, n: int, tokens: Sequence[bytes]) -> bytes:
    token = tokens[at]
    if not 0 < n < len(token):
        return token
    head = len(token) % n
    pieces = [token[start : start + n] for start in range(head, len(token), n)]
    return b".".join([token[:head], *pieces] if head else pieces)


def _left(at: int, n: int, tokens: Sequence[bytes]) -> bytes:
    return tokens[at][: n or None]


def _right(at: int, n: int, tokens: Sequence[bytes]) -> bytes:
    return tokens[at][-n:]


_CUTS: Final[dict[bytes, Callable[[int, int, Sequence[bytes]], bytes]]] = {
    b"splitfromleft": _split_from_left,
    b"splitfromright": _split_from_right,
    b"slicefromleft": _slice_from_left,
    b"slicefromright": _slice_from_right,
    b"left": _left,
    b"right": _right,
}
_NAMES: Final = (
    "wildcard, partition, random, split, splitFromLeft, splitFromRight, sliceFromLeft, "
    "sliceFromRight, left, right"
)


def _shown(raw: bytes) -> str:
    return repr(raw.decode(errors="backslashreplace"))


def fnv1a_32(data: bytes) -> int:
    """The 32-bit FNV-1a hash."""
    value = 2166136261
    for byte in data:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


@lru_cache(maxsize=65_536)
def partition(tokens: bytes, n: int) -> int:
    """The partition in ``[0, n)`` that NATS's ``partition()`` assigns to the concatenated ``tokens``.

    Tokens are joined without a separator; in a whole subject the dots count. ``n`` of 0 gives 0.
    """
    return fnv1a_32(tokens) % n if n else 0
