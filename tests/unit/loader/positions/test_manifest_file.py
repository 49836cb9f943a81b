"""Manifests of other people's making: no link is followed, no pipe waited for, nothing damaged is believed."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kafkaprod.loader.bad_rows import DeadLetterFile
from kafkaprod.loader.opening.errors import BadRow, LoadError, is_temporary
from kafkaprod.loader.positions.manifest import CHECKSUM, Manifest, PartitionState, Position
from kafkaprod.loader.positions.manifest_file import ManifestFile
from tests.support.power_cuts import power_cuts


def manifest() -> Manifest:
    return Manifest(
        topic="t",
        topic_id=None,
        cluster_id="c",
        producer_id=1,
        producer_epoch=0,
        partition_count=2,
        run_rows=3,
        options={"record_limit": 1, "needs_keys": False},
        inputs=[{"path": "/a"}],
        position=Position(0, 5, 10, 0),
        partitions={0: PartitionState(2, 3, 4), 1: PartitionState(3, 3, 9)},
        refused=[(0, 7, "too large")],
    )


@pytest.fixture
def file(tmp_path: Path) -> ManifestFile:
    return ManifestFile(tmp_path / ".a.load.json")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_manifest_is_read_as_it_was_written_and_private(file: ManifestFile) -> None:
    written = manifest()
    file.write(written)
    written.finish()
    file.write(written)
    assert file.read() == written
    assert mode_of(file.path) == 0o600
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]


@pytest.mark.parametrize("suffix", ["", ".new", ".lock"])
def test_a_link_in_the_place_of_a_file_is_not_followed(file: ManifestFile, tmp_path: Path, suffix: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    dangling = tmp_path / "dangling"
    for target in (victim, dangling):
        link = Path(f"{file.path}{suffix}")
        link.symlink_to(target)
        if suffix == ".lock":
            with pytest.raises(LoadError, match="cannot be written"), file.locked():
                pass
        else:
            if suffix == "":
                with pytest.raises(LoadError, match="cannot be read"):
                    file.read()
            file.write(manifest())
            assert file.read() == manifest()
            assert not file.path.is_symlink()
        link.unlink(missing_ok=True)
    assert victim.read_text() == "precious"
    assert not dangling.exists()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_not_a_file_is_refused_at_once(file: ManifestFile, make: Any) -> None:
    make(file.path)
    with pytest.raises(LoadError, match=r"is not a file|cannot be read|damaged"):
        file.read()


NOT_COUNTS = [-1, 1 << 63, 1.5, "1", None, True, [], {}]
TAMPERED: list[tuple[str, Any]] = [
    *((name, value) for name in ("sent_count", "dead_letter_bytes", "partition_count") for value in NOT_COUNTS),
    *(
        ("position", replace(Position(), **cast(Any, {name: value})))
        for name in ("source", "row", "offset", "rows_before")
        for value in NOT_COUNTS
    ),
    *(("partitions", {0: PartitionState(2, 3, 4), 1: state}) for state in [None, PartitionState(2, 1, 0)]),
    ("partitions", {}),
    ("partitions", {0: PartitionState(2, 3, 4), 7: PartitionState(2, 3, 4)}),
    *(("refused", value) for value in [None, [1], [[1, 2]], [[0, 1, 2]], [[-1, 0, "x"]], [["0", 1, "x"]]]),
    *(("inputs", value) for value in [None, [1], []]),
    *(("is_done", value) for value in [None, 0, "yes"]),
    *(("producer_id", value) for value in [None, "1", -2, 1 << 64]),
    *(("producer_epoch", value) for value in [None, 1 << 15]),
    *(("run_rows", value) for value in [0, -1, None]),
    *(("options", value) for value in (None, list[str]())),
    *(("batch_bytes", value) for value in ["1", 1.5, True]),
    ("topic", None),
    ("partition_count", 10**12),
]


@pytest.mark.parametrize(("name", "value"), TAMPERED)
def test_a_manifest_with_another_value_is_damaged(file: ManifestFile, name: str, value: Any) -> None:
    if name == "position" and value == Position(1, 0, 0, 0):
        return
    changed = manifest()
    setattr(changed, name, value)
    if name == "inputs" and value == []:
        changed.position.source = 1
    file.path.write_text(changed.to_json())
    with pytest.raises(LoadError, match="damaged"):
        file.read()


TEXTS = [
    "",
    "null",
    "1",
    "[]",
    "{}",
    '{"version": 1}',
    "[" * 100_000,
    '{"a":' * 50_000,
    "\x00",
    "NaN",
    "1" * 5_000,
    '"x"',
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_text_that_is_not_a_manifest_is_damaged(file: ManifestFile, text: str) -> None:
    file.path.write_text(text)
    with pytest.raises(LoadError, match="damaged"):
        file.read()


def test_a_manifest_with_more_or_fewer_fields_or_bytes_is_damaged(file: ManifestFile) -> None:
    whole = json.loads(manifest().to_json())
    bare = {name: value for name, value in whole.items() if name != CHECKSUM}
    for each in (whole, bare):
        file.path.write_text(json.dumps(each))
        assert file.read() == manifest()  # without a checksum: of an earlier version
    texts = [json.dumps({k: v for k, v in bare.items() if k != name}) for name in bare]
    texts += [json.dumps(bare | {"more": 1}), json.dumps(bare | {"version": 2}), manifest().to_json()[:-5]]
    for text in texts:
        file.path.write_text(text)
        with pytest.raises(LoadError, match="damaged"):
            file.read()
    file.path.write_bytes(b"\xff\xfe")
    with pytest.raises(LoadError, match="damaged"):
        file.read()


def numbers_in(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every number in a manifest: what has it, and under which key."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        if type(value) is int:
            yield data, key
        yield from numbers_in(value)


def test_a_manifest_with_another_number_is_damaged(file: ManifestFile) -> None:
    count = len(list(numbers_in(json.loads(manifest().to_json()))))
    assert count > 20
    for place in range(count):
        data = json.loads(manifest().to_json())
        owner, key = list(numbers_in(data))[place]
        owner[key] += 1
        file.path.write_text(json.dumps(data, indent=1))
        with pytest.raises(LoadError, match="damaged: it was changed, or a part of it was lost"):
            file.read()


def test_dead_letters_are_private(tmp_path: Path) -> None:
    sink = DeadLetterFile(str(tmp_path / "bad"))
    sink.put(BadRow("a", 0, "why", b"secret"))
    sink.close()
    assert mode_of(tmp_path / "bad") == 0o600


def test_a_second_process_may_try_again(file: ManifestFile) -> None:
    with file.locked():
        with pytest.raises(LoadError, match="another process") as raised, file.locked():
            pass
        assert is_temporary(raised.value)
    assert mode_of(file.path.parent) & 0o700
    assert list(file.path.parent.iterdir()) == []


def test_a_manifest_that_could_not_be_read_again_does_not_replace_a_good_one(file: ManifestFile) -> None:
    good = manifest()
    file.write(good)
    bad = replace(good, partitions=good.partitions | {1: PartitionState(4, 3, 9)})
    with pytest.raises(LoadError, match=r"is left as it was, .* the 2 partitions do not agree"):
        file.write(bad)
    assert file.read() == good


def test_a_power_cut_leaves_the_old_manifest_or_the_new_one(file: ManifestFile) -> None:
    old, new = manifest(), manifest()
    new.finish()
    file.write(old)
    texts = {each.to_json().encode() for each in (old, new)}
    with power_cuts(file.path.parent) as cuts:
        file.write(new)
    assert {image[file.path.name] for image in cuts.images} == texts
    assert {image[file.path.name] for image in cuts.last_images} == {new.to_json().encode()}


@pytest.mark.parametrize("directory", [".", "state", "state/of/loads"])
def test_the_first_manifest_outlives_a_power_cut_with_the_directories_it_is_in(tmp_path: Path, directory: str) -> None:
    file = ManifestFile(tmp_path / directory / ".a.load.json")
    with power_cuts(tmp_path) as cuts, file.locked():
        file.write(manifest())
    text, name = manifest().to_json().encode(), os.path.normpath(f"{directory}/.a.load.json")
    assert {image.get(name) for image in cuts.images} == {None, text}
    assert {image.get(name) for image in cuts.last_images} == {text}


def test_a_power_cut_leaves_the_manifest_that_is_put_back_or_the_last_one(file: ManifestFile) -> None:
    old, new = manifest(), manifest()
    new.finish()
    file.write(new)
    with power_cuts(file.path.parent) as cuts:
        file.put_back(old.to_json().encode())
    assert {image[file.path.name] for image in cuts.images} == {each.to_json().encode() for each in (old, new)}
    assert {image[file.path.name] for image in cuts.last_images} == {old.to_json().encode()}
