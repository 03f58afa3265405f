"""How commands end: successfully, or with one line on standard error and an exit code.

0 success; 1 an error; 2 wrong usage; 130 interrupted by the user. Only --debug shows a
traceback.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import typer

from fedcircuits.errors import FedcircuitsError

DEBUG: ContextVar[bool] = ContextVar("debug", default=False)


@contextmanager
def clear() -> Iterator[None]:
    """Any error inside ends the command with one line; warnings become notes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _once()
            yield
    except BrokenPipeError:  # the reader has seen enough: typer ends quietly
        raise
    except KeyboardInterrupt:
        fail("stopped", 130)
    except FedcircuitsError as error:
        fail(str(error), 1)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except MemoryError as error:
        fail(f"out of memory: {error or 'nothing is left'}; give fewer rows", 1)
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        again = "fedcircuits --debug … shows where"
        fail(f"unexpected {type(error).__name__}: {error}; {again}", 1)


def _once() -> Callable[..., None]:
    """Shows warnings as notes, each text once: files may be read twice."""
    from fedcircuits.app.screen import warn

    shown: set[str] = set()

    def note(message: Warning | str, *_: object) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            warn(str(message))

    return note


def fail(message: str, code: int) -> None:
    from fedcircuits.app.screen import in_options, one_line, plain

    if DEBUG.get():
        traceback.print_exc()
    print(f"fedcircuits: {plain(in_options(one_line(message)))}", file=sys.stderr, flush=True)
    raise typer.Exit(code)
