"""Follows the documentation as a new user does: `python -m tests.pages.documentation [--bin DIR] [--port 9092] [PAGE…]`.

Each `sh` and `python` block of a page is run as it is printed, in order, in a new directory: shell blocks in one shell,
Python blocks in one interpreter, one with tests by pytest. A page that starts no broker gets the README's. Only the
address differs, unless --port is 9092, the data directory, and `pip install`, which is taken as done. Other blocks are
not run; NOT_RUN and RUN_BY say why. --bin names the directory with the commands, of a virtual environment for one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BROKER = "kafkaprod broker --data-dir /tmp/kafka --topic orders:3 &"
PATIENCE_S = 240.0

# Beginnings of the blocks that are not run.
NOT_RUN = {
    "python -m venv .venv && .venv/bin/pip install -e '.[load]'": "installs",
    "python -m venv .venv && .venv/bin/pip install -e '.[dev]'": "is the continuous integration",
    "pip install 'kafkaprod[spark]'": "installs",
    "pip install 'kafkaprod[load]' && kafkaprod quickstart": "installs",
    "token endpoint https://": "is an error",
    "kafkaprod load https://data.example.com/": "needs objects of other machines: tests/integration/test_load_addresses.py",
    "python -m pytest tests/spark": "tests and measurements, hours long",
    "spec:\n  terminationGracePeriodSeconds": "is a part of a Kubernetes manifest",
    "docker build -f docs/demo/Dockerfile": "needs an engine for containers",
    "[Unit]\nDescription=Orders": "is a unit of systemd",
    "# tasks.py\nfrom celery": "needs Celery",
    "from airflow": "needs Airflow",
    "from django.db": "needs Django",
    '-df.write.format("kafka")': "shows a change",
}

# Pages whose blocks another program runs.
RUN_BY = {"frameworks.md": "python -m tests.foreign.frameworks"}

_FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Said instead of looked for by the end of the output, which what a block leaves running in the background keeps open.
_DONE = "-- the block is done --"
_FAILED = "-- the block failed --"
_INTERPRETER = f"""\
import traceback
for path in iter(input, ""):
    try:
        with open(path) as file:
            exec(compile(file.read(), path, "exec"), globals())
    except BaseException:
        traceback.print_exc()
        print({_FAILED!r}, flush=True)
    else:
        print({_DONE!r}, flush=True)
"""
_SHELL = f"trap 'echo \"{_FAILED}\"' EXIT\nset -e\n"


@dataclass(frozen=True)
class Block:
    """A block of a page: its language, "" for none; the line of its fence."""

    line: int
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """All blocks with code, not those that Sphinx takes."""
    text = page.read_text(encoding="utf-8")
    found = [Block(text.count("\n", 0, m.start()) + 1, m[1], m[2]) for m in _FENCE.finditer(text)]
    return [block for block in found if not block.language.startswith("{")]


class Reader:
    """Somebody who follows a page.

    Args:
        directory: Where; must be empty.
        commands: Directory of the commands; in front of the path.
        port: Of the broker.
    """

    def __init__(self, directory: Path, commands: Path, port: int) -> None:
        self._directory = directory
        self._port = port
        self._environment = os.environ | {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
        self._shell = self._start("bash")
        self._python = self._start("python", "-c", _INTERPRETER)
        self.output = ""
        self._finish(self._shell, f"{_SHELL}echo '{_DONE}'\n")

    def _start(self, *command: str) -> subprocess.Popen[str]:
        path = self._environment["PATH"]
        program = next(found for part in path.split(os.pathsep) if (found := Path(part) / command[0]).exists())
        return subprocess.Popen(
            [str(program), *command[1:]],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, block: Block) -> None:
        """Run a block. Raises AssertionError if it fails."""
        text = self._adapted(block.text)
        if block.language == "sh":
            self._finish(self._shell, f"{text}\necho '{_DONE}'\n")
            if " &\n" in text:
                self._await_broker()
            return
        path = self._directory / f"block_{block.line}.py"
        path.write_text(text, encoding="utf-8")
        if "def test_" in text:
            self._finish(self._shell, f"python -m pytest -q {path.name}\necho '{_DONE}'\n")
        else:
            self._finish(self._python, f"{path}\n")

    def _adapted(self, text: str) -> str:
        if self._port != 9092:
            text = text.replace("localhost:9092", f"localhost:{self._port}")
            text = text.replace("kafkaprod broker ", f"kafkaprod broker --port {self._port} ")
        text = text.replace("/tmp/kafka", str(self._directory / "kafka"))
        return re.sub(r"^pip install", "echo installed:", text, flags=re.MULTILINE)

    def _finish(self, process: subprocess.Popen[str], what: str) -> None:
        """Give a process something to do and wait for its end."""
        assert process.stdin is not None
        assert process.stdout is not None
        alarm = signal.signal(signal.SIGALRM, _too_long)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
        shown: list[str] = []
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(what)
                process.stdin.flush()
            for line in process.stdout:
                # A library's thread may write half a line to stderr in front of it.
                if _DONE in line:
                    return
                if _FAILED in line:
                    break
                shown.append(line)
            raise AssertionError(f"it failed:\n{what}\n{''.join(shown)}")
        except TimeoutError as error:
            raise AssertionError(f"it takes longer than {PATIENCE_S} s:\n{what}\n{''.join(shown)}") from error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarm)
            self.output += "".join(shown)

    def _await_broker(self) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(OSError):
                socket.create_connection(("localhost", self._port), 1).close()
                return
            time.sleep(0.05)
        raise AssertionError("no broker listens")

    def close(self) -> None:
        """End everything that was started."""
        for process in (self._python, self._shell):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.communicate()


def follow(page: Path, directory: Path, commands: Path, port: int) -> str:
    """Run every block of a page; return what was printed. Raises AssertionError for one that fails."""
    todo = [block for block in blocks(page) if block.language in ("sh", "python")]
    if todo and not any("kafkaprod broker " in block.text for block in todo):
        todo.insert(0, Block(0, "sh", BROKER + "\n"))
    reader = Reader(directory, commands, port)
    try:
        for block in todo:
            reader.output += f"--- {page.name}, line {block.line}\n"
            reader.run(block)
    finally:
        reader.close()
    return reader.output


def unexplained(pages: Sequence[Path]) -> Iterator[str]:
    """Blocks that are neither run nor named in NOT_RUN."""
    for page in pages:
        for block in () if page.name in RUN_BY else blocks(page):
            if block.language not in ("sh", "python", "properties", "toml") and not any(
                map(block.text.startswith, NOT_RUN)
            ):
                yield f"{page.name}, line {block.line}"


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError


def main() -> None:
    """Follow pages and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.pages.documentation", description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES)
    parser.add_argument("--bin", type=Path, default=Path(sys.executable).parent)
    parser.add_argument("--port", type=int, default=9092)
    options = parser.parse_args()
    for page in options.pages:
        with tempfile.TemporaryDirectory() as directory:
            started = time.monotonic()
            print(follow(page, Path(directory), options.bin.absolute(), options.port), end="")
            print(f"=== {page.name}: followed to its end in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
