"""Leaves the machine's network, so that other people's tests cannot reach anything but the broker."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


def leave() -> None:
    """Move this process, and those that it starts, into a network of its own that has the loopback interface only.

    Tests that want a broker at localhost:9092 find the port free there, whatever runs on the machine. What needs the
    network, downloads say, must be done before. The process must have one thread. Linux only.

    Raises:
        OSError: The machine does not allow it.
    """
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _CLONE_NEWNET if user == 0 else _CLONE_NEWNET | _CLONE_NEWUSER
    if libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot leave the machine's network: {os.strerror(number)}")
    if flags & _CLONE_NEWUSER:  # the data directory must belong to the user who runs the broker
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
