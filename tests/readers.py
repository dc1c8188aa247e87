"""A reader of the pages: types what stands there, in one folder, on terminals, and sees what appears."""

from __future__ import annotations

import ast
import os
import re
import sysconfig
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import peers
from guides import ROOT, text_of
from terminals import Terminal, python_prompt, shell

__all__ = ["Piece", "Reader", "pieces_of", "runs_of"]

_FENCED: Final = re.compile(r"(?ms)^```(\S*)\n(.*?)^```$")
_FILE: Final = re.compile(r"Write `([\w./-]+)`[^`\n]*:\n+$")
_SHOWN: Final = re.compile(r"(?m)# → (.*)$")
_PROGRAM: Final = re.compile(r"(?m)^python (examples/\w+\.py)(.*)$")
SHELLS: Final = ("", "sh")

_STAYS: Final = {
    "headrace serve ": "Server is ready",
    "headrace jobs serve": "listening on",
    "headrace console": "Ctrl-C ends it",
    "headrace events": "Ctrl-C ends it",
    "headrace sub": "Ctrl-C ends it",
    "headrace server top": "connections",
    "python examples/leader.py": "wrote report 1",
}
"""What runs until Ctrl-C, and what it shows when it is there."""

_SERVES: Final = ("headrace serve ", "headrace jobs serve")
"""What goes on running beside the pages."""

_FINDS: Final = {"headrace doctor": (0, 1)}
"""What ends with 1 where it has found something."""


class Piece(NamedTuple):
    """What stands between two fences of a page."""

    page: Path
    line: int
    language: str
    text: str
    file: str
    """The file that the sentence before it says to write."""

    @property
    def name(self) -> str:
        """Its first line, which is what it is listed by."""
        return self.text.strip().partition("\n")[0]

    @property
    def shown(self) -> list[str]:
        """What it says that is shown."""
        return _SHOWN.findall(self.text)


def pieces_of(page: Path) -> list[Piece]:
    """What is fenced on a page, with the files that it includes, but for lists of pages."""
    text = text_of(page)
    found = []
    for each in _FENCED.finditer(text):
        if not each[1].startswith("{"):
            file = _FILE.search(text, 0, each.start())
            name = file[1] if file else ""
            found.append(
                Piece(page, text.count("\n", 0, each.start(2)) + 1, each[1], each[2], name)
            )
    return found


def runs_of(piece: Piece) -> list[tuple[str, str]]:
    """How a program says that it is run: its file, and the line of a shell."""
    if piece.language != "python":
        return []
    told = ast.get_docstring(ast.parse(piece.text)) if piece.text.startswith('"""') else None
    return [(found[1], found[0].partition("   ")[0]) for found in _PROGRAM.finditer(told or "")]


class Reader:
    """Somebody with a folder and three terminals: one for Python, one for commands, one for a server.

    Attributes:
        again: whether a command is typed that the page has let type before.
    """

    def __init__(self, folder: Path, *, again: bool = True) -> None:
        self.folder = folder
        self.again = again
        self._stack = ExitStack()
        self._screens: list[Terminal] = []
        self._ports = {
            port: str(peers.free_port()) for port in ("4222", "8222", "8080", "8480", "8481")
        }
        scripts = sysconfig.get_path("scripts")
        self._environ = {
            **os.environ,
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder.parent),
            "NATS_URL": f"nats://127.0.0.1:{self._ports['4222']}",
            "PYTHONPATH": "",
        }

    def __enter__(self) -> Self:
        self._shell = self._open(shell(self.folder, self._environ))
        self._python: Terminal | None = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """Of the server that the pages start."""
        return self._environ["NATS_URL"]

    def screens(self) -> Iterator[str]:
        """All that was ever shown, by terminal."""
        for terminal in self._screens:
            yield terminal.screen

    def read(self, page: Path, without: Collection[str] = ()) -> None:
        """Type a page from top to bottom, but for the pieces and lines that begin so."""
        typed = set()
        for piece in pieces_of(page):
            where = f"{page.relative_to(ROOT)}, line {piece.line}"
            if piece.name in without:
                continue
            if piece.file:
                (self.folder / piece.file).write_text(self._here(piece.text))
            elif runs := runs_of(piece):
                for file, line in runs:
                    if line not in without:
                        self._run_program(piece, file, line, where)
            elif piece.language == "python":
                self._type_python(piece, where)
            else:
                assert piece.language in SHELLS, f"{where}: nobody types {piece.language}"
                for line in piece.text.replace("\\\n", " ").splitlines():
                    command = line.partition(" #")[0].strip()
                    if self.again or command not in typed:
                        self.type_command(command, where)
                    typed.add(command)
        if self._python is not None:
            self._python.close()
            self._python = None

    def _type_python(self, piece: Piece, where: str) -> None:
        if self._python is None:
            self._python = self._open(python_prompt(self.folder, self._environ))
        shown = []
        for line in [*self._here(piece.text).splitlines(), ""]:
            shown += self._python.type(line)
        self._compare(shown, piece.shown, where)

    def _run_program(self, piece: Piece, file: str, line: str, where: str) -> None:
        path = self.folder / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(self._here(piece.text))
        self.type_command(re.sub(r"\[(\S+)\]", r"\1", line).replace("/data/", "data-"), where)

    def type_command(self, line: str, where: str) -> list[str]:
        """Type a command; what it shows. What goes on running gets a terminal of its own."""
        if not line:
            return []
        command = self._here(line)
        words = next((words for words in _STAYS if line.startswith(words)), "")
        if line.startswith(_SERVES):
            self._open(shell(self.folder, self._environ)).send(command)
            self._screens[-1].wait_for(_STAYS[words])
            return []
        if words:
            self._shell.send(command)
            self._shell.wait_for(_STAYS[words])
            self._shell.interrupt()
            assert self._shell.status in (0, 130), f"{where}: {line}"
            return []
        shown = self._shell.type(command)
        while self._shell.status is None:  # it asks whether we really want it
            shown += self._shell.type("y")
        assert self._shell.status in _FINDS.get(line, (0,)), f"{where}: {line}\n" + "\n".join(shown)
        return shown

    def _compare(self, shown: list[str], said: list[str], where: str) -> None:
        """What a page says comes in that order; beside it the prompt shows values, each readable."""
        text = "\n".join(shown)
        assert "Traceback" not in text and "Error" not in text, f"{where}\n{text}"
        assert not re.search(r"<headrace.* object at 0x", text), (
            f"{where}: a value that says nothing\n{text}"
        )
        rest = iter(shown)
        missing = [line for line in said if line not in rest]
        assert not missing, f"{where}: {missing} is not shown, but\n{text}"

    def _here(self, text: str) -> str:
        """The same with ports of our own: those of the pages may be somebody's."""
        for port, ours in self._ports.items():
            text = re.sub(rf"(127\.0\.0\.1:|localhost:|-m |--port ){port}\b", rf"\g<1>{ours}", text)
        flags = {
            "headrace serve ": f" -p {self._ports['4222']}",
            "headrace jobs serve": f" --port {self._ports['8080']}",
            "headrace console": f" --port {self._ports['8480']}",
            "headrace server report": f" --monitor http://127.0.0.1:{self._ports['8222']}",
            "headrace server top": f" --monitor http://127.0.0.1:{self._ports['8222']}",
        }
        added = next((flags[words] for words in flags if text.startswith(words)), "")
        return text.rstrip("\n") + added

    def _open(self, terminal: Terminal) -> Terminal:
        self._stack.enter_context(terminal)
        self._screens.append(terminal)
        return terminal
