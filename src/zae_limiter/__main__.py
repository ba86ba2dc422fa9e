"""Runs the command line: ``python -m zae_limiter``, and the program ``zae-limiter``."""

import os
import signal
import sys
from contextlib import suppress

_INTERRUPTED = 130


def run() -> None:
    """Run the command line. Ctrl-C ends it with exit code 130, also while its modules are imported."""
    try:
        from zae_limiter.cli import main

        main(prog_name="zae-limiter")
    except KeyboardInterrupt:
        with suppress(OSError):
            sys.stderr.write("Interrupted.\n")
        _end_interrupted()
    except SystemExit as ending:
        if ending.code == _INTERRUPTED:
            _end_interrupted()
        raise
    finally:
        # Ctrl-C while Python ends would print a traceback. Now it ends the process immediately.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end_interrupted() -> None:
    """End the process without waiting for threads that may still wait for the network."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    # Not sys.exit: after an interrupted import, Python would replace the exit code by the signal.
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    run()
