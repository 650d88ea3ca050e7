"""The program `autocross`. Ctrl-C and the streams are looked after before anything else is imported."""

from __future__ import annotations

import signal
import sys

from autocross.interrupts import finish, take_over


def main() -> None:
    """Run the command that the arguments name, and end the process with its exit code."""
    interrupt = take_over()
    from autocross import streams

    streams.settle()
    from autocross import cli

    try:
        interrupt.begin()
        code = cli.run(None)
    except KeyboardInterrupt:  # before the command began, or while another one was dealt with
        code = cli.interrupted()
    finish()
    try:
        sys.stdout.flush()
    except OSError as error:
        code = cli.failed(error)
    if signal.getsignal(signal.SIGINT) is interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: Ctrl-C has nothing to stop but Python's own end
    sys.exit(code)


if __name__ == "__main__":
    main()
