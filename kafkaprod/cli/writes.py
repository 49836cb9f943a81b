"""`kafkaprod writes`: list the writes with a write_id that a cluster knows, show one, forget one."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from kafkaprod.admin.client import ClusterClient
from kafkaprod.cli.main import examples
from kafkaprod.cli.producer_arguments import add_cluster_arguments, make_config, open_cluster, read_options
from kafkaprod.errors import KafkaError
from kafkaprod.marks.listing import find_mark, forget, list_marks
from kafkaprod.marks.mark import Mark
from kafkaprod.marks.verdict import when
from kafkaprod.producer import start_writer
from kafkaprod.text import counted, printable

_PATIENCE_MS = 10_000


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand and its own ones."""
    parser = subparsers.add_parser(
        "writes",
        help="list, show, forget writes with a write_id",
        epilog=examples(
            "kafkaprod writes list -b localhost:9092",
            "kafkaprod writes show orders-2026-11-28 -b localhost:9092 --json",
            "kafkaprod writes forget orders-2026-11-28 -b localhost:9092",
        ),
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="print the ids of committed writes, with rows, topics and times")
    listing.add_argument("--prefix", default="", metavar="TEXT", help="only ids that begin so")
    showing = actions.add_parser("show", help="print what the cluster keeps of a write")
    forgetting = actions.add_parser(
        "forget",
        help="delete the mark of a write",
        description="A job that is run after that writes all of its rows, beside those that are there.",
    )
    for action in (showing, forgetting):
        action.add_argument("write_id", metavar="ID")
    for action, work in ((listing, _list), (showing, _show), (forgetting, _forget)):
        add_cluster_arguments(action)
        action.set_defaults(run=run, work=work)
        action.add_argument("--json", action="store_true", help="print JSON")
    forgetting.add_argument("-q", "--quiet", action="store_true", help="print only errors")


def run(options: argparse.Namespace) -> int:
    """Do what the action names. Raises KafkaError."""
    with open_cluster(options, read_options(options)) as client:
        options.work(client, options)
    return 0


def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    marks = list_marks(client, options.prefix)
    if options.json:
        print(json.dumps([asdict(mark) for mark in marks]))
        return
    for mark in marks:
        print(_line(mark))


def _show(client: ClusterClient, options: argparse.Namespace) -> None:
    mark = find_mark(client, options.write_id, _PATIENCE_MS)
    if mark is None:
        raise KafkaError(f"the cluster keeps no mark of write {options.write_id!r}: it is not written, or long ago")
    if options.json:
        print(json.dumps(asdict(mark)))
        return
    print(_line(mark))
    print(printable(f"  by {mark.written_by}, digest {mark.digest or 'none'}, cluster {mark.cluster or 'unknown'}"))


def _forget(client: ClusterClient, options: argparse.Namespace) -> None:
    forget(client, make_config(read_options(options)), start_writer, options.write_id)
    if options.json:
        print(json.dumps({"write_id": options.write_id, "outcome": "forgotten"}))
    elif not options.quiet:
        print(f"write {printable(options.write_id)} is forgotten: it can be written again", file=sys.stderr)


def _line(mark: Mark) -> str:
    missing = "" if mark.is_done else "  not complete: run it again"
    return printable(f"{mark.write_id}  {counted(mark.rows, 'row')}  {','.join(mark.topics)}  {when(mark)}{missing}")
