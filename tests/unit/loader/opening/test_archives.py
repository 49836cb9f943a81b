"""Zip archives: each member is an input, however its name is written, and the archive is opened once for all."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.opening import archives
from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.loader.opening.opening import open_source
from tests.support.loader.reading import values_of


def make_archive(path: Path, names: list[str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for number, name in enumerate(names):
            archive.writestr(name, f"{number}\n")
    return path


def test_members_whose_names_have_dots_for_folders_are_files_as_others(tmp_path: Path) -> None:
    names = ["./a.txt", "b.txt", "../c.txt", "d/./e.txt", "./.hidden.txt", "./__MACOSX/x.txt", "d/../_SUCCESS"]
    path = make_archive(tmp_path / "a.zip", names)
    assert [source.member for source in find_sources([str(path)])] == names[:4]
    assert values_of(path) == [b"0", b"1", b"2", b"3"]


def test_an_archive_is_opened_once_for_all_its_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_archive(tmp_path / "a.zip", [f"{number}.txt" for number in range(50)])
    opened: list[object] = []

    class CountedZipFile(zipfile.ZipFile):
        def __init__(self, file: Any) -> None:
            opened.append(file)
            super().__init__(file)

    monkeypatch.setattr(zipfile, "ZipFile", CountedZipFile)
    assert values_of(path) == [b"%d" % number for number in range(50)]
    assert len(opened) == 1
    del opened[:]


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        path = make_archive(tmp_path / "a.zip", ["a.txt", "b.txt", "a.txt"])
    with pytest.raises(LoadRefusedError, match=r"has 2 files named 'a.txt'"):
        find_sources([str(path)])


def test_documents_of_other_programs_are_named(tmp_path: Path) -> None:
    for names, what in ((["mimetype", "content.xml"], "LibreOffice"), (["[Content_Types].xml", "x.xml"], "Excel")):
        with pytest.raises(LoadRefusedError, match=f"is a document of {what}.*: save its sheet as CSV"):
            find_sources([str(make_archive(tmp_path / "a.zip", names))])


def test_a_copy_of_an_input_in_another_process_opens_the_archive_again(tmp_path: Path) -> None:
    (source,) = find_sources([str(make_archive(tmp_path / "a.zip", ["a.txt"]))])
    copy = pickle.loads(pickle.dumps(source))
    del source
    with open_source(copy) as stream:
        assert stream.readall() == b"0\n"
    assert isinstance(copy.archive, archives.ZipArchive)
