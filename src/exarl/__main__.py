"""``python -m exarl``."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # The working folder; as for the command 'exarl', it joins the path when a module is named.
        del sys.path[0]
    from exarl.cli.main import entry

    entry()
