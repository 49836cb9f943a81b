"""Pipes whose writer died: what a later run with the whole input makes of them.

The first test is a short piece of `python -m tests.campaigns.dying_writers`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.loader.attempt import Attempt
from kafkaprod.loader.feed import Turn
from kafkaprod.loader.transactional_attempt import TransactionalAttempt
from tests.campaigns.dying_writers import NUMBERS, SHUT, Kind, try_all
from tests.support.loader.load_rig import LoadRig

ROWS = [b"row %d" % i for i in range(100, 200)]
WHOLE = b"\n".join(ROWS) + b"\n"
CUT = WHOLE[: WHOLE.index(ROWS[60]) + 5]  # `row 1`


@pytest.mark.parametrize("kind", [Kind("lines", "none"), Kind(NUMBERS, f"{SHUT}zstd")], ids=str)
def test_the_whole_input_continues_a_load_whose_writer_died(kind: Kind, embedded_broker: EmbeddedBroker) -> None:
    def cuts(_: Kind) -> list[int]:
        return sorted(random.Random(f"{kind}").sample(range(20, kind.length), 2))

    assert try_all(embedded_broker.bootstrap_servers, [kind], cuts, float("inf")) == []


class Fifos:
    """FIFOs into which writers write, and die."""

    def __init__(self, *paths: Path) -> None:
        self.paths = paths
        for path in paths:
            os.mkfifo(path)

    def run(self, rig: LoadRig, data: Sequence[bytes], *arguments: str) -> tuple[int, str]:
        """Load what is written; return the exit code and what was said."""
        gc.collect()  # a former load of this process has the other ends open until then
        writers = [threading.Thread(target=_write, args=each) for each in zip(self.paths, data, strict=True)]
        for writer in writers:
            writer.start()
        try:
            done = rig.run(*map(str, self.paths), "--format", "lines", *arguments)
        finally:
            for writer in writers:
                writer.join()
        return done.code, done.err


def _write(path: Path, data: bytes) -> None:
    writing = os.open(path, os.O_WRONLY)
    os.write(writing, data)
    os.close(writing)


@pytest.fixture
def rig(embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str) -> LoadRig:
    rig = LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name)
    rig.create(2)
    return rig


@pytest.mark.parametrize("compress", [bytes, zstandard.compress], ids=["plain", "zstd"])
@pytest.mark.parametrize("end", [KeyboardInterrupt, MemoryError], ids=["stopped", "killed"])
def test_a_part_of_a_row_that_was_sent_is_not_continued(
    rig: LoadRig,
    tmp_path: Path,
    compress: Callable[[bytes], bytes],
    end: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fifo, send = Fifos(tmp_path / "fifo"), Attempt._send

    def send_and_end(attempt: Attempt, turn: Turn) -> None:
        send(attempt, turn)
        if turn.block.is_tail:
            attempt._producer.flush(30)
            raise end

    with monkeypatch.context() as patch:
        patch.setattr(Attempt, "_send", send_and_end)
        try:
            code, said = fifo.run(rig, [compress(CUT)])
            assert code == 130, said
        except MemoryError:
            pass
    sent = sorted([*ROWS[:60], b"row 1"])
    assert sorted(rig.values()) == sent
    for _ in range(2):
        code, said = fifo.run(rig, [compress(WHOLE)], "--resume")
        assert code == 1
        assert "bytes with which it ended within a row when an earlier run of the load read it" in said
    code, said = fifo.run(rig, [compress(CUT)], "--resume")
    assert code == 0, said
    assert sorted(rig.values()) == sent


@pytest.mark.parametrize("attempt", [Attempt, TransactionalAttempt], ids=["manifest", "transactions"])
@pytest.mark.parametrize("end", [KeyboardInterrupt, MemoryError], ids=["stopped", "killed"])
def test_what_came_behind_a_pipe_that_ended_too_early_is_not_taken_for_more_of_it(
    rig: LoadRig, tmp_path: Path, attempt: Any, end: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: tuple[str, ...] = ()
    if attempt is TransactionalAttempt:
        rig.transactional_id, arguments = rig.topic, ("--checkpoint-interval", "0.000001")
    fifos, send = Fifos(tmp_path / "a", tmp_path / "b"), attempt._send
    later = [b"later %d" % i for i in range(50)]
    second = b"\n".join(later) + b"\n"
    part = WHOLE[: WHOLE.index(ROWS[60])]

    def send_and_end(self: Any, *turn: Any) -> None:
        send(self, *turn)
        if turn[-1].position.source == 1:
            self._producer.flush(30)
            raise end

    with monkeypatch.context() as patch, contextlib.suppress(MemoryError):
        patch.setattr(attempt, "_send", send_and_end)
        code, said = fifos.run(rig, [part, second], *arguments)
        assert code == 130, said
    sent = sorted([*ROWS[:60], *later])
    assert sorted(rig.values()) == sent
    for other in (WHOLE, part[:-8], part.replace(ROWS[5], b"foreign")):
        code, said = fifos.run(rig, [other, second], "--resume")
        assert code == 1, said
        assert "the pipes before input 2 are not those that an earlier run of the load read" in said
    code, said = fifos.run(rig, [part, second], "--resume")
    assert code == 0, said
    assert sorted(rig.values()) == sent
