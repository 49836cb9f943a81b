"""A log directory is given up by every error that says that its disk is gone, whichever call meets it; by no other."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkaprod.broker.storage.directory_health import DirectoryHealth, WatchedDisk
from kafkaprod.broker.storage.errors import LogDirectoryFailedError
from kafkaprod.storage.disk import Disk
from tests.support.broker.fixtures_log import FaultyDisk

GONE = ["EIO", "EROFS", "ENODEV", "ENXIO", "ESTALE", "ENOTCONN"]
PASSING = ["ENOSPC", "EDQUOT", "EACCES", "EPERM", "EMFILE", "ENFILE", "ENOMEM", "ENOENT", "ENAMETOOLONG", "EINTR"]

CALLS: dict[str, Callable[[Disk, str], object]] = {
    "create": lambda disk, path: disk.create(path),
    "mkdir": lambda disk, path: disk.mkdir(path),
    "pwrite": lambda disk, path: disk.pwrite(Disk().create(path), b"x", 0),
    "truncate": lambda disk, path: disk.truncate(Disk().create(path), 0),
    "fdatasync": lambda disk, path: disk.fdatasync(Disk().create(path)),
    "sync_dir": lambda disk, path: disk.sync_dir(path),
    "rename": lambda disk, path: disk.rename(path, path),
    "unlink": lambda disk, path: disk.unlink(path),
    "rmdir": lambda disk, path: disk.rmdir(path),
}


def failed_by(tmp_path: Path, call: str, code: int) -> DirectoryHealth:
    """The health of a directory after one call of its disk has failed."""
    health = DirectoryHealth(str(tmp_path))
    disk = WatchedDisk(FaultyDisk(lambda name, _: code if name == call else None), health)
    with pytest.raises(OSError) as caught:
        CALLS[call](disk, str(tmp_path / "file"))
    assert caught.value.errno == code
    return health


def test_all_calls_of_a_disk_are_tried() -> None:
    assert set(CALLS) == {name for name in vars(Disk) if not name.startswith("_")}


@pytest.mark.parametrize("name", GONE)
@pytest.mark.parametrize("call", CALLS)
def test_an_error_of_a_disk_that_is_gone_gives_its_directory_up(tmp_path: Path, call: str, name: str) -> None:
    code: int = getattr(errno, name)
    health = failed_by(tmp_path, call, code)
    with pytest.raises(LogDirectoryFailedError, match=f"{tmp_path} is offline: .*{os.strerror(code)}"):
        health.check()


@pytest.mark.parametrize("name", PASSING)
@pytest.mark.parametrize("call", CALLS)
def test_an_error_that_may_pass_leaves_the_directory_in_use(tmp_path: Path, call: str, name: str) -> None:
    failed_by(tmp_path, call, getattr(errno, name)).check()


def test_the_first_error_is_the_reason_and_the_only_one_that_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    health = DirectoryHealth("/d")
    with caplog.at_level(logging.ERROR):
        for name in ("ENOSPC", "EROFS", "EIO", "EIO", "ENOSPC"):
            health.note(OSError(getattr(errno, name), name))
    assert health.failure == f"[Errno {errno.EROFS}] EROFS"
    assert len(caplog.records) == 1


def test_a_directory_that_fails_takes_no_other_with_it() -> None:
    healths = [DirectoryHealth(path) for path in ("/a", "/b", "/c")]
    healths[1].note(OSError(errno.EIO, "gone"))
    assert [health.failure is None for health in healths] == [True, False, True]
