"""`python -m tests.architecture` prints the figures that the layout is held to, and what breaks them."""

from __future__ import annotations

from tests.architecture import counts, maps


def main() -> None:
    """Print one line a figure, and below it what is beyond the limit."""
    rooms = counts.rooms()
    up = sorted(counts.arrows_up())
    groups = counts.circles(counts.imports())
    privates = counts.foreign_privates(counts.PACKAGE / "aio.py")
    packages = maps.packages()
    up_inside = [f"{package}: {a} -> {b}" for package in packages for a, b in sorted(maps.arrows_up(package))]
    circles_inside = [f"{package}: {' '.join(group)}" for package, found in maps.circles().items() for group in found]
    unnamed = [f"{package}: {' '.join(sorted(names))}" for package in packages if (names := maps.unnamed(package))]
    arrows_inside = sum(len(targets) for package in packages for targets in maps.sibling_arrows(package).values())
    rows = [
        ("rooms below the package", len(rooms), f"at most {counts.MOST_ROOMS}", [" ".join(rooms)]),
        ("arrows between rooms", len(counts.room_arrows()), "", []),
        ("arrows that go up", len(up), "0", [f"{source} -> {target}" for source, target in up]),
        ("rooms at all depths", len(packages), "", []),
        ("arrows inside rooms", arrows_inside, "", []),
        ("arrows inside rooms that go up", len(up_inside), "0", up_inside),
        ("circles inside rooms, at all depths", len(circles_inside), "0", circles_inside),
        ("rooms whose map lacks a module", len(unnamed), "0", unnamed),
        ("import and cimport circles", len(groups), "0", [" ".join(group) for group in groups]),
        ("privates of others used in aio.py", len(privates), "0", privates),
    ]
    for title, figure, limit, details in rows:
        print(f"{title:36} {figure:5}  {limit}")
        for detail in details:
            print(f"    {detail}")


if __name__ == "__main__":
    main()
