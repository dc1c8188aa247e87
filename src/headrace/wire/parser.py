"""The parser of the NATS client protocol: bytes in, frames out, for either end.

``Parser.for_server()`` reads the input of a server, ``Parser.for_client()`` that of a client. There is no
I/O here: the owner of the socket passes chunks, cut anywhere, and gets the frames they complete.

One loop goes over a chunk. A message line in its usual form (upper-case verb, single spaces) is read in
place. Anything else, and every error, goes through ``_read_line``, which accepts what nats-server accepts:
verbs in any case, tabs and several spaces, ``\\n`` for ``\\r\\n`` after a line (not after a payload).
Messages that repeat the shape of the previous one are read by an expression made for that shape (see
``repeats``), and those that differ from it only in size by another (``varied``); SUB lines behind one another
by a third (``subscribing``). Bytes of an incomplete frame are kept, with the size at which another attempt is
worthwhile. So a payload that arrives in many chunks is copied once and not parsed repeatedly.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Final, NamedTuple

from ..errors import LimitExceededError, ProtocolError
from ..limits import CONTROL_LINE_BYTES_MAX, PAYLOAD_BYTES_MAX
from .frames import BAD, CONNECT, ERR, INFO, MSG, OK, PING, PONG, PUB, SUB, UNSUB, Frame
from .repeats import (
    REPEATED_PAYLOAD_BYTES_MAX,
    RUN_MIN,
    SUB_START,
    read_repeats,
    read_varied,
    repeat_pattern,
    sub_pattern,
    varied_pattern,
)

_FROM_SERVER_LINE_BYTES_MAX: Final = 64 * 1024  # INFO lists the servers of a cluster
_FROM_SERVER_PAYLOAD_BYTES_MAX: Final = 64 * 1024 * 1024  # the highest setting of a nats-server
_VERB_BYTES_MAX: Final = 8  # b"CONNECT "
_SIZE_DIGITS_MAX: Final = 9  # as nats-server
_SIZES_BYTES_MAX: Final = 2 * (_SIZE_DIGITS_MAX + 1) + 2  # in a line with headers, and a line end
_SIZES_MAX: Final = 16_384  # beyond this size the tables are cleared
_SNIPPET_BYTES: Final = 64
_APART_BYTES_MIN: Final = 96 * 1024  # of so many, those that complete a frame are read apart
_SHAPES_MAX: Final = 32  # for so many a parser has expressions; others take the general way

_MESSAGES: Final = frozenset((PUB, MSG))


class _Verb(NamedTuple):
    """How a line of one kind starts, and which fields it has."""

    stem: bytes  # the start of the line, in upper case; a trailing space is required
    op: bytes
    fields: int = 0  # the minimum number of fields, the verb included; one more is optional
    has_headers: bool = False


_FROM_CLIENTS: Final = (
    _Verb(b"PUB ", PUB, 3),
    _Verb(b"HPUB ", PUB, 4, True),
    _Verb(b"SUB ", SUB, 3),
    _Verb(b"UNSUB ", UNSUB, 2),
    _Verb(b"PING", PING),
    _Verb(b"PONG", PONG),
    _Verb(b"CONNECT", CONNECT),
)
_FROM_SERVERS: Final = (
    _Verb(b"MSG ", MSG, 4),
    _Verb(b"HMSG ", MSG, 5, True),
    _Verb(b"PING", PING),
    _Verb(b"PONG", PONG),
    _Verb(b"+OK", OK),
    _Verb(b"-ERR ", ERR),
    _Verb(b"INFO", INFO),
)

# Sizes by their tokens: one look-up instead of checking and converting the digits of every message. All
# parsers share it, because the meaning of a token never changes. The total size ends a line, so its token
# may include the b"\r"; that of the header block must not.
_total_sizes: Final[dict[bytes, int]] = {}
_header_sizes: Final[dict[bytes, int]] = {}


class Parser:
    """A parser for one direction of one connection. Not thread-safe.

    ``feed`` never raises for input from a peer. On an error the last frame is ``(BAD, error)``, with the
    server's answer in ``error.wire_text``, and the parser ignores all further input.

    Attributes:
        max_payload: the largest header block plus payload accepted, in bytes. May be changed between two
            calls, as a client does after INFO.
        max_control_line: the longest line accepted, in bytes, without its verb and line end.
        message_bytes: header blocks and payloads of all messages read so far.
        frames_max: after so many frames a call may leave the others to the next one, which may have no
            data of its own. Then ``is_behind`` is true.
    """

    __slots__ = (
        "_deaf", "_held", "_messages", "_needed", "_patterns", "_verbs", "frames_max", "is_behind",
        "max_control_line", "max_payload", "message_bytes",
    )  # fmt: skip

    def __init__(self, verbs: tuple[_Verb, ...], max_payload: int, max_control_line: int) -> None:
        self.max_payload = max_payload
        self.max_control_line = max_control_line
        self.message_bytes = 0
        self.frames_max = sys.maxsize
        self.is_behind = False
        self._verbs = verbs
        self._messages = {verb.stem.rstrip(): verb for verb in verbs if verb.op in _MESSAGES}
        self._held = bytearray()
        self._needed = 0
        self._patterns: dict[tuple[bytes, bool, tuple[bytes, ...]], re.Pattern[bytes]] = {}
        self._deaf = False

    @classmethod
    def for_server(
        cls, *, max_payload: int = PAYLOAD_BYTES_MAX, max_control_line: int = CONTROL_LINE_BYTES_MAX
    ) -> Parser:
        """A parser for input from clients."""
        return cls(_FROM_CLIENTS, max_payload, max_control_line)

    @classmethod
    def for_client(
        cls,
        *,
        max_payload: int = _FROM_SERVER_PAYLOAD_BYTES_MAX,
        max_control_line: int = _FROM_SERVER_LINE_BYTES_MAX,
    ) -> Parser:
        """A parser for input from servers.

        The limits are generous: a server may add headers to a message of the size that INFO allows.
        """
        return cls(_FROM_SERVERS, max_payload, max_control_line)

    @property
    def held_bytes(self) -> int:
        """How many bytes of an incomplete frame are kept: less than one frame."""
        return len(self._held)

    def give_up(self) -> bytes:
        """The bytes of an incomplete frame, which the parser forgets: its owner reads on and feeds them."""
        held = bytes(self._held)
        self._held.clear()
        self.is_behind = False
        return held

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """The frames that ``data`` completes, in order."""
        frames: list[Frame] = []
        if self._deaf:
            return frames
        buf, at = bytes(data), 0  # no copy when it is bytes already
        held = self._held
        try:
            while held and len(buf) - at >= _APART_BYTES_MIN and not self.is_behind:
                at = self._complete(buf, at, frames)
            if held:
                held += buf[at:]
                if len(held) < self._needed:
                    return frames
                buf, at = bytes(held), 0
                held.clear()
            self._read(buf, at, frames)
        except ProtocolError as error:
            self._deaf = True
            # Its traceback leads to these frames: with it they would be freed by the garbage collector only.
            frames.append((BAD, error.with_traceback(None)))
        return frames

    def _complete(self, buf: bytes, at: int, frames: list[Frame]) -> int:
        """Bring the incomplete frame forward by as much of ``buf[at:]`` as is its; return where that ends.

        It is read apart from what follows, so that this need not be copied with it.
        """
        missing = self._needed - len(self._held)
        stop = at + missing if missing > 1 else buf.find(b"\n", at) + 1 or len(buf)
        self._held += buf[at:stop]
        if len(self._held) >= self._needed:
            whole = bytes(self._held)
            self._held.clear()
            self._read(whole, 0, frames)
        return min(stop, len(buf))

    def _read(self, buf: bytes, start: int, frames: list[Frame]) -> None:
        """Append the complete frames of ``buf[start:]``, and hold the incomplete rest."""
        self.is_behind = False
        end = self._scan(buf, start, frames)
        if end < len(buf):
            self._held += memoryview(buf)[end:]

    def _scan(self, buf: bytes, pos: int, frames: list[Frame]) -> int:
        """Append the complete frames of ``buf[pos:]``; return where the incomplete rest starts."""
        end = len(buf)
        verbs, max_payload, most = self._messages, self.max_payload, self.frames_max
        last_size = last_header_size = b""  # as written, of the previous message
        alike: tuple[_Verb, int] | None = None  # the kind of the previous message without headers
        varied = True  # whether runs of messages of any size are looked for
        while pos < end:
            if len(frames) >= most:
                self.is_behind, self._needed = True, 0
                return pos
            eol = buf.find(b"\n", pos)
            if eol < 0:
                self._check_start(buf, pos)
                return pos
            line = buf[pos:eol]
            args: list[Any] = line.split(b" ")  # becomes the frame
            verb = verbs.get(args[0])
            if verb is not None:
                _, op, fields, has_headers = verb
                extra = len(args) - fields
                if extra == 0 or extra == 1:
                    size_token = args.pop()
                    size = _total_sizes.get(size_token, -1)
                    middle = body = eol + 1
                    header_size = b""
                    if has_headers:
                        header_size = args.pop()
                        middle += _header_sizes.get(header_size, max_payload + 1)
                    stop = body + size
                    after = stop + 2
                    if (
                        0 <= size <= max_payload
                        and middle <= stop
                        and after <= end
                        and buf[stop:after] == b"\r\n"
                        and eol - pos <= self.max_control_line
                        and b"" not in args
                        and b"\t" not in line
                    ):
                        args[0] = op
                        if not extra:
                            args.append(b"")
                        args.append(buf[body:middle])
                        args.append(buf[middle:stop])
                        frames.append(tuple(args))
                        self.message_bytes += size
                        pos = after
                        if pos == end:  # alone, or the last one: nothing can be like it
                            return pos
                        if size_token != last_size or header_size != last_header_size:
                            last_size, last_header_size = size_token, header_size
                        else:
                            sizes = (header_size, size_token) if has_headers else (size_token,)
                            pos = self._read_repeats(buf, pos, verb, extra == 1, sizes, frames)
                            last_size = b""
                        if has_headers:
                            alike = None
                        elif alike != (verb, extra):
                            alike = (verb, extra)
                        elif varied and pos < end:
                            before = len(frames)
                            pos = self._read_varied(buf, pos, verb, extra == 1, frames)
                            varied = len(frames) - before >= RUN_MIN
                        continue
            after = self._read_line(buf, pos, eol, frames)
            if after < 0:
                return pos
            pos = after
        return pos

    def _read_subs(self, buf: bytes, pos: int, frames: list[Frame]) -> int:
        """Read the SUB lines at ``pos``, if some are there; return where they end."""
        token_max = self.max_control_line // 4
        if not (token_max and buf.startswith(SUB_START, pos)):
            return pos
        return read_repeats(sub_pattern(token_max), buf, pos, 0, frames)

    def _read_repeats(
        self,
        buf: bytes,
        pos: int,
        verb: _Verb,
        has_reply: bool,
        sizes: tuple[bytes, ...],
        frames: list[Frame],
    ) -> int:
        """Read the messages at ``pos`` that have the shape of the previous one; return where they end."""
        key = (verb.stem, has_reply, sizes)
        pattern = self._patterns.get(key)
        size = _total_sizes[sizes[-1]]
        if pattern is None:
            token_max = (self.max_control_line - _SIZES_BYTES_MAX) // 4
            if (
                len(self._patterns) >= _SHAPES_MAX
                or size > REPEATED_PAYLOAD_BYTES_MAX
                or token_max < 1
            ):
                return pos
            headers = _header_sizes[sizes[0]] if verb.has_headers else 0
            fields = verb.fields - 1 - len(sizes)
            word = verb.stem.rstrip()
            pattern = self._patterns[key] = repeat_pattern(
                word, fields, has_reply, sizes, headers, size - headers, token_max
            )
        before = len(frames)
        end = read_repeats(pattern, buf, pos, size, frames)
        self.message_bytes += size * (len(frames) - before)
        return end

    def _read_varied(
        self, buf: bytes, pos: int, verb: _Verb, has_reply: bool, frames: list[Frame]
    ) -> int:
        """Read the messages of this kind at ``pos``, whatever their sizes; return where they end."""
        token_max = (self.max_control_line - _SIZES_BYTES_MAX) // 4
        if token_max < 1:
            return pos
        word = verb.stem.rstrip()
        pattern = varied_pattern(word, verb.fields - 2, has_reply, token_max)
        before = len(frames)
        end = read_varied(pattern, buf, pos, self.max_payload, frames)
        self.message_bytes += sum([len(frame[-1]) for frame in frames[before:]])
        return end

    def _check_start(self, buf: bytes, pos: int) -> None:
        """Check the start of an incomplete line.

        A start that cannot become a valid line is rejected now. So at most the longest line is kept.
        """
        word = buf[pos : pos + _VERB_BYTES_MAX].upper().replace(b"\t", b" ")
        for verb in self._verbs:
            if word.startswith(verb.stem) or verb.stem.startswith(word):
                break
        else:
            raise _unknown_operation(buf[pos:])
        length = len(buf) - pos
        if length - buf.endswith(b"\r") > self.max_control_line + _VERB_BYTES_MAX:
            raise self._line_too_long()
        self._needed = length + 1

    def _read_line(self, buf: bytes, pos: int, eol: int, frames: list[Frame]) -> int:
        """Read the line in ``buf[pos:eol]`` in any accepted form, and its payload if it has one.

        Returns where the next frame starts, or -1 if the payload is incomplete. Raises ProtocolError for
        invalid input.
        """
        line = buf[pos:eol]
        if line.endswith(b"\r"):
            line = line[:-1]
        word = line[:_VERB_BYTES_MAX].upper().replace(b"\t", b" ")
        for verb in self._verbs:
            if word.startswith(verb.stem):
                break
        else:
            raise _unknown_operation(line)
        text = line[len(verb.stem) :].strip(b" \t")
        if max(len(text), len(line) - _VERB_BYTES_MAX) > self.max_control_line:
            raise self._line_too_long()
        if not verb.fields:
            frames.append(_bare_frame(verb.op, text))
            return eol + 1
        args = [arg for arg in text.replace(b"\t", b" ").split(b" ") if arg]
        extra = len(args) - verb.fields + 1
        if extra not in (0, 1):
            least = verb.fields - 1
            accepted = f"{least} or {least + 1} are accepted"
            raise _bad_arguments(line, f"{len(args)} arguments, {accepted},")
        if verb.op not in _MESSAGES:
            frames.append(_subscription_frame(verb.op, args))
            return self._read_subs(buf, eol + 1, frames) if verb.op == SUB else eol + 1
        size = self._size(args.pop(), line)
        header_size = _number(args.pop()) if verb.has_headers else 0
        if not 0 <= header_size <= size:
            raise _bad_arguments(line, "the header size is not a number up to the total size")
        body = eol + 1
        middle = body + header_size
        stop = body + size
        after = stop + 2
        if after > len(buf):
            self._needed = after - pos
            return -1
        if buf[stop:after] != b"\r\n":
            raise ProtocolError(f"no CR LF after the payload of {_snippet(line)}")
        if not extra:
            args.append(b"")
        frames.append((verb.op, *args, buf[body:middle], buf[middle:stop]))
        self.message_bytes += size
        return after

    def _size(self, token: bytes, line: bytes) -> int:
        """The total size that ends a message line, checked against the limit."""
        size = _number(token)
        if size < 0:
            raise _bad_arguments(line, "the size is not a number")
        if size > self.max_payload:
            raise LimitExceededError(
                f"a payload of {size} bytes, accepted are at most {self.max_payload}",
                wire_text="Maximum Payload Violation",
            )
        return size

    def _line_too_long(self) -> LimitExceededError:
        return LimitExceededError(
            f"a control line longer than {self.max_control_line} bytes",
            wire_text="maximum control line exceeded",
        )


def _bare_frame(op: bytes, text: bytes) -> Frame:
    """The frame of a line that is not divided into fields; ``text`` is the part after the verb."""
    if op in (CONNECT, INFO):
        return (op, text)
    if op == ERR:
        quoted = len(text) > 1 and text.startswith(b"'") and text.endswith(b"'")
        return (op, (text[1:-1] if quoted else text).decode(errors="replace"))
    return (op,)  # PING, PONG, +OK: like nats-server, ignore the text after the verb


def _subscription_frame(op: bytes, args: list[bytes]) -> Frame:
    """SUB or UNSUB."""
    if op == SUB:
        return (SUB, args[0], args[1] if len(args) == 3 else b"", args[-1])
    # As in nats-server, a maximum that is not a number means now.
    return (UNSUB, args[0], max(0, _number(args[1])) if len(args) == 2 else 0)


def _number(token: bytes) -> int:
    """A decimal number of at most nine digits, or -1."""
    if not token.isdigit() or len(token) > _SIZE_DIGITS_MAX:
        return -1
    if len(_total_sizes) >= _SIZES_MAX:
        _total_sizes.clear()
        _header_sizes.clear()
    number = int(token)
    _header_sizes[token] = _total_sizes[token] = _total_sizes[token + b"\r"] = number
    return number


def _snippet(line: bytes) -> str:
    return repr(line[:_SNIPPET_BYTES])[1:] + ("…" if len(line) > _SNIPPET_BYTES else "")


def _unknown_operation(line: bytes) -> ProtocolError:
    return ProtocolError(f"unknown protocol operation in {_snippet(line)}")


def _bad_arguments(line: bytes, what: str) -> ProtocolError:
    return ProtocolError(f"{what} in {_snippet(line)}", wire_text="Parser Error")
