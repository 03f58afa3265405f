"""Commands run within a test, their two streams apart, with any version of click."""

import inspect

from typer.testing import CliRunner

_OLD = "mix_stderr" in inspect.signature(CliRunner.__init__).parameters  # before click 8.2
RUNNER = CliRunner(mix_stderr=False) if _OLD else CliRunner()  # type: ignore[call-arg]
