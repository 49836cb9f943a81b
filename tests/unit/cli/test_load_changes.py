"""Names of the options that a resumed load has otherwise than the load before."""

import json
from dataclasses import asdict

import pytest

from kafkaprod.cli.load_arguments import fingerprint_of, reading_of
from kafkaprod.cli.load_changes import changed_options
from kafkaprod.cli.main import build_parser
from kafkaprod.loader.formats.readers import ReadOptions
from kafkaprod.loader.opening.source import Source
from kafkaprod.tables.row_plan import RowPlan


def fingerprint(*flags: str) -> dict[str, object]:
    options = build_parser(["load"]).parse_args(["load", "in.csv", "-t", "t", *flags])
    wanted: dict[str, object] = fingerprint_of(options, reading_of(options), [Source("in.csv", "csv")])
    return json.loads(json.dumps(wanted))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("before", "now", "phrases"),
    [
        ((), (), []),
        ((), ("--key", "id"), ["--key was not given, now id"]),
        (("--key", "{a}-{b}"), ("--key", "b"), ["--key was {a}-{b}, now b"]),
        (("-k", "same"), (), ["--key was same, now not given"]),
        ((), ("-H", "a=x{id}", "-H", "b=y"), ["-H was not given, now a=x{id}, b=y"]),
        (("--infer-types",), (), ["--infer-types was given, now not given"]),
        ((), ("--column-type", "a=int"), ["--column-type was not given, now a=int"]),
        ((), ("--null", "NA", "--null", "-"), ["--null was not given, now NA,-"]),
        (("--columns", "a,b"), ("--columns", "a,c"), ["--columns was a,b, now a,c"]),
        (("--column-names", "a"), (), ["--columns or --column-names was a, now not given"]),
        (("-p", "0"), ("-p", "1"), ["--partition was 0, now 1"]),
        (("--skip-lines", "2"), (), ["--skip-lines was 2, now not given"]),
        ((), ("--escape", "\\"), ["--escape was not given, now '\\\\'"]),
        ((), ("--comment", "#"), ["--comment was not given, now '#'"]),
        ((), ("--elements", "features"), ["--elements was not given, now features"]),
        ((), ("--separator", ";"), ["--separator was not given, now ';'"]),
        (
            ("--value", "raw"),
            ("--timestamp", "t"),
            ["--value was raw, now not given", "--timestamp was not given, now t"],
        ),
    ],
)
def test_each_changed_option_is_named_with_both_values(
    before: tuple[str, ...], now: tuple[str, ...], phrases: list[str]
) -> None:
    assert changed_options(fingerprint(*before), fingerprint(*now)) == phrases


def test_what_only_the_manifest_has_is_no_option() -> None:
    assert changed_options(fingerprint() | {"record_limit": 5, "needs_keys": False}, fingerprint()) == []


def test_forms_and_columns_of_folders_that_only_the_manifest_has_are_changes() -> None:
    more = {"forms": ["INT96"], "folder_columns": ["year"]}
    assert changed_options(fingerprint() | more, fingerprint()) == [
        "what is written in another form since version 0.1 was INT96, now not given",
        "columns of folders' names was year, now not given",
    ]


def test_every_field_of_the_fingerprint_has_an_option() -> None:
    from kafkaprod.cli.load_changes import _DERIVED, _KNOWN

    fields = {f"plan.{name}" for name in asdict(RowPlan())} | set(asdict(ReadOptions(RowPlan()))) - {"plan"}
    assert fields - _DERIVED <= set(_KNOWN)
