"""Read files with the loader of a tree: `PYTHONPATH=TREE python loaded_rows.py`, see `reading_program`.

Trees as old as 0.1 can be read, too. The answer to a path and its format is the values of the records, and why not all
rows are among them; or what ended the loader that should not.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping


def rows_of(request: Mapping[str, str]) -> tuple[list[bytes | None], str, str]:
    """Read a file.

    Args:
        request: Its path and its format, which is empty for a folder.

    Returns:
        The values; an error, or the first bad row; the last lines of a traceback.
    """
    from kafkaprod.errors import KafkaError
    from kafkaprod.loader.finding.inputs import find_sources
    from kafkaprod.loader.formats import readers
    from kafkaprod.tables.row_plan import RowPlan

    options = readers.ReadOptions(RowPlan(""))
    values: list[bytes | None] = []
    bad = ""
    try:
        for source in find_sources([request["path"]], request["format"] or None):
            readers.check_readable(source, options)
            if hasattr(readers, "check_columns"):  # 0.1 has none
                readers.check_columns(source, options)
            for block in readers.read_rows(source, options):
                values += [block.value[place] for place in range(block.row_count)] if block.value is not None else []
                bad = bad or (str(block.bad[0]) if block.bad else "")
    except (KafkaError, OSError) as error:
        return [], str(error) or repr(error), ""
    except Exception:
        return [], "", traceback.format_exc(-1)
    return values, bad, ""


if __name__ == "__main__":
    from reading_program import answer  # which is beside this file

    answer(rows_of)
