"""Folders and patterns that get files while they are loaded, and between loads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.loader import feed
from kafkaprod.loader.formats.readers import ReadOptions
from kafkaprod.loader.formats.rows import RowBlock
from kafkaprod.loader.opening.source import Source
from tests.support.loader.load_rig import LoadRig

NAMES = (("", "a.txt"), ("*.txt", "c.txt"), ("**/*.txt", "z.txt"))  # of the input, and of what comes


@pytest.fixture(params=[False, True], ids=["manifest", "transactions"])
def rig(request: pytest.FixtureRequest, embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str) -> LoadRig:
    transactional_id = f"load-{topic_name}" if request.param else None
    rig = LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name, transactional_id)
    rig.create(2)
    return rig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "bd":
        (folder / f"{name}.txt").write_bytes(rows_of(name))
    return folder


def rows_of(name: str) -> bytes:
    return b"".join(b"%s %d\n" % (name.encode(), number) for number in range(50))


def rows_in(*names: str) -> list[bytes]:
    return sorted(row for name in names for row in rows_of(name).split(b"\n") if row)


@pytest.mark.parametrize(("name", "place"), NAMES)
def test_a_file_that_comes_while_the_others_are_read_is_no_part_of_a_complete_load(
    rig: LoadRig, folder: Path, name: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = feed.read_rows

    def read_rows(source: Source, options: ReadOptions, *more: object) -> Iterator[RowBlock]:
        (folder / place).write_bytes(rows_of(place[0]))
        return read(source, options, *more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(feed, "read_rows", read_rows)
        done = rig.run(str(folder / name))
    assert done.code == 1
    assert f"1 file came while the input was read, {folder / place} first: what came is not in the topic" in done.err
    (folder / place).rename(folder.parent / place)
    again = rig.run(str(folder / name), "--resume")
    assert again.code == 0, again.err
    alone = rig.run(str(folder.parent / place))
    assert alone.code == 0, alone.err
    assert sorted(rig.values()) == rows_in("b", "d", place[0])


@pytest.mark.parametrize(("name", "place"), NAMES)
def test_a_folder_that_got_a_file_since_it_was_loaded_is_not_loaded_again(
    rig: LoadRig, folder: Path, name: str, place: str
) -> None:
    assert rig.run(str(folder / name)).code == 0
    (folder / place).write_bytes(rows_of(place[0]))
    for arguments in ((), ("--resume",)):
        done = rig.run(str(folder / name), *arguments)
        assert done.code == 2, done.err
        assert "3 files" in done.err
    alone = rig.run(str(folder / place))
    assert alone.code == 0, alone.err
    assert sorted(rig.values()) == rows_in("b", "d", place[0])


@pytest.mark.parametrize("rig", [True], indirect=True)  # files have manifests of their own
def test_a_folder_whose_files_were_loaded_one_by_one_with_its_id_is_not_loaded(rig: LoadRig, folder: Path) -> None:
    for name in "bd":
        assert rig.run(str(folder / f"{name}.txt"), "--resume").code == 0
    done = rig.run(str(folder), "--resume")
    assert done.code == 2
    assert "some of 2 files are already loaded" in done.err
    assert sorted(rig.values()) == rows_in("b", "d")
