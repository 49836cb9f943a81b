from typing import final

@final
class Field:
    name: str
    type_name: str
    timezone: str | None
    children: list[Field]
    dictionary: Field | None
