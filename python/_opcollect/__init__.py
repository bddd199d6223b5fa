"""The compiled library of `opcollect` and `oppredict`, and the entry point of the wheel's programs.

The entry point is in this package, because importing `opcollect` would load the library, which the programs do not need.
"""

import os
import sys
from pathlib import Path


def start():
    """Replaces this process by the program whose name it was called with."""
    program = Path(__file__).parent.parent / "opcollect" / "bin" / Path(sys.argv[0]).name
    os.execv(program, [str(program), *sys.argv[1:]])
