"""How the batches of each topic are made, by `topic_options`. Made once, then only read."""

from __future__ import annotations

from functools import partial
from typing import Final

from kafkaprod.compression import Codec, make_codec
from kafkaprod.config import ProducerConfig
from kafkaprod.config.topic_batching import TopicBatching, batching_of
from kafkaprod.errors import ConfigError
from kafkaprod.threads import apart

MOST_CODECS: Final = 256  # each partition has the number of its own in a byte


class Batchings:
    """The codecs of a producer, and what its core is given for each new topic.

    Args:
        config: Options.
        may_split: Whether a batch that a broker calls too large can be split; else none grows above its `batch_size`.

    Attributes:
        codecs: The producer's own codec, and those that only topics have. None: no compression.

    Raises:
        ConfigError: The package of a codec is missing.
    """

    def __init__(self, config: ProducerConfig, *, may_split: bool) -> None:
        self._config = config
        self._may_split = may_split
        usual = batching_of(config, {})
        self.codecs: list[Codec | None] = [_make_codec(usual)]
        self._indices = {(usual.compression_type, usual.compression_level): 0}
        for pattern, own in config.topic_options:
            batching = batching_of(config, dict(own))
            named = (batching.compression_type, batching.compression_level)
            if named not in self._indices:
                self._indices[named] = len(self.codecs)
                try:
                    self.codecs.append(_make_codec(batching))
                except ConfigError as error:
                    raise ConfigError(f"topic_options of {pattern!r}: {error}") from None
        if len(self.codecs) > MOST_CODECS:
            raise ConfigError(
                f"topic_options has {len(self.codecs)} codecs and levels, of {MOST_CODECS} that are possible: use fewer"
            )

    def find(self, topic: str) -> tuple[int, int, int, int, bool] | None:
        """Return what `Accumulator.topic_batching` has to return; None for a topic without options of its own."""
        own = self._config.topic_options.find(topic)
        if not own:
            return None
        batching = batching_of(self._config, own)
        index = self._indices[batching.compression_type, batching.compression_level]
        most = batching.max_batch_size if self._may_split else batching.batch_size
        return batching.batch_size, most, batching.linger_ms, index, self.codecs[index] is not None


def _make_codec(batching: TopicBatching) -> Codec | None:
    return apart(partial(make_codec, batching.compression_type, batching.compression_level))  # imports its package
