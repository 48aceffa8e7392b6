"""`python -m brain_coord`."""

from brain_coord.cli import main

main()
