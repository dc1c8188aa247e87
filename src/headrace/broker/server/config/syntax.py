"""The configuration syntax of nats-server: text in, values with their places out.

Follows ``conf/lex.go`` and ``conf/parse.go`` of nats-server: ``key: value``, ``key = value`` and
``key value``; maps ``{}``, arrays ``[]``, comments ``#`` and ``//``; strings in either quotes, in
none, or as a block between ``(`` and a line of ``)``; numbers with sizes (``k`` is 1000, ``kb`` 1024);
``true``, ``yes``, ``on``; ``include 'file'``; ``$NAME`` for an earlier key or the environment.

Pure: files are read by the function handed in.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ....errors import ConfigurationError

DEPTH_MAX: Final = 64  # maps and arrays in each other, and includes: deeper is an error

_WORD_END: Final = " \t\r\n;,]}"
_BLANKS: Final = " \t\r"
_SWITCHES: Final = {
    "true": True, "yes": True, "on": True, "false": False, "no": False, "off": False,
}  # fmt: skip
_SIZES: Final = {
    letter + unit: base**power
    for power, letter in enumerate("kmgtpe", 1)
    for unit, base in (("", 1000), ("b", 1024), ("i", 1024), ("ib", 1024))
}
_NUMBER: Final = re.compile(r"(-?\d+)([a-z]*)", re.IGNORECASE)
_FLOAT: Final = re.compile(r"-?\d+\.\d+")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_BCRYPT: Final = "$2a$"  # nats-server: a password and not a variable


class ConfigPlace(msgspec.Struct, frozen=True):
    """Where something stands; lines and columns count from 1, 0 is unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class ConfigMap(dict[str, "ConfigValue"]):
    """A map by key. ``repeated`` has the places of keys that replaced an earlier one in this map."""

    def __init__(self) -> None:
        super().__init__()
        self.repeated: list[tuple[str, ConfigPlace]] = []


@dataclass(slots=True)
class ConfigValue:
    """A value and the place of its key (in an array: its own).

    ``content`` is a str, bool, int, float, list of ConfigValue or ConfigMap. ``text`` is a bare
    value as it was written, such as ``10k``. ``is_variable`` becomes true when ``$KEY`` used it.
    """

    content: object
    place: ConfigPlace
    text: str = ""
    is_variable: bool = field(default=False, compare=False)


def parse_config(
    text: str, file: str, environ: Mapping[str, str], read: Callable[[str, str], tuple[str, str]]
) -> ConfigMap:
    """The top-level map of ``text``.

    ``read(name, including_file)`` gives the name and the text of an included file, and raises OSError
    if there is none. Raises ConfigurationError with file, line and column.
    """
    return _Parser(text, file, environ, read, (file,), ()).document()


@dataclass
class _Parser:
    """One file. A recursive descent with one position."""

    text: str
    file: str
    environ: Mapping[str, str]
    read: Callable[[str, str], tuple[str, str]]
    including: tuple[str, ...]
    looking_up: tuple[str, ...]
    at: int = 0
    depth: int = 0

    def __post_init__(self) -> None:
        self.scopes: list[ConfigMap] = []
        self.newlines = [found.start() for found in re.finditer("\n", self.text)]

    # Documents, maps, arrays

    def document(self) -> ConfigMap:
        self.skip(newlines=True)
        braces = self.peek() == "{"  # JSON is a configuration, too
        document = ConfigMap()
        if braces:
            self.at += 1
        self.entries(document, "}" if braces else "")
        self.skip(newlines=True)
        if self.at < len(self.text):
            raise self.error(f"{self.peek()!r} after the end of the map; nothing may follow")
        return document

    def entries(self, target: ConfigMap, end: str) -> None:
        """Read keys and values into ``target`` until ``end`` (empty: the end of the file)."""
        opened = self.at
        self.scopes.append(target)
        while True:
            self.skip(newlines=True, also=",;")
            if self.at >= len(self.text):
                if end:
                    raise self.error("'{' is never closed; a map ends with '}'", opened - 1)
                break
            if self.peek() == end:
                self.at += 1
                break
            self.entry(target)
        self.scopes.pop()

    def entry(self, target: ConfigMap) -> None:
        start = self.at
        place = self.place(start)
        key, quoted = self.key()
        if key.lower() == "include" and not quoted:
            self.skip()
            if self.peek() not in ":=":
                self.include(target, start)
                return
        self.skip(newlines=True)
        if self.peek() and self.peek() in ":=":
            self.at += 1
            self.skip(newlines=True)
        if self.at >= len(self.text) or self.peek() in ",;]}":
            raise self.error(f"{key!r} has no value", start)
        value = self.value(place)
        self.set(target, key, value)
        self.end_of_value()

    @staticmethod
    def set(target: ConfigMap, key: str, value: ConfigValue) -> None:
        before = target.get(key)
        if before is not None and before.place.file == value.place.file:
            target.repeated.append((key, value.place))
        target[key] = value

    def key(self) -> tuple[str, bool]:
        start = self.at
        if self.peek() in "\"'":
            return self.quoted(), True
        while self.at < len(self.text) and self.text[self.at] not in _BLANKS + "\n:={":
            if self.text[self.at] in "}],;\"'[":
                raise self.error(f"{self.peek()!r} in a key; a key is a word, or stands in quotes")
            self.at += 1
        if self.at == start:
            raise self.error(f"{self.peek()!r} where a key was expected")
        return self.text[start : self.at], False

    def end_of_value(self) -> None:
        self.skip()
        if self.at < len(self.text) and self.peek() not in "\n,;]}":
            raise self.error(
                f"{self.peek()!r} after a value; a value ends with the line, ',' or ';', "
                "and a text with blanks stands in quotes"
            )

    def include(self, target: ConfigMap, start: int) -> None:
        name = self.quoted() if self.peek() in "\"'" else self.word()
        if not name:
            raise self.error("include needs the name of a file", start)
        if len(self.including) >= DEPTH_MAX:
            raise self.error(f"include {name!r}: more than {DEPTH_MAX} files in each other", start)
        try:
            file, text = self.read(name, self.file)
        except OSError as error:
            raise self.error(
                f"include {name!r}: cannot read it: {error.strerror}", start
            ) from error
        except UnicodeDecodeError as error:
            raise self.error(f"include {name!r}: not UTF-8: {error}", start) from error
        except ValueError as error:
            raise self.error(f"include {name!r}: not the name of a file: {error}", start) from error
        if file in self.including:
            raise self.error(f"include {name!r}: the file includes itself", start)
        inner = _Parser(text, file, self.environ, self.read, (*self.including, file), ())
        included = inner.document()
        target.repeated += included.repeated
        for key, value in included.items():
            self.set(target, key, value)
        self.end_of_value()

    # Values

    def value(self, place: ConfigPlace) -> ConfigValue:
        character = self.peek()
        if character in "{[":
            self.depth += 1
            if self.depth > DEPTH_MAX:
                raise self.error(f"more than {DEPTH_MAX} maps and arrays in each other")
            self.at += 1
            content = self.map() if character == "{" else self.array()
            self.depth -= 1
            return ConfigValue(content, place)
        if character in "\"'":
            return ConfigValue(self.quoted(), place)
        if character == "(":
            return ConfigValue(self.block(), place)
        return self.bare(place)

    def map(self) -> ConfigMap:
        inner = ConfigMap()
        self.entries(inner, "}")
        return inner

    def array(self) -> list[ConfigValue]:
        opened = self.at - 1
        values: list[ConfigValue] = []
        while True:
            self.skip(newlines=True, also=",")
            if self.at >= len(self.text):
                raise self.error("'[' is never closed; an array ends with ']'", opened)
            if self.peek() == "]":
                self.at += 1
                return values
            values.append(self.value(self.place(self.at)))
            self.end_of_value()

    def block(self) -> str:
        """The lines between ``(`` and a line with nothing but ``)``."""
        opened = self.at
        end = re.compile(r"^[ \t]*\)[ \t\r]*$", re.MULTILINE).search(self.text, self.at + 1)
        if end is None:
            raise self.error(
                "'(' is never closed; a block ends with ')' on a line of its own", opened
            )
        block = self.text[self.at + 1 : end.start()]
        self.at = end.end()
        return block

    def quoted(self) -> str:
        opened = self.at
        quote = self.peek()
        self.at += 1
        parts: list[str] = []
        while True:
            if self.at >= len(self.text):
                raise self.error(f"{quote} is never closed", opened)
            character = self.text[self.at]
            self.at += 1
            if character == quote:
                return "".join(parts)
            if character == "\\" and quote == '"':
                character = self.escape()
            parts.append(character)

    def escape(self) -> str:
        start = self.at - 1
        letter = self.peek()
        self.at += 1
        if letter == "x":
            digits = self.text[self.at : self.at + 2]
            if re.fullmatch("[0-9a-fA-F]{2}", digits):
                self.at += 2
                return chr(int(digits, 16))
        elif letter in _ESCAPES and letter:
            return _ESCAPES[letter]
        raise self.error(
            f'unknown escape \\{letter}; accepted are \\xHH, \\t, \\n, \\r, \\" and \\\\', start
        )

    def word(self) -> str:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in _WORD_END:
            self.at += 1
        return self.text[start : self.at]

    def bare(self, place: ConfigPlace) -> ConfigValue:
        start = self.at
        word = self.word()
        if not word:
            raise self.error(f"{self.peek()!r} where a value was expected")
        if word.startswith("$") and len(word) > 1 and not word.startswith(_BCRYPT):
            return self.variable(word[1:], place, start)
        switch = _SWITCHES.get(word.lower())
        if switch is not None:
            return ConfigValue(switch, place, word)
        if _FLOAT.fullmatch(word):
            return ConfigValue(float(word), place, word)
        number = _NUMBER.fullmatch(word)
        if number is not None and len(word) <= 40:
            size = _SIZES.get(number[2].lower()) if number[2] else 1
            if size is not None:
                return ConfigValue(int(number[1]) * size, place, word)
        return ConfigValue(word, place, word)

    def variable(self, name: str, place: ConfigPlace, start: int) -> ConfigValue:
        for scope in reversed(self.scopes):
            found = scope.get(name)
            if found is not None:
                found.is_variable = True
                return ConfigValue(found.content, place, found.text)
        text = self.environ.get(name)
        if text is None:
            raise self.error(
                f"${name}: neither a key above it nor a variable of the environment", start
            )
        if name in self.looking_up:
            raise self.error(f"${name}: the variable of the environment names itself", start)
        inner = _Parser(text, f"${name}", self.environ, self.read, (), (*self.looking_up, name))
        inner.skip()
        if inner.at >= len(text):
            raise self.error(f"${name}: the variable of the environment is empty", start)
        value = inner.value(place)
        inner.skip(newlines=True)
        if inner.at < len(text):
            raise self.error(f"${name}: the variable of the environment is not one value", start)
        return value

    # Characters

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def skip(self, *, newlines: bool = False, also: str = "") -> None:
        """Pass over blanks and comments; a comment ends before its newline."""
        passed = _BLANKS + also + ("\n" if newlines else "")
        text = self.text
        while self.at < len(text):
            if text[self.at] in passed:
                self.at += 1
            elif text[self.at] == "#" or text.startswith("//", self.at):
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                return

    def place(self, at: int) -> ConfigPlace:
        line = bisect_left(self.newlines, at)
        return ConfigPlace(self.file, line + 1, at - (self.newlines[line - 1] if line else -1))

    def error(self, what: str, at: int | None = None) -> ConfigurationError:
        return ConfigurationError(f"{self.place(self.at if at is None else at)}: {what}")
