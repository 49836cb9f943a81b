"""Runs `kafkaprod load` in a forked process that has all modules already: an import takes longer than a small load."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kafkaprod.cli.main import main
from kafkaprod.loader import transactional
from kafkaprod.loader.formats import arrow_rows, csv_rows

LOADED_ONCE = arrow_rows.import_pyarrow("Parquet"), csv_rows, transactional
for _name in ("deltalake", "pyiceberg.table", "pyiceberg.io.pyarrow"):
    with contextlib.suppress(ImportError):
        importlib.import_module(_name)


def load(arguments: Sequence[str], stdin: Path | None, errors: str, dies_at: int | None = None) -> None:
    """Be the process of a command.

    Args:
        arguments: Of the command, after `kafkaprod`.
        stdin: A file that comes through a pipe; None: nothing.
        errors: The file for what it says.
        dies_at: The writer of the pipe is killed with -9 when it has written so many bytes; None: it ends well.
    """
    source = os.open(os.devnull, os.O_RDONLY)
    if stdin is not None:
        command = ["cat", str(stdin)]
        if dies_at is not None:
            command = ["sh", "-c", f'head -c {dies_at} "$0"; kill -9 $$', str(stdin)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert writer.stdout is not None
        source = writer.stdout.fileno()
    os.dup2(source, 0)
    os.closerange(source, source + 1)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = ["kafkaprod", *arguments]
    sys.exit(main())
