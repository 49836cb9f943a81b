"""The response in which every part of a request has failed with one error, from the declaration of the response.

Its error codes are set, and the items of the request (topics, partitions, groups ...) are answered one by one where
`Sources` name them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import ArrayType, FixedType, ScalarType
from kafkaprod.protocol.messages import REQUESTS, RESPONSES
from kafkaprod.protocol.schema import Request, Response

Sources = Mapping[str, str | int]
"""Where fields of a response come from: the name of a field of the request, "" for the item itself, or a number.

Arrays that are not named stay empty. Other fields of an item come from the item's field of the same name, if any.
"""

NO_ITEMS: Final[Sources] = {}


def refusal(body: Request, version: int, error_code: int, sources: Sources = NO_ITEMS) -> Response:
    """Return the response in which every part of a request has failed."""
    response: Response = _plan(body.api, version, tuple(sources.items())).answer(body, error_code)
    return response


class _Plan(NamedTuple):
    """How one struct of a response is made from one of a request, or from an item that is no struct.

    Attributes:
        made: The class of the struct.
        has_error: It has an error code.
        numbers: The fields that are always the same.
        copied: The fields that come from the request, and from which of its fields; "" for the item itself.
        arrays: The arrays, which arrays of the request they answer, and the plan of their items.
    """

    made: Any
    has_error: bool
    numbers: dict[str, Any]
    copied: list[tuple[str, str]]
    arrays: list[tuple[str, str, _Plan]]

    def answer(self, given: Any, error_code: int) -> Any:
        """Return the struct that answers one of the request."""
        values = self.numbers.copy()
        if self.has_error:
            values["error_code"] = error_code
        for name, source in self.copied:
            values[name] = getattr(given, source) if source else given
        for name, source, plan in self.arrays:
            values[name] = [plan.answer(item, error_code) for item in getattr(given, source) or ()]
        return self.made(**values)


@cache
def _plan(api: ApiKey, version: int, sources: tuple[tuple[str, str | int], ...]) -> _Plan:
    return _planned(RESPONSES[api], REQUESTS[api], version, dict(sources), is_item=False)


def _planned(made: Any, given: Any, version: int, sources: Sources, *, is_item: bool = True) -> _Plan:
    """Plan a struct of class `made`, from one of class `given`: a message, or else an item of it."""
    plan = _Plan(made, False, {}, [], [])
    given_fields = {field.name: field.type for field in getattr(given, "fields", ())}
    for field in made.fields:
        name, source = field.name, sources.get(field.name)
        if not field.is_in(version):
            continue
        if name == "error_code":
            plan = plan._replace(has_error=True)
        elif isinstance(source, int):
            plan.numbers[name] = source
        elif isinstance(field.type, ArrayType):
            if source is not None:
                item = given_fields[source].element
                plan.arrays.append((name, source, _planned(field.type.element, item, version, sources)))
        elif is_item and source is not None:
            plan.copied.append((name, source))
        elif is_item and isinstance(field.type, (FixedType, ScalarType)) and name in given_fields:
            plan.copied.append((name, name))
    return plan
