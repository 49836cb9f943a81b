"""An input that is cut at any byte, or has any bit changed, gives all its rows or none without a complaint.

A part of what `python -m tests.campaigns.loader_damage` tries.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.loader.damage import CODECS, FORMATS, INNER, STREAMED, WAYS, Sample, judge

FEW = {"file": (20, 12), "pipe": (4, 4), "stdin": (4, 4)}  # cuts and flips


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", FORMATS)
def test_no_cut_and_no_flip_is_silent(kind: str, codec: str, way: str, tmp_path: Path) -> None:
    sample = Sample(kind, codec, way)
    lengths = [len(stream) for stream in sample.streams]
    borders = {0, 1, 8, lengths[0] - 1, lengths[0] + 1, sum(lengths) - 1, sum(lengths) - 8}
    cut_count, flip_count = FEW[way]
    cuts = {*random.Random(f"{sample}").sample(range(sum(lengths)), cut_count), *borders, lengths[0]}
    assert judge(sample, sorted(cut for cut in cuts if cut < sum(lengths)), flip_count, tmp_path).found == []


@pytest.mark.parametrize("kind", INNER)
def test_no_cut_and_no_flip_of_a_table_with_a_codec_of_its_own_is_silent(kind: str, tmp_path: Path) -> None:
    sample = Sample(kind, "none", "file")
    length = len(sample.streams[0])
    cuts = {*random.Random(f"{sample}").sample(range(length), 20), 0, 1, 8, length - 1, length - 8}
    assert judge(sample, sorted(cuts), 40, tmp_path).found == []


@pytest.mark.parametrize("codec", STREAMED)
def test_every_cut_of_compressed_lines_is_noticed(codec: str, tmp_path: Path) -> None:
    sample = Sample("lines", codec, "file")
    assert judge(sample, range(len(b"".join(sample.streams))), 0, tmp_path).found == []


def test_every_cut_of_an_arrow_stream_is_noticed(tmp_path: Path) -> None:
    sample = Sample("arrow stream", "none", "file")
    assert judge(sample, range(len(b"".join(sample.streams))), 0, tmp_path).found == []
