from collections.abc import Iterable, Mapping
from typing import TypeAlias

from typing_extensions import Buffer, disjoint_base

_Headers: TypeAlias = Mapping[str, Buffer | None] | Iterable[tuple[str, Buffer | None]]

@disjoint_base
class RecordArguments: ...
