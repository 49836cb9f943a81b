"""Many filters over many entries: what a look at each would find, without it."""

from __future__ import annotations

import random

from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acl_search import AclSearch
from kafkaprod.broker.settings.acls import Acl, AclFilter

NAMES = ["a", "ab", "abc", "b", "bc", "*"]


def test_each_entry_is_found_by_the_first_filter_that_matches_it() -> None:
    generator = random.Random(11)
    for _ in range(200):
        entries = {
            Acl(
                generator.choice([acls.TOPIC, acls.GROUP]),
                generator.choice(NAMES),
                generator.choice([acls.LITERAL, acls.PREFIXED]),
                generator.choice(["User:ann", "User:bob"]),
                generator.choice(["*", "h"]),
                generator.choice([acls.READ, acls.WRITE]),
                generator.choice([acls.ALLOW, acls.DENY]),
            )
            for _ in range(30)
        }
        search, left = AclSearch(entries), set(entries)
        for _ in range(12):
            wanted = AclFilter(
                generator.choice([acls.ANY, acls.TOPIC]),
                generator.choice([None, *NAMES, "abcd"]),
                generator.choice([acls.ANY, acls.MATCH, acls.LITERAL, acls.PREFIXED]),
                generator.choice([None, "User:ann"]),
                generator.choice([None, "h"]),
                generator.choice([acls.ANY, acls.READ]),
                generator.choice([acls.ANY, acls.DENY]),
            )
            expected = set(filter(wanted.matches, left))
            found = search.take(wanted)
            assert (set(found), len(found)) == (expected, len(expected)), wanted
            left -= expected
        assert set(search.taken) == entries - left


def test_entries_are_not_looked_at_again_for_each_filter() -> None:
    looks = 0

    class Watched(Acl):
        def __getitem__(self, place):  # type: ignore[no-untyped-def, override]
            nonlocal looks
            looks += 1
            return super().__getitem__(place)

    count = 1_000
    entries = [
        Watched(acls.TOPIC, f"t{number}", acls.PREFIXED, "User:ann", "*", acls.READ, acls.ALLOW)
        for number in range(count)
    ]
    search = AclSearch(entries)
    everything = AclFilter(acls.ANY, None, acls.ANY, None, None, acls.ANY, acls.ANY)
    for number in range(count):
        search.take(everything)
        search.take(everything._replace(principal=f"User:{number}"))
        search.take(everything._replace(name=f"u{number}", pattern_type=acls.MATCH, host="h"))
    assert len(search.taken) == count
    assert looks < 10 * count
