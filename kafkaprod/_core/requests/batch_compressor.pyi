from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Self, final

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod.compression import Codec

@final
class BatchCompressor:
    def __new__(
        cls, accumulator: Accumulator, codecs: Sequence[Codec | None], workers: Executor | None = None
    ) -> Self: ...
