"""`python -m brain_node`."""

from brain_node.cli import main

main()
