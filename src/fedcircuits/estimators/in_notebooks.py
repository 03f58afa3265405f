"""The notebook representation of a model: its parameters and, once fitted, what it has learned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from fedcircuits.tables.notebook import shown


class Arguments(Protocol):
    def get_params(self, deep: bool = True) -> dict[str, Any]: ...


class ShownInNotebooks:
    """Replaces scikit-learn's diagram, which shows parameters only."""

    def _repr_html_(self) -> str:
        return model_html(self)  # type: ignore[arg-type]

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def model_html(model: Arguments) -> str:
    """A table of facts, and the ledger if there is one."""
    facts = [*_learned(model), *_arguments(model)]
    fitted = any(name.endswith("_") and not name.startswith("_") for name in vars(model))
    state = "fitted" if fitted else "not fitted yet: call fit"
    html = shown(f"{type(model).__name__}, {state}", ["", ""], facts)
    ledger = getattr(model, "ledger_", None)
    return html if ledger is None else html + str(ledger._repr_html_())


def _learned(model: object) -> Iterator[tuple[str, object]]:
    held = vars(model)
    circuit = held.get("circuit_")
    if circuit is not None:
        yield "columns", len(circuit.schema)
        yield "nodes", len(circuit)
    if isinstance(parties := held.get("views_"), dict):
        yield "parts at", ", ".join(map(str, parties))
    if held.get("where_") is not None:
        yield "consortium", held["where_"].consortium
    if history := held.get("history_"):
        if isinstance(history, list) and isinstance(history[-1], float):
            yield "log-likelihood per row, last", float(history[-1])
    for note in held.get("notes_") or ():
        yield "note", note


def _arguments(model: Arguments) -> Iterator[tuple[str, object]]:
    """Parameters that differ from their defaults."""
    try:
        plain = type(model)().get_params(deep=False)
    except TypeError:  # needs arguments
        plain = {}
    for name, value in model.get_params(deep=False).items():
        if name not in plain or repr(value) != repr(plain[name]):
            text = repr(value)
            yield name, text if len(text) <= 80 else f"{text[:77]}…"
