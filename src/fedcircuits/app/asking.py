"""Questions on the command line, and their answers.

    P(event)  P(event | evidence)      a probability; P( ) may be left out
    P(column) P(column | evidence)     the probabilities of all values of a category
    E(column) E(column | evidence)     mean and variance of a number or boolean

Events and evidence are read by circuits/questions/events.py. The name of a column wins: if there is
a column ``E (kPa)``, then ``E (kPa) > 2`` is an event. Queries of a file need not wait for torch
and scikit-learn, which are imported only for models at sites.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from fedcircuits.app.screen import one_line
from fedcircuits.circuits.graph import files
from fedcircuits.circuits.questions.events import Evidence, parse_evidence, parse_question
from fedcircuits.circuits.questions.queryable import Queryable
from fedcircuits.circuits.questions.regions import conjunction
from fedcircuits.circuits.questions.scanner import Scanner
from fedcircuits.circuits.questions.small import SmallDistribution
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Schema, Variable

_OPENING = re.compile(r"\s*(E|Pr?)\s*\(", re.IGNORECASE)


Form = Literal["probability", "expectation", "probabilities"]
Values = Mapping[str, float]  # of the form; mean and variance; values of a category


@contextmanager
def asked(path: Path, consortium: Path | None) -> Iterator[Queryable]:
    """The distribution in a file, for single queries; sites are connected meanwhile."""
    if files.is_part(path):
        from fedcircuits.app.loading import opened

        with opened(path, consortium) as model:
            yield model._distribution
        return
    circuit, parameters, metadata = files.read(path)
    if not circuit.is_density:
        files.require_estimator(path, metadata, None)
    yield SmallDistribution(circuit, parameters)


@dataclass(frozen=True, slots=True)
class Answer:
    question: str
    form: Form
    values: Values
    variable: Variable | None = None  # of an expectation

    def words(self) -> str:
        if self.form == "probability":
            question = self.question if _OPENING.match(self.question) else f"P({self.question})"
            return f"{question} = {self.values['probability']:.6g}"
        if self.form == "expectation":
            spread = self.values["variance"] ** 0.5
            if self.variable is not None and self.variable.dated:
                day = self.variable.decode(self.values["mean"])
                return f"{self.question} = {day} ± {spread:.4g} days"
            return f"{self.question} = {self.values['mean']:.6g} ± {_plain(spread)}"
        lines = (f"  {name}: {value:.6g}" for name, value in self.values.items())
        return "\n".join([self.question, *lines])

    def to_json(self) -> dict[str, object]:
        values: Mapping[str, object] = self.values
        if self.form == "probabilities":
            values = {"probabilities": dict(self.values)}
        elif self.variable is not None and self.variable.dated:  # numbers are days since 1970
            values = {**self.values, "date": self.variable.decode(self.values["mean"])}
        return {"question": self.question, **values}


def _plain(number: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{float(f'{number:.3g}'):g}"


def answered(model: Queryable, question: str) -> Answer:
    """The answer, or a one-line QueryError that starts with the question."""
    text = question.strip()
    try:
        return Answer(text, *_found(model, text))
    except QueryError as error:
        raise QueryError(f"{text or 'an empty question'}: {one_line(str(error))}") from error


def _found(model: Queryable, text: str) -> tuple[Form, Values, Variable | None]:
    schema = model.circuit.schema
    column = _column(text, schema)
    if column is None:
        event, evidence = parse_question(text, schema)
        x, known = evidence.row(schema), evidence.event
        logs = model.log_evidence(x, known)
        joint = model.log_probability(x, conjunction(event, known))
        return "probability", {"probability": float(np.exp(min(joint[0] - logs[0], 0.0)))}, None
    variable, expected, evidence = column
    x, known = evidence.row(schema), evidence.event
    model.log_evidence(x, known)
    if expected:
        mean, variance = model.moments(x, variable.name, known)
        moments = {"mean": float(mean[0]), "variance": float(variance[0])}
        return "expectation", moments, variable
    seen = x[0, schema.index(variable.name)]
    if np.isnan(seen):
        probabilities = model.posterior(x, variable.name, known)[0].tolist()
    else:  # a posterior is of what is not known
        probabilities = [float(code == seen) for code in range(variable.size)]
    by_value = dict(zip(map(str, variable.categories), probabilities, strict=True))
    return "probabilities", by_value, variable


def _column(text: str, schema: Schema) -> tuple[Variable, bool, Evidence] | None:
    """The column of E(column | …) or P(category | …), whether it is E, and the evidence."""
    opening, scan = _OPENING.match(text), Scanner(text, schema)
    name = scan.name_at(scan.here())
    if opening is None or (name and name[1] >= opening.end()):
        return None
    expected, scan.position = opening[1].lower() == "e", opening.end()
    start = scan.here()
    variable = scan.variable()
    if variable is None and expected:
        words = scan.words_at(start)
        scan.unknown(words, start) if words else scan.fail("a column")
    bar = scan.accept("|", ")") if variable else None
    if variable is None or (not expected and (bar is None or variable.kind != "category")):
        return None
    if bar is None:
        scan.fail("'|' or ')'")
    if expected and variable.kind == "category":
        raise QueryError(f"{variable.name!r} is a category: it has no mean; ask P({variable.name})")
    return variable, expected, _given(text, scan, bar, schema)


def _given(text: str, scan: Scanner, bar: str, schema: Schema) -> Evidence:
    if bar == ")":
        if scan.here() < len(text):
            scan.fail("the end")
        return Evidence()
    if not text.endswith(")"):
        scan.position = len(text)
        scan.fail("')'")
    return parse_evidence(text[: len(text) - 1][scan.position :], schema)
