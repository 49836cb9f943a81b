"""The `.lock` file that keeps two owners out of one directory.

On Linux an open-file-description lock: it excludes a Kafka broker's POSIX lock and also a second owner in this
process. macOS has such locks, too, but another `struct flock`, and not in all its versions: `flock` is enough there.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys

from kafkaprod.storage.disk import Disk, LogFile

LOCK_FILE = ".lock"


def is_locked(directory: str) -> bool:
    """Return whether an owner holds the lock of a directory. Raises OSError."""
    try:
        fd = os.open(os.path.join(directory, LOCK_FILE), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        if sys.platform == "linux":
            found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            return bool(struct.unpack("hhqqi4x", found)[0] != fcntl.F_UNLCK)
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def lock_directory(disk: Disk, directory: str) -> LogFile | None:
    """Lock a directory for as long as the returned file lives; the system drops the lock of a dead process.

    Returns:
        None: Another owner holds the lock.
    """
    file = disk.create(os.path.join(directory, LOCK_FILE))
    try:
        if sys.platform == "linux":
            # struct flock: l_type, l_whence, l_start, l_len (0: to the end), l_pid (must be 0)
            fcntl.fcntl(file.fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        else:
            fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return None
    return file
