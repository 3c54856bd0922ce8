"""The program `convoy`, which lies in bin/ beside this file."""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "convoy")
    if not os.path.exists(program):
        program = "convoy"
    try:
        os.execvp(program, ["convoy"] + sys.argv[1:])
    except OSError as problem:
        sys.exit(f"convoy: the program cannot be started: {problem}")


if __name__ == "__main__":
    main()
