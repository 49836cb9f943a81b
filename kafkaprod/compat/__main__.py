"""Run a program with this engine in place of its client: `python -m kafkaprod.compat confluent_kafka -- program.py`."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path
from typing import get_args

from kafkaprod.compat.installation import Client, install


def main() -> None:
    """Install, then run the program as Python would."""
    parser = argparse.ArgumentParser(prog="python -m kafkaprod.compat", description=__doc__)
    parser.add_argument("client", choices=get_args(Client), help="the client whose producer is replaced")
    parser.add_argument("program", help="a file; -m NAME: a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program gets")
    given = sys.argv[1:]
    if "--" in given:  # all after it is the program's, options included
        split = given.index("--")
        options = parser.parse_args([*given[:split], "--", *(given[split + 1 : split + 2] or [])])
        command = given[split + 1 :]
    else:
        options = parser.parse_args(given)
        command = [options.program, *options.arguments]
    try:
        names = install(options.client)
    except ImportError as error:
        parser.exit(2, f"{parser.prog}: {options.client} is not installed: {error}\n")
    print(f"kafkaprod: in place are {', '.join(names)}", file=sys.stderr)
    if command[0] == "-m":
        if len(command) < 2:
            parser.error("-m needs the name of a module")
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        sys.path[0] = str(Path(command[0]).resolve().parent)
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main()
