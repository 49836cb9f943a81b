"""Print docs/configuration.md, or with `types PATH` write option_types.py to PATH.

Not to the standard output: a shell empties the file before the package is loaded, which imports it.
"""

import sys
from pathlib import Path

from kafkaprod.config.documentation import configuration_page
from kafkaprod.config.typed_options import typed_options

if sys.argv[1:2] == ["types"]:
    Path(sys.argv[2]).write_text(typed_options(), encoding="utf-8")
else:
    sys.stdout.write(configuration_page())
