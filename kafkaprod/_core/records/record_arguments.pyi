from collections.abc import Iterable, Mapping
from typing import TypeAlias, final

from typing_extensions import Buffer

_Headers: TypeAlias = Mapping[str, Buffer | None] | Iterable[tuple[str, Buffer | None]]

@final
class RecordArguments: ...
