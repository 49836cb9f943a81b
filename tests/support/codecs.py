"""Codecs for tests that know that there is one."""

from __future__ import annotations

from kafkaprod.compression import Codec, make_codec


def codec_of(name: str, level: int | None = None) -> Codec:
    """Make the codec of a compression type other than none."""
    codec = make_codec(name, level)
    assert codec is not None
    return codec
