"""Ctrl-C on a terminal: the load ends at once, says what it did, and goes on later."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import delay
from kafkaprod.loader.positions.in_flight import InFlight, SentBlock
from kafkaprod.loader.positions.manifest import Position
from kafkaprod.protocol.api_keys import ApiKey
from tests.support.loader.load_rig import LoadRig

LINES = [b"line %d" % i for i in range(100_000)]
PATIENCE_S = 30.0


class Terminal:
    """A command with a terminal of its own; what it prints is kept."""

    def __init__(self, command: list[str], columns: int = 120) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)
        self.shown = b""
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65_536)
            except OSError:  # the other side is closed
                return
            with self._news:
                self.shown += data
                self._news.notify_all()

    def wait_for(self, text: bytes) -> None:
        """Return when the text was printed."""
        with self._news:
            assert self._news.wait_for(lambda: text in self.shown, PATIENCE_S), self.shown.decode()

    def interrupt(self, number: int = signal.SIGINT) -> tuple[int, float]:
        """Send Ctrl-C or another signal; return the exit code and the seconds that it took."""
        started = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        return code, time.monotonic() - started

    def close(self) -> None:
        """End the command."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        os.close(self._master)


@pytest.fixture
def in_file(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_bytes(b"\n".join(LINES))
    return path


def test_a_ctrl_c_that_meets_the_manifest_half_changed_leaves_the_file_as_it_was(
    embedded_broker: EmbeddedBroker, tmp_path: Path, in_file: Path, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name)
    rig.create(1)
    advance = InFlight._advance
    settled: list[SentBlock] = []

    def advance_or_not(self: InFlight, head: SentBlock, position: Position) -> None:
        settled.append(head)
        if len(settled) == 3:  # it is no longer in flight, and its rows are not counted yet
            raise KeyboardInterrupt
        advance(self, head, position)

    monkeypatch.setattr("kafkaprod.loader.formats.text.PIECE_BYTES", 50_000)
    monkeypatch.setattr(InFlight, "_advance", advance_or_not)
    interrupted = rig.run(str(in_file))
    assert interrupted.code == 130, interrupted.err
    monkeypatch.setattr(InFlight, "_advance", advance)
    assert rig.run(str(in_file), "--resume").code == 0
    assert rig.values() == LINES


@pytest.mark.parametrize("columns", [0, 1, 200])
def test_a_terminal_of_any_width_shows_how_a_load_goes_on(
    embedded_broker: EmbeddedBroker, tmp_path: Path, in_file: Path, topic_name: str, columns: int
) -> None:
    rig = LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name)
    command = rig.command(str(in_file), "--create-topic", "1")
    command.remove("-q")
    terminal = Terminal(command, columns)
    try:
        assert terminal.process.wait(PATIENCE_S) == 0, terminal.shown
        terminal.wait_for(b"100,000 records")
    finally:
        terminal.close()
    assert b"Traceback" not in terminal.shown


@pytest.mark.parametrize(
    ("does_broker_answer", "number", "expected"),
    [(True, signal.SIGINT, 130), (False, signal.SIGINT, 130), (True, signal.SIGTERM, 143)],
)
def test_a_signal_ends_a_load_quietly_and_it_can_be_continued(
    tmp_path: Path, in_file: Path, does_broker_answer: bool, number: int, expected: int
) -> None:
    path = in_file
    with EmbeddedBroker(tmp_path / "data", topics={"t": 2}) as broker:
        rig = LoadRig(broker.bootstrap_servers, tmp_path / "state", "t")
        if not does_broker_answer:
            broker.faults.on(ApiKey.PRODUCE, delay(60_000))
        command = rig.command(str(path), "--rate", "10000", "-X", "linger.ms=0")
        command.remove("-q")
        terminal = Terminal(command)
        try:
            terminal.wait_for(b" records/s")
            code, seconds = terminal.interrupt(number)
        finally:
            terminal.close()
        shown = terminal.shown.decode()
        assert code == expected, shown
        assert seconds < 9, shown  # 10 s would be given to the broker if nobody waited
        assert "Traceback" not in shown
        assert " records, " in shown
        assert re.search(
            r"interrupted; [\d,]+ records? acknowledged in the topic; continue with the same command", shown
        )
        assert "not delivered" not in shown
        if not does_broker_answer:
            broker.kill()
            broker.start()
        done = rig.run(str(path), "--resume", "--rate", "1000000000", "-X", "linger.ms=0")
        assert done.code == 0, done.err
        assert sorted(value or b"" for value in rig.values()) == sorted(LINES)
