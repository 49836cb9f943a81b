"""`kafkaprod load --engine spark` as a program for spark-submit, which then chooses the master and its resources.

spark-submit "$(python -c 'import kafkaprod.cli.load_submit as program; print(program.__file__)')" -t orders data/
"""

import sys

from kafkaprod.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["load", "--engine", "spark", *sys.argv[1:]]))
