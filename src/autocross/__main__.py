"""The program `autocross`. Ctrl-C and the streams are looked after before anything else is imported."""

# Python has this one from its start. To import signal, which is made of it, takes longer than all that comes before our first line.
import _signal  # type: ignore[import-not-found]


def main() -> None:
    """Run the command that the arguments name, and end the process with its exit code."""
    if hasattr(_signal, "pthread_sigmask"):  # from here on no Ctrl-C ends in a traceback
        _signal.pthread_sigmask(_signal.SIG_BLOCK, {_signal.SIGINT})
    import signal
    import sys

    from autocross.interrupts import finish, hold_back, take_over

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
        hold_back(True)  # Python complains of one that comes while its handler is taken away
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: Ctrl-C has nothing to stop but Python's own end
    sys.exit(code)


if __name__ == "__main__":
    main()
