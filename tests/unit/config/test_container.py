"""The limit of a container, read from files as in /proc and /sys, and what it makes of buffer_memory."""

import logging
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.compat.confluent_kafka.options import read as confluent_options
from kafkaprod.config import ProducerConfig, container
from kafkaprod.config.container import container_limit

MIB = 1 << 20
PHYSICAL = 16 << 30
V2_NAMESPACE = "0::/\n"
V2_NESTED = "0::/kubepods/pod1/app\n"
V1 = "12:pids:/docker/abc\n4:cpu,memory:/docker/abc\n1:name=systemd:/docker/abc\n0::/docker/abc\n"


def machine(root: Path, groups: str, files: dict[str, str]) -> int | None:
    """The limit in a file system with these process groups and these files of /sys/fs/cgroup."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return container_limit(str(root), PHYSICAL)


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        pytest.param(V2_NAMESPACE, {"memory.max": f"{128 * MIB}\n", "memory.high": "max\n"}, 128 * MIB, id="number"),
        pytest.param(V2_NAMESPACE, {"memory.max": "max\n", "memory.high": "max\n"}, None, id="max"),
        pytest.param(
            V2_NAMESPACE, {"memory.max": f"{128 * MIB}\n", "memory.high": f"{96 * MIB}\n"}, 96 * MIB, id="high"
        ),
        pytest.param(V2_NAMESPACE, {}, None, id="the root of a machine has no such files"),
        pytest.param(V2_NAMESPACE, {"memory.max": f"{PHYSICAL}\n"}, None, id="as much as the machine has"),
        pytest.param(V2_NAMESPACE, {"memory.max": "many\n"}, None, id="no number"),
        pytest.param(
            V2_NESTED,
            {"kubepods/pod1/app/memory.max": "max\n", "kubepods/pod1/memory.max": f"{256 * MIB}\n"},
            256 * MIB,
            id="limit of a group above",
        ),
        pytest.param(
            V2_NESTED,
            {"kubepods/pod1/app/memory.max": f"{64 * MIB}\n", "kubepods/memory.max": f"{512 * MIB}\n"},
            64 * MIB,
            id="the smallest of several",
        ),
        pytest.param(V2_NESTED, {"memory.max": f"{32 * MIB}\n"}, 32 * MIB, id="the path is not below the mount"),
        pytest.param("0::/../../other\n", {"memory.max": f"{32 * MIB}\n"}, 32 * MIB, id="outside of the namespace"),
        pytest.param(
            V1, {"memory/docker/abc/memory.limit_in_bytes": f"{128 * MIB}\n"}, 128 * MIB, id="version 1, own path"
        ),
        pytest.param(V1, {"memory/memory.limit_in_bytes": f"{128 * MIB}\n"}, 128 * MIB, id="version 1, the mount"),
        pytest.param(V1, {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None, id="version 1, no limit"),
        pytest.param(
            V1,
            {"memory/docker/abc/memory.limit_in_bytes": f"{256 * MIB}\n", "memory/docker/memory.limit_in_bytes": "1\n"},
            1,
            id="version 1, a group above",
        ),
        pytest.param("", {"memory.max": f"{32 * MIB}\n"}, None, id="no groups"),
    ],
)
def test_limit_of_a_container(tmp_path: Path, groups: str, files: dict[str, str], limit: int | None) -> None:
    assert machine(tmp_path, groups, files) == limit


def test_what_cannot_be_read_is_no_limit(tmp_path: Path) -> None:
    assert container_limit(str(tmp_path), PHYSICAL) is None  # there is no /proc
    (tmp_path / "sys/fs/cgroup/memory.max").mkdir(parents=True)  # no file, so it cannot be read, not even by root
    assert machine(tmp_path, V2_NAMESPACE, {"memory.high": f"{48 * MIB}\n"}) == 48 * MIB


def test_other_systems_have_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine(tmp_path, V2_NAMESPACE, {"memory.max": f"{128 * MIB}\n"}) is not None
    monkeypatch.setattr(container.sys, "platform", "darwin")
    assert container_limit(str(tmp_path), PHYSICAL) is None


# -- what buffer_memory is then ----------------------------------------------------------------------------------------


def config_in(monkeypatch: pytest.MonkeyPatch, limit: int | None, **options: Any) -> ProducerConfig:
    monkeypatch.setattr(container, "container_limit", lambda: limit)
    return ProducerConfig.from_options(bootstrap_servers="localhost", **options)


@pytest.mark.parametrize(
    ("limit", "options", "expected"),
    [
        (None, {}, 64 * MIB),
        (8 << 30, {}, 64 * MIB),
        (128 * MIB, {}, 16 * MIB),
        (16 * MIB, {}, 4 * MIB),
        (128 * MIB, {"buffer_memory": 32 * MIB}, 32 * MIB),
        (128 * MIB, {"batch_size": 20 * MIB}, 20 * MIB + 1024),
        (128 * MIB, {"max_request_size": 30 * MIB}, 30 * MIB + 1024),
        (128 * MIB, {"max_request_size": 2**31 - 1}, 64 * MIB),
    ],
)
def test_buffer_memory_is_an_eighth_of_the_limit(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, options: dict[str, int], expected: int
) -> None:
    assert config_in(monkeypatch, limit, **options).buffer_memory == expected


@pytest.mark.parametrize(
    ("limit", "options", "lines"),
    [
        (128 * MIB, {}, ["buffer_memory=16 MiB: an eighth of the container's 128 MiB"]),
        (16 * MIB, {}, ["buffer_memory=4 MiB: an eighth of the container's 16 MiB would be too little"]),
        (128 * MIB, {"buffer_memory": 32 * MIB}, []),
        (128 * MIB, {"max_request_size": 2**31 - 1}, []),
        (1 << 30, {}, []),
        (None, {}, []),
    ],
)
def test_one_line_says_that_the_container_lowers_it(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limit: int | None,
    options: dict[str, int],
    lines: list[str],
) -> None:
    with caplog.at_level(logging.INFO, "kafkaprod.config"):
        config_in(monkeypatch, limit, **options)
    assert [record.getMessage() for record in caplog.records] == lines


def test_a_gibibyte_of_another_client_is_lowered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "container_limit", lambda: 256 * MIB)
    assert confluent_options({"bootstrap.servers": "localhost"}).engine["buffer.memory"] == 32 * MIB
