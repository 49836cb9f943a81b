"""Regular expressions over topic names: as Python's, the whole name, and without backtracking."""

from __future__ import annotations

import contextlib
import re
import resource
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaprod.broker.coordinator.topic_regex import MAX_PATTERN_LENGTH, TopicRegex

ATOMS = st.sampled_from(["a", "b", ".", r"\.", "[ab]", "[^a]", "[a-c]", r"\d", r"\w", r"\W", r"\b", "_", "^", "$", ""])
patterns = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])).map("({0[0]}){0[1]}".format),
    ),
    max_leaves=8,
)
names = st.text("abc.-_1A", min_size=1, max_size=8)


@given(patterns, names, st.booleans())
def test_matches_what_python_matches(pattern: str, name: str, ignores_case: bool) -> None:
    if ignores_case:
        pattern = f"(?i){pattern}"
    assert TopicRegex(pattern).matches(name) == bool(re.fullmatch(pattern, name))


def test_patterns_that_stop_other_engines_end_at_once() -> None:
    regex = TopicRegex("(a+)+b|(a|a)*c|(.*)*d")
    assert not regex.matches("a" * 249)
    assert regex.matches("a" * 200 + "d")


@pytest.mark.parametrize(
    "pattern", ["(", "a{2", "[", "*", r"(a)\1", "(?=a)", "(?!a)", "(" * 5000, "(a{1000}){1000}", "\ud800"]
)
def test_what_is_not_supported_is_refused_by_name(pattern: str) -> None:
    if pattern == "a{2":  # a literal, for Python and RE2
        assert TopicRegex(pattern).matches("a") is False
        return
    with pytest.raises(ValueError, match=r"regular expression|not supported"):
        TopicRegex(pattern)


@pytest.mark.parametrize("pattern", ["(){4000000000}", "(.{0,500}){2}x", ".*" * 10_000, "a" * 30_000, "(((a*)*)*)*b"])
def test_no_pattern_takes_long(pattern: str) -> None:
    began_s = time.thread_time()
    with contextlib.suppress(ValueError):
        TopicRegex(pattern).matches("a" * 249)
    assert time.thread_time() - began_s < 0.5


def test_without_the_package_every_pattern_is_refused_and_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ValueError, match=r"google-re2.*pip install 'kafkaprod\[regex\]'"):
        TopicRegex("a.*")


def test_a_pattern_that_takes_long_over_many_names_is_refused() -> None:
    """RE2 is linear in a name, and slow for each character where counted alternatives need many states."""
    regex = TopicRegex("(a|b)*a(a|b){480}")
    names = [f"{each:010b}".translate({48: "a", 49: "b"}) * 24 for each in range(1000)]
    began_s = time.thread_time()
    with pytest.raises(ValueError, match="make it simpler"):
        regex.matching(names)
    assert time.thread_time() - began_s < 0.5
    assert TopicRegex("a.*").matching(["ab", "b"]) == {"ab"}


def test_groups_take_no_memory_of_their_own() -> None:
    pattern = "(" * 4_000 + "a*" + ")" * 4_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert TopicRegex(pattern).matching(["aaa", "b"]) == {"aaa"}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB; with captures 490 MiB


def test_long_pattern_is_refused_by_its_length() -> None:
    assert TopicRegex("a" * MAX_PATTERN_LENGTH).matches("a" * MAX_PATTERN_LENGTH)
    with pytest.raises(ValueError, match=f"of {MAX_PATTERN_LENGTH + 1} characters is longer than {MAX_PATTERN_LENGTH}"):
        TopicRegex("a" * (MAX_PATTERN_LENGTH + 1))
