"""The compiled library of `opcollect` and `oppredict`, and what starts the programs of the wheel.

The programs start from here because importing `opcollect` maps the library, which they do not need.
"""

import os
import sys
from pathlib import Path


def start():
    """Replaces this process by the program that it was called as."""
    program = Path(__file__).parent.parent / "opcollect" / "bin" / Path(sys.argv[0]).name
    os.execv(program, [str(program), *sys.argv[1:]])
