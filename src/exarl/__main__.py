"""``python -m exarl``."""

import sys

from exarl.launch.cli import main

if __name__ == "__main__":
    sys.exit(main())
