"""What a run of another project's tests came to, against what is expected of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Results:
    """Names of tests, subtests included."""

    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)


def summarize(title: str, results: Results, expected_failures: Mapping[str, str]) -> int:
    """Print counts, the expected failures by reason, and what differs from them; return the exit status."""
    failed, passed = results.failed, results.passed
    print(f"{title}: {len(passed)} passed, {len(failed)} failed, {len(results.skipped)} skipped")
    for reason, number in Counter(expected_failures.get(name, "NOT EXPECTED") for name in failed).items():
        print(f"  {number} failed: {reason}")
    for name in sorted(failed - expected_failures.keys()):
        print(f"  not expected to fail: {name}")
    for name in sorted(passed & expected_failures.keys()):
        print(f"  expected to fail, but passed: {name}")
    is_as_expected = passed and failed <= expected_failures.keys() and not passed & expected_failures.keys()
    return 0 if is_as_expected else 1
