"""What the core is given for a topic with options of its own."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaprod.config import ProducerConfig
from kafkaprod.engine import batchings
from kafkaprod.engine.batchings import MOST_CODECS, Batchings
from kafkaprod.engine.wiring import request_bytes
from kafkaprod.errors import ConfigError


def config(topic_options: Any = None, **options: Any) -> ProducerConfig:
    return ProducerConfig.from_options({"bootstrap_servers": "h:1"}, topic_options=topic_options or {}, **options)


def test_topic_without_options_of_its_own_has_none() -> None:
    assert Batchings(config({"orders": {"linger_ms": 1}, "empty": {}}), may_split=True).find("logs") is None
    assert Batchings(config({"orders": {"linger_ms": 1}, "empty": {}}), may_split=True).find("empty") is None


@pytest.mark.parametrize(
    ("options", "own", "expected"),
    [
        ({}, {"linger_ms": 7}, (262_144, 1_000_000, 7, 0, False)),
        ({}, {"batch_size": 5000}, (5000, 5000, 5, 0, False)),
        ({}, {"batch_size": 5000, "max_batch_size": 9000}, (5000, 9000, 5, 0, False)),
        ({}, {"max_batch_size": 9000}, (9000, 9000, 5, 0, False)),
        ({"batch_size": 5000}, {"max_batch_size": 9000}, (5000, 9000, 5, 0, False)),
        ({"batch_size": 5000}, {"batch_size": 7000}, (7000, 7000, 5, 0, False)),
        ({"max_batch_size": 5000}, {"batch_size": 7000}, (7000, 7000, 5, 0, False)),
        ({}, {"compression_type": "lz4"}, (262_144, 1_000_000, 5, 1, True)),
        ({"compression_type": "lz4"}, {"compression_type": "none"}, (262_144, 1_000_000, 5, 1, False)),
        ({"compression_type": "lz4"}, {"compression_type": "lz4"}, (262_144, 1_000_000, 5, 0, True)),
        ({"compression_type": "lz4"}, {"linger_ms": 0}, (262_144, 1_000_000, 0, 0, True)),
    ],
)
def test_what_counts_for_a_topic(options: dict[str, Any], own: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert Batchings(config({"orders": own}, **options), may_split=True).find("orders") == expected


def test_batch_does_not_grow_where_it_could_not_be_split() -> None:
    given = config({"orders": {"batch_size": 5000, "max_batch_size": 9000}})
    assert Batchings(given, may_split=False).find("orders") == (5000, 5000, 5, 0, False)


def test_each_codec_and_level_is_made_once() -> None:
    given = config(
        {
            "a": {"compression_type": "zstd"},
            "b*": {"compression_type": "zstd", "compression_zstd_level": 9},
            "c": {"compression_zstd_level": 9, "compression_type": "zstd", "linger_ms": 0},
            "d": {"compression_type": "none"},
        },
        compression_gzip_level=3,
    )
    made = Batchings(given, may_split=True)
    assert [codec and (codec.name, codec.level) for codec in made.codecs] == [None, ("zstd", 3), ("zstd", 9)]
    assert [made.find(topic)[3] for topic in ("a", "b1", "c", "d")] == [1, 2, 2, 0]  # type: ignore[index]


def test_level_of_a_topic_is_used_with_the_codec_of_the_producer() -> None:
    made = Batchings(config({"a": {"compression_gzip_level": 9}}, compression_type="gzip"), may_split=True)
    assert [codec and codec.level for codec in made.codecs] == [-1, 9]


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_level_is_the_one_of_the_codec_chosen(codec: str) -> None:
    chosen = config(compression_type=codec, **{f"compression_{codec}_level": 3})
    (made,) = Batchings(chosen, may_split=True).codecs
    assert made is not None
    assert made.level == 3


def test_missing_package_of_a_codec_is_reported_with_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(name: str, level: int | None) -> None:
        if name == "snappy":
            raise ConfigError("snappy needs a package")

    monkeypatch.setattr(batchings, "make_codec", make)
    with pytest.raises(ConfigError, match=r"topic_options of 'logs-\*': snappy needs a package"):
        Batchings(config({"logs-*": {"compression_type": "snappy"}}), may_split=True)


def test_more_codecs_than_a_partition_can_number_are_refused() -> None:
    def given(count: int) -> ProducerConfig:
        levels = range(-count, 0)
        return config({f"t{level}": {"compression_type": "zstd", "compression_zstd_level": level} for level in levels})

    assert len(Batchings(given(MOST_CODECS - 1), may_split=True).codecs) == MOST_CODECS
    with pytest.raises(ConfigError, match=f"topic_options has {MOST_CODECS + 1} codecs and levels"):
        Batchings(given(MOST_CODECS), may_split=True)


def test_request_has_room_for_full_batches_of_the_topic_with_the_largest() -> None:
    assert request_bytes(config({"a": {"batch_size": 2_000_000}, "b": {"batch_size": 1}})) == 16_000_000
    assert request_bytes(config({"a": {"linger_ms": 1}})) == request_bytes(config())
