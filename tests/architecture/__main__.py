"""`python -m tests.architecture` prints the figures that the layout is held to, and what breaks them."""

from __future__ import annotations

from tests.architecture import counts
from tests.architecture.test_counts import CLASS_LINES, ROOMS


def main() -> None:
    """Print one line a figure, and below it what is beyond the limit."""
    rooms = counts.rooms()
    up = sorted(counts.arrows_up())
    groups = counts.circles(counts.imports())
    classes = counts.long_classes(CLASS_LINES)
    privates = counts.foreign_privates(counts.PACKAGE / "aio.py")
    rows = [
        ("rooms below the package", len(rooms), f"at most {ROOMS}", [" ".join(rooms)]),
        ("arrows between rooms", len(counts.room_arrows()), "", []),
        ("arrows that go up", len(up), "0", [f"{source} -> {target}" for source, target in up]),
        ("import and cimport circles", len(groups), "0", [" ".join(group) for group in groups]),
        (f"classes over {CLASS_LINES} lines", len(classes), "0", [f"{name}: {lines}" for name, lines in classes]),
        ("privates of others used in aio.py", len(privates), "0", privates),
    ]
    for title, figure, limit, details in rows:
        print(f"{title:36} {figure:5}  {limit}")
        for detail in details:
            print(f"    {detail}")


if __name__ == "__main__":
    main()
