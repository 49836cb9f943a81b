"""`python -m kafkaprod`: the command line."""

import sys

from kafkaprod.cli.main import main

sys.exit(main())
