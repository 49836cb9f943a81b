"""How the batches of a topic are made: the producer's options, and those that `topic_options` has for the topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkaprod.compression import LEVELS
from kafkaprod.config.producer_options import ProducerOptions


class TopicBatching(NamedTuple):
    """The values that count for a topic.

    Attributes:
        batch_size: See the option of this name, as for the next three.
        max_batch_size: See the option.
        linger_ms: See the option.
        compression_type: See the option.
        compression_level: The level of that codec; None for one without levels.
    """

    batch_size: int
    max_batch_size: int
    linger_ms: int
    compression_type: str
    compression_level: int | None


def batching_of(options: ProducerOptions, own: Mapping[str, Any]) -> TopicBatching:
    """Return what counts for a topic.

    Args:
        options: The producer's.
        own: What `topic_options` has for the topic; empty: nothing.
    """

    def value(name: str) -> Any:
        return own.get(name, getattr(options, name))

    batch_size, max_batch_size = value("batch_size"), value("max_batch_size")
    if "batch_size" in own and "max_batch_size" not in own:  # as for the producer: a size that is given is kept
        max_batch_size = batch_size
    elif "max_batch_size" in own and "batch_size" not in own:
        batch_size = min(batch_size, max_batch_size)
    codec = value("compression_type")
    level = value(f"compression_{codec}_level") if codec in LEVELS else None
    return TopicBatching(batch_size, max_batch_size, value("linger_ms"), codec, level)
