"""From text to a tree of conditions: the grammar in which questions are asked.

    question    = "P(" list [ "|" list ] ")"   or the same without P( )
    list        = either { "," either }        a comma is an "and" that binds last
    either      = both { ("or" | "|" | "||") both }
    both        = negated { ("and" | "&" | "&&") negated }
    negated     = ("not" | "!") negated | "(" either ")" | condition
    condition   = name                         a boolean that holds
                | name op value | value op name | value order name order value
                | name ["not"] "in" "{" value, … "}"    also [ ] and ( )
                | name "between" value "and" value      ends included
    op          = "=" "==" "!=" "<>" "≠" or an order: "<" "<=" ">" ">=" "≤" "≥"

Keywords are read in any case; names and values as ``scanner`` says. In a question a bar outside
parentheses is "given", inside them it is "or"; elsewhere it is always "or".
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from fedcircuits.circuits.questions.conditions import (
    ORDERS,
    Condition,
    between,
    compare,
    is_true,
    members,
    number,
)
from fedcircuits.circuits.questions.regions import KEYWORDS, describe, of_codes
from fedcircuits.circuits.questions.scanner import Scanner, located
from fedcircuits.tables.schema import Scalar, Schema, Variable, shown

MAXIMUM_DEPTH = 100  # parentheses and nots inside each other
_PROBABILITY = re.compile(r"\s*Pr?\s*\(", re.IGNORECASE)
_MIRRORED: Final[dict[str, str]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CLOSING: Final = {"{": "}", "[": "]", "(": ")"}


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Tree


Tree = Condition | And | Or | Not


def read(text: str, schema: Schema) -> Tree:
    parser = _Parser(Scanner(text, schema))
    tree = parser.listed()
    parser.end()
    return tree


def read_question(text: str, schema: Schema) -> tuple[Tree, Tree | None]:
    """What is asked, and what is given."""
    scan = Scanner(text, schema)
    parser = _Parser(scan, bar_is_given=True)
    opening = _PROBABILITY.match(text)
    name = scan.name_at(scan.here())
    if opening and name and name[1] >= opening.end():
        opening = None  # a variable such as "P (kPa)"
    scan.position = opening.end() if opening else 0
    asked = parser.listed()
    given = parser.listed() if scan.accept("|") else None
    if given and scan.text.startswith("|", scan.here()):
        scan.fail("one bar only, before what is given (for an alternative write 'or')")
    if opening and not scan.accept(")"):
        scan.fail("')', 'and' or 'or'")
    parser.end()
    return asked, given


class _Parser:
    def __init__(self, scan: Scanner, bar_is_given: bool = False) -> None:
        self.scan = scan
        self.bar_is_given = bar_is_given
        self.depth = self.open = 0

    def end(self) -> None:
        if self.scan.here() < len(self.scan.text):
            self.scan.fail("'and', 'or' or the end")

    def listed(self) -> Tree:
        parts = [self.either()]
        while self.scan.accept(","):
            parts.append(self.either())
        return _joined(And, parts)

    def either(self) -> Tree:
        parts = [self.both()]
        while self.scan.keyword("or") or self.scan.accept("||") or self._bar():
            parts.append(self.both())
        return _joined(Or, parts)

    def _bar(self) -> bool:
        given = self.bar_is_given and not self.open
        return not given and self.scan.accept("|") is not None

    def both(self) -> Tree:
        parts = [self.negated()]
        while self.scan.keyword("and") or self.scan.accept("&&", "&"):
            parts.append(self.negated())
        return _joined(And, parts)

    def negated(self) -> Tree:
        start = self.scan.here()
        if not self.scan.name_at(start) and (self.scan.keyword("not") or self.scan.accept("!")):
            self._deeper(start)
            tree = self.negated()
            self.depth -= 1
            return tree.part if isinstance(tree, Not) else Not(tree)
        if not self.scan.accept("("):
            return self.condition()
        self._deeper(start)
        self.open += 1
        tree = self.either()
        if not self.scan.accept(")"):
            self.scan.fail("')', 'and' or 'or'")
        self.open -= 1
        self.depth -= 1
        return tree

    def _deeper(self, position: int) -> None:
        self.depth += 1
        if self.depth > MAXIMUM_DEPTH:
            message = f"expected at most {MAXIMUM_DEPTH} parentheses and nots inside each other"
            raise located(message, self.scan.text, position)

    # ------------------------------------------------------------------ conditions

    def condition(self) -> Tree:
        scan, start = self.scan, self.scan.here()
        variable = scan.variable()
        if variable is None:
            return self.mirrored(start)
        if scan.keyword("not"):
            if not scan.keyword("in"):
                scan.fail("'in' after 'not'")
            return Not(self.listing(variable, start))
        if scan.keyword("in"):
            return self.listing(variable, start)
        if scan.keyword("between"):
            return self.interval(variable, start)
        if operator := scan.operator():
            place = scan.here()
            value = self.value(variable)
            return scan.at(place, lambda: _comparison(variable, operator, value, start))
        if variable.kind != "boolean" and scan.words_at(scan.here())[:1].isalpha():
            scan.unknown(scan.words_at(start), start)
        return scan.at(start, lambda: is_true(variable, start))

    def mirrored(self, start: int) -> Tree:
        """value op name, or value order name order value."""
        scan = self.scan
        value = scan.value(leading=True)
        operator = scan.operator() if value is not None else None
        place = scan.here()
        variable = scan.variable() if operator else None
        if value is None or operator is None or variable is None:
            self.no_variable(start, value, place)
        behind, scan.position = scan.position, start
        if not variable.categories:
            value = self.value(variable, leading=True)  # with its unit
        mirror, scan.position = _MIRRORED.get(operator, operator), behind
        first = scan.at(start, lambda: _comparison(variable, mirror, value, start))
        second = scan.operator() if operator in ORDERS else None
        if second not in ORDERS:
            scan.position = behind
            return first
        place = scan.here()
        other = self.value(variable)
        return And((first, scan.at(place, lambda: _comparison(variable, second, other, start))))

    def no_variable(self, start: int, value: Scalar | None, place: int) -> NoReturn:
        """Says what is wrong: no name was read at the start, nor at the place after an operator."""
        scan, scan.position = self.scan, start
        left, right = scan.words_at(start), scan.words_at(place)
        candidates = () if value is None else (left, str(value))
        if names := [n for n in candidates if n and n in scan.schema]:
            scan.unknown(names[0], start)
        if value is None or str(value).lower() in KEYWORDS:
            scan.fail("a condition such as " + _example(scan.schema))
        if isinstance(value, str) and left:
            scan.unknown(left, start)
        if right[:1].isalpha():
            scan.unknown(right, place)
        message = f"expected a variable to compare {shown(value)} with"
        raise located(message, scan.text, start)

    def listing(self, variable: Variable, start: int) -> Tree:
        scan = self.scan
        opening = scan.accept(*_CLOSING)
        if opening is None:
            scan.fail("'{' and a list of values after 'in'")
        closing, values = _CLOSING[opening], [self.listed_value(variable)]
        while scan.accept(",") and not scan.text.startswith(closing, scan.here()):
            values.append(self.listed_value(variable))
        if not scan.accept(closing):
            scan.fail(f"',' or {closing!r}")
        return Condition(variable, "in", tuple(values), start)

    def listed_value(self, variable: Variable) -> float:
        place = self.scan.here()
        value = self.value(variable, listed=True)
        return self.scan.at(place, lambda: number(variable, value))

    def interval(self, variable: Variable, start: int) -> Tree:
        place = self.scan.here()
        low = self.value(variable)
        if not self.scan.keyword("and"):
            self.scan.fail("'and' between the two ends")
        high = self.value(variable)
        return _joined(And, self.scan.at(place, lambda: between(variable, low, high, start)))

    def value(self, variable: Variable, listed: bool = False, leading: bool = False) -> Scalar:
        scan, start = self.scan, self.scan.here()
        if not scan.category_at(variable, start) and (
            scan.text.startswith("`", start) or scan.name_at(start)
        ):
            message = f"expected a value to compare {variable.name!r} with, found another variable"
            raise located(message, scan.text, start)
        value = scan.value(variable, listed, leading)
        if value is None:
            scan.fail(f"a value of {variable.name!r}")
        return value


def _joined(kind: type[And] | type[Or], parts: Sequence[Tree]) -> Tree:
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _comparison(variable: Variable, operator: str, value: Scalar, position: int) -> Tree:
    if operator in ORDERS:
        return compare(variable, operator, value, position)
    equal = members(variable, [value], position)
    return Not(equal) if operator == "!=" else equal


def _example(schema: Schema) -> str:
    """A condition on the first variable of the schema."""
    first = schema.variables[0] if len(schema) else Variable("age")
    region = of_codes([0]) if first.size > 1 else ((0.5 if first.discrete else 0.0, math.inf),)
    return describe(region, first)
