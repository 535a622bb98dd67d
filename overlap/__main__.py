"""`python -m overlap` is the command line, see `overlap.cli`."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 (a checkout runs without being installed)
    sys.exit("overlap needs Python 3.11 or newer; this is " + sys.version.split()[0])

from overlap.cli import main

if __name__ == "__main__":
    sys.exit(main())
