"""What a test has broken and can mend."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self


class Disturbance:
    """Something that is broken from the call on that returned this; the end of a `with` block mends it.

    cluster.cut(1, 2)               # until cluster.heal()
    with cluster.cut(1, 2): ...     # until the end of the block
    """

    def __init__(self, mend: Callable[[], None]) -> None:
        self._mend = mend

    def heal(self) -> None:
        """Mend it. Idempotent."""
        self._mend()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal()
