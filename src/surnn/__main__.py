"""``python -m surnn`` is the command ``surnn``."""

import sys

from surnn.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
