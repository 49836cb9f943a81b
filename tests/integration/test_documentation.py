"""Every page of the documentation works when it is followed by copy and paste."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from kafkaprod.config import ProducerConfig
from kafkaprod.engine.wiring import connection_settings
from tests.kafka.ports import free_ports
from tests.pages.documentation import PAGES, ROOT, Block, Reader, blocks, follow, unexplained

LONG = {"spark.md", "checking.md"}  # sessions of Spark, millions of records
FOLLOWED = [page for page in PAGES if any(block.language in ("sh", "python") for block in blocks(page))]


@pytest.mark.parametrize("page", [page for page in FOLLOWED if page.name not in LONG], ids=lambda page: page.stem)
def test_a_page_can_be_followed(page: Path, tmp_path: Path) -> None:
    follow(page, tmp_path, Path(sys.executable).parent, free_ports(1)[0])


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_block_may_end_in_the_middle_of_a_line(tmp_path: Path, stream: str) -> None:
    reader = Reader(tmp_path, Path(sys.executable).parent, 9092)
    try:
        reader.run(Block(1, "python", f"import sys\nsys.{stream}.write('half a line')\nsys.{stream}.flush()\n"))
        reader.run(Block(2, "sh", "printf 'half a line'\n"))
        with pytest.raises(AssertionError, match="half a line"):
            reader.run(Block(3, "python", f"sys.{stream}.write('half a line')\nraise SystemExit\n"))
    finally:
        reader.close()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder that has all that a clone's root has, where a page's programs and data can be put."""
    root = tmp_path / "clone"
    root.mkdir()
    for entry in ROOT.iterdir():
        if not entry.name.startswith("."):
            (root / entry.name).symlink_to(entry)
    return root


@pytest.mark.parametrize("page", [page for page in FOLLOWED if page.name not in LONG], ids=lambda page: page.stem)
def test_a_page_can_be_followed_in_the_root_of_a_clone(page: Path, clone: Path) -> None:
    """The folders there must not hide what the programs import, as a source folder without built modules would."""
    follow(page, clone, Path(sys.executable).parent, free_ports(1)[0])


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in FOLLOWED if page.name in LONG], ids=lambda page: page.stem)
def test_a_long_page_can_be_followed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(pyspark.__file__).parent / "bin"), prepend=os.pathsep)  # has spark-submit
    follow(page, tmp_path, Path(sys.executable).parent, free_ports(1)[0])


def test_every_block_is_run_or_it_is_said_why_not() -> None:
    assert list(unexplained(PAGES)) == []


def test_every_properties_file_of_the_documentation_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, count = tmp_path / "client.properties", 0
    keytab = tmp_path / "keytab"
    keytab.touch()
    monkeypatch.setitem(sys.modules, "gssapi", SimpleNamespace())  # its extra needs a compiler and headers
    for block in (block for page in PAGES for block in blocks(page) if block.language == "properties"):
        path.write_text(re.sub(r"(?<=\bkeytab=).*", str(keytab), block.text), encoding="utf-8")
        for name in re.findall(r"=env:(\w+)", block.text):
            monkeypatch.setenv(name, "secret")
        connection_settings(ProducerConfig.from_file(path))
        count += 1
    assert count > 0


@pytest.mark.parametrize("block", ["```sh\nfalse\n```\n", '```python\nraise ValueError("no")\n```\n'])
def test_a_block_that_fails_is_seen(block: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(block)
    (tmp_path / "here").mkdir()
    with pytest.raises(AssertionError, match="it failed"):
        follow(page, tmp_path / "here", Path(sys.executable).parent, free_ports(1)[0])
