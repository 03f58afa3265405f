"""The command ``fedcircuits``, also as ``python -m fedcircuits``.

It imports what it runs itself, so that Ctrl-C is answered in one line from the first moment on.
Once a command has ended, Ctrl-C ends the program at once, without a traceback of some library.
"""

import signal
import sys


def main() -> None:
    try:
        from fedcircuits.app.cli import main as run

        run()
    except KeyboardInterrupt:
        print("fedcircuits: stopped", file=sys.stderr)
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
