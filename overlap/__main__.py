"""`python -m overlap` is the command line, see `overlap.cli`."""

import sys

from overlap.cli import main

if __name__ == "__main__":
    sys.exit(main())
