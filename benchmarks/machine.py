"""On what a figure was measured: a class of machine, not this one's name."""

import os
import platform
from pathlib import Path


def describe() -> dict[str, str | int | float]:
    """Processor, cores, memory, kernel, Python, and how busy the machine was at the time."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_gb": round(int((_field("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) / 2**20),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def _processor() -> str:
    """A hypervisor may hide the name: family, model and stepping tell generations apart."""
    name = _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()
    numbers = [_field("/proc/cpuinfo", field) for field in ("cpu family", "model\t", "stepping")]
    return f"{name} {'/'.join(number for number in numbers if number)}".strip()


def _field(path: str, name: str) -> str | None:
    file = Path(path)
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)
