"""When the check compiles: only if a module is missing or older than a source."""

import os
from pathlib import Path

from tests.support.builds.in_place import is_built


def _write(path: Path, time: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    os.utime(path, (time, time))
    return path


def test_modules_newer_than_all_sources_are_built(tmp_path: Path) -> None:
    header = _write(tmp_path / "kafkaprod" / "machine.h", 10)
    for path in ("setup.py", "kafkaprod/a.pyx", "kafkaprod/a.pxd", "kafkaprod/room/b.pyx"):
        _write(tmp_path / path, 10)
    _write(tmp_path / "kafkaprod" / "a.cpython-311-x86_64-linux-gnu.so", 20)
    assert not is_built(tmp_path)  # b is missing
    _write(tmp_path / "kafkaprod" / "room" / "b.cpython-311-x86_64-linux-gnu.so", 20)
    assert is_built(tmp_path)
    os.utime(header, (30, 30))
    assert not is_built(tmp_path)
