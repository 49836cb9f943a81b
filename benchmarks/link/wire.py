"""Two network namespaces joined by a wire of a given round trip and rate: ``link.c``, compiled on first use.

Needs Linux, root, `ip`, a C compiler and /dev/net/tun. `why_not()` says what is missing; the delay proxy
(``benchmarks/delay_proxy.py``) needs none of it, and delays answers without TCP's own limits of a far connection.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.peers.build import cache_dir

_SOURCE = Path(__file__).with_name("link.c")
_DEVICE = "wire0"
_MTU = "9000"
_LEAST_QUEUE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class WireSettings:
    """What the wire is like.

    Attributes:
        round_trip_ms: of the wire alone.
        mbit_s: of each direction; 0: no limit.
        loss_per_million: packets that are dropped at random.
    """

    round_trip_ms: float
    mbit_s: float
    loss_per_million: int = 0

    @property
    def bytes_per_s(self) -> int:
        """The rate in bytes."""
        return int(self.mbit_s * 1e6 / 8)

    @property
    def queue_bytes(self) -> int:
        """What a router keeps: as much as is under way in a round trip."""
        return max(_LEAST_QUEUE_BYTES, int(self.bytes_per_s * self.round_trip_ms / 1000))


def why_not() -> str:
    """What a wire needs and is missing here; empty: nothing."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun cannot be opened"
    missing = [tool for tool in ("ip", "cc") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} cannot be found"
    return "" if os.geteuid() == 0 else "only root may make network namespaces"


class Wire:
    """The wire and its namespaces, from construction to `close`.

    Attributes:
        near: command that a client's process runs under.
        far: the same for the far end.
        far_host: address of the far end.
    """

    far_host = "10.77.0.2"

    def __init__(self, settings: WireSettings) -> None:
        names = [f"wire-{os.getpid()}-{end}" for end in ("near", "far")]
        self.near, self.far = ([_tool("ip"), "netns", "exec", name] for name in names)
        self._names = names
        self._process: subprocess.Popen[str] | None = None
        try:
            for name in names:
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
            numbers = (settings.round_trip_ms * 500, settings.bytes_per_s, settings.queue_bytes)
            arguments = [str(int(number)) for number in (*numbers, settings.loss_per_million)]
            command = [str(_program()), *names, *arguments]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert self._process.stdout is not None
            if self._process.stdout.readline() != "ready\n":
                raise RuntimeError(f"the wire did not start: {command}")
            for name, address in zip(names, ("10.77.0.1/24", f"{self.far_host}/24"), strict=True):
                _ip("-n", name, "address", "add", address, "dev", _DEVICE)
                _ip("-n", name, "link", "set", _DEVICE, "mtu", _MTU, "up")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the wire and remove its namespaces; may be called twice."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            assert self._process.stdout is not None
            self._process.stdout.close()
        for name in self._names:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _program() -> Path:
    """The compiled wire."""
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]
    program = cache_dir() / f"link-{digest}"
    if not program.exists():
        subprocess.run([_tool("cc"), "-O2", "-Wall", "-o", str(program), str(_SOURCE)], check=True)
    return program


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise RuntimeError(f"{name} is not on the PATH")
    return path


def _ip(*arguments: str) -> None:
    subprocess.run([_tool("ip"), *arguments], check=True, capture_output=True)
