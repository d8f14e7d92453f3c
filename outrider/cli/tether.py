"""Runs a command that dies with its parent, even a killed one: `tether.py PARENT_PID COMMAND...`

A file to be run, not imported: it replaces itself by the command. Linux keeps the tether across
    that; systems
without prctl run the command untethered.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

SET_PARENT_DEATH_SIGNAL = 1


def main(parent: int, command: list[str]) -> None:
    """Ties this process to its parent and becomes the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the tether held
            sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 - the command is the supervisor's own


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
