"""On what a figure was measured: a class of machine, not this one's name."""

import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path


def describe() -> dict[str, str | int | float]:
    """Processor, cores, memory, kernel, Python, and how busy the machine was at the time."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_gb": round(int((_field("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) / 2**20),
        "kernel": platform.release(),
        "python": platform.python_version()
        + ("" if getattr(sys, "_is_gil_enabled", lambda: True)() else " without GIL"),
        "load_average": os.getloadavg()[0],
    }


def keep(path: Path | None, name: str, rows: Sequence[object]) -> None:
    """Write the rows of a benchmark and the machine as JSON, if there is a path."""
    if path:
        path.write_text(json.dumps({"machine": describe(), name: rows}, indent=1) + "\n")


def _processor() -> str:
    """A hypervisor may hide the name: family, model and stepping tell generations apart."""
    name = _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()
    numbers = [_field("/proc/cpuinfo", field) for field in ("cpu family", "model\t", "stepping")]
    return f"{name} {'/'.join(number for number in numbers if number)}".strip()


def _field(path: str, name: str) -> str | None:
    file = Path(path)
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)
