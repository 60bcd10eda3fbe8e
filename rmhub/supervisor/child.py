"""The prelude of every supervised process: ties its life to its parent's, then becomes the program.

    python -I -S child.py PARENT SIGNAL USER GROUP PROGRAM [ARGUMENT ...]

It is run by its path and not by ``-m``, so that it needs neither the project nor its packages on the import path,
and instead of ``preexec_fn``, because running Python between fork and exec is unsafe in a process with threads.

The order matters: the kernel forgets the parent-death signal when a process changes its user or group, so the signal
is set after that; and the C library is loaded before it, because the new user may not be allowed to read this
interpreter's files any more.

Exit codes: 127 when the program does not exist, 126 when it cannot be run or the user cannot be changed,
125 when the parent had died before the signal was set.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
# Python ignores SIGPIPE and SIGXFSZ, a shell's `&` ignores SIGINT, nohup ignores SIGHUP; and what is ignored stays
# ignored after exec. A supervised program starts with none of that.
RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)


def main(arguments: list[str]) -> int:
    """Become the program; return (an exit code) only when that fails."""
    parent, death_signal, user, group, *program = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    for number in RESET:
        signal.signal(number, signal.SIG_DFL)
    try:
        if user != "-":
            os.setgroups([])
            os.setgid(int(group))
            os.setuid(int(user))
    except OSError as error:
        print(f"cannot become user {user}: {error.strerror}", file=sys.stderr)
        return 126
    if libc.prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) != 0:
        print(f"prctl: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return 126
    if os.getppid() != int(parent):
        return 125  # it died before the signal was set, and will not die again
    try:
        os.execvpe(program[0], program, os.environ)  # noqa: S606 - that is its purpose
    except FileNotFoundError:
        print(f"{program[0]}: no such program", file=sys.stderr)
        return 127
    except OSError as error:
        print(f"{program[0]}: {error.strerror}", file=sys.stderr)
        return 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
