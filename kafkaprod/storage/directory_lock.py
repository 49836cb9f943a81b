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
