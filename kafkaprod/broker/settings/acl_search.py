"""Many filters over many ACLs, each entry found once: as much work as there are entries and filters, not their product.

For each set of fields that filters give a value to, the entries are put into a table by their values in these fields.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from kafkaprod.broker.settings.acls import ANY, LITERAL, MATCH, PREFIXED, WILDCARD, Acl, AclFilter

_NAME: Final = Acl._fields.index("name")
_PATTERN: Final = Acl._fields.index("pattern_type")

_Values = tuple[object, ...]
_Table = dict[_Values, list[Acl]]


class AclSearch:
    """Finds entries by filters; an entry belongs to the first filter that matches it. Not thread-safe."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._acls = tuple(acls)
        self._prefix_lengths = sorted({len(acl.name) for acl in self._acls if acl.pattern_type == PREFIXED})
        self._tables: dict[tuple[int, ...], _Table] = {}
        self.taken: dict[Acl, None] = {}

    def take(self, wanted: AclFilter) -> list[Acl]:
        """Return the entries that a filter matches and no filter before it did."""
        found = [acl for values in self._wanted(wanted) for acl in self._pop(values) if acl not in self.taken]
        self.taken.update(dict.fromkeys(found))
        return found

    def _wanted(self, wanted: AclFilter) -> Iterator[_Values]:
        """Yield the values that entries have: None where all will do."""
        values = [None if value in (None, ANY) else value for value in wanted]
        if wanted.pattern_type != MATCH:
            yield tuple(values)
            return
        values[_PATTERN] = None
        if wanted.name is None:
            yield tuple(values)
            return
        for values[_PATTERN], values[_NAME] in self._patterns_over(wanted.name):
            yield tuple(values)

    def _patterns_over(self, name: str) -> Iterator[tuple[int, str]]:
        yield LITERAL, name
        if name != WILDCARD:
            yield LITERAL, WILDCARD
        for length in self._prefix_lengths:
            if length > len(name):
                return
            yield PREFIXED, name[:length]

    def _pop(self, values: _Values) -> list[Acl]:
        fields = tuple(place for place, value in enumerate(values) if value is not None)
        table = self._tables.get(fields)
        if table is None:
            table = self._tables[fields] = self._make_table(fields)
        return table.pop(tuple(values[place] for place in fields), [])

    def _make_table(self, fields: tuple[int, ...]) -> _Table:
        table: defaultdict[_Values, list[Acl]] = defaultdict(list)
        for acl in self._acls:
            table[tuple(acl[place] for place in fields)].append(acl)
        return table
