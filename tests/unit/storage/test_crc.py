"""CRC-32C: the compiled module of the package crc32c, without what its `__init__` imports."""

from __future__ import annotations

import subprocess
import sys

import crc32c as package
import pytest

from kafkaprod.storage import crc

CHECK = (b"123456789", 0xE3069283)  # of RFC 3720's polynomial


def test_it_is_the_function_of_the_package() -> None:
    assert crc.crc32c(CHECK[0]) == package.crc32c(CHECK[0]) == CHECK[1]
    assert crc._load() is package.crc32c, "the package is imported here"


def test_a_host_starts_without_importlib_metadata() -> None:
    program = (
        "import sys, kafkaprod.broker.embedding.host, kafkaprod.broker.embedding.child\n"
        "from kafkaprod.storage.crc import crc32c\n"
        "print(crc32c(b'123456789'), 'importlib.metadata' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(CHECK[1]), "False"]


def test_without_the_file_the_package_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "crc32c")
    monkeypatch.setattr(crc, "EXTENSION_SUFFIXES", [".none"])
    assert crc._load()(CHECK[0]) == CHECK[1]
