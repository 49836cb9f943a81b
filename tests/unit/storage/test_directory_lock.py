"""The lock of a data directory, on Linux and as other systems have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkaprod.storage import directory_lock
from kafkaprod.storage.directory_lock import lock_directory
from kafkaprod.storage.disk import Disk

LOCK_IT = """
import sys
from kafkaprod.storage.directory_lock import lock_directory
from kafkaprod.storage.disk import Disk
sys.platform = sys.argv[2]
print("free" if lock_directory(Disk(), sys.argv[1]) else "in use")
"""


@pytest.mark.parametrize("system", [sys.platform, "darwin"])
def test_a_directory_has_one_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    monkeypatch.setattr(directory_lock.sys, "platform", system)
    command = [sys.executable, "-c", LOCK_IT, str(tmp_path), system]
    lock = lock_directory(Disk(), str(tmp_path))
    assert lock is not None
    assert lock_directory(Disk(), str(tmp_path)) is None
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "in use\n"

    os.close(lock.fd)
    lock.fd = -1
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "free\n"


def test_what_is_packed_for_linux_is_not_given_to_another_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # macOS has F_OFD_SETLK, too, with other fields in another order: it answers EINVAL.
    def refuse(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(directory_lock.sys, "platform", "darwin")
    monkeypatch.setattr(directory_lock.fcntl, "fcntl", refuse)
    assert lock_directory(Disk(), str(tmp_path)) is not None
