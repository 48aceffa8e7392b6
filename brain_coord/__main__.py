"""`brain-coord` and `python -m brain_coord`: the command line, quiet also when Ctrl-C comes while it loads."""

import sys


def main() -> None:
    """Run the command line; 130 when interrupted where no command waits for it."""
    try:
        from brain_coord.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
