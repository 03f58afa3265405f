"""The algebra against sets of points, which have one in every cell that the ends can make.

Ends of real variables are whole numbers or the floats next to them, so the cells are these floats
and what lies between.
"""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.circuits.graph.family import Region
from fedcircuits.circuits.questions.events import parse_event
from fedcircuits.circuits.questions.regions import (
    EVERYTHING,
    MAXIMUM_BOXES,
    NOTHING,
    Event,
    after,
    before,
    complement,
    conjunction,
    describe,
    difference,
    disjunction,
    intersect,
    of_codes,
    single_value,
    union,
    whole,
)
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Schema, Variable

REAL = Variable("age")
COUNT = Variable("n", "count")
COLOUR = Variable("colour", "category", ("red", "blue", "green", "it's"))
SMOKER = Variable("smoker", "boolean")
SCHEMA = Schema((REAL, COUNT, COLOUR, SMOKER))
POINTS = {
    "age": [
        v
        for k in range(-6, 6)
        for v in (before(before(k)), before(k), float(k), after(k), after(after(k)), k + 0.5)
    ],
    "n": [float(k) for k in range(8)],
    "colour": [0.0, 1.0, 2.0, 3.0],
    "smoker": [0.0, 1.0],
}
GRID = [
    dict(zip(("age", "n", "colour"), p, strict=True))
    for p in itertools.product(POINTS["age"][::7], POINTS["n"][::2], POINTS["colour"])
]

variables = st.sampled_from([REAL, COUNT, COLOUR, SMOKER])


@st.composite
def regions(draw: st.DrawFn, variable: Variable) -> Region:
    """Made without the functions under test."""
    if variable.kind == "real":
        whole_numbers = st.integers(-5, 5)
        near = st.sampled_from([before, float, after])
        ends = sorted(draw(st.sets(st.builds(lambda f, k: f(k), near, whole_numbers), max_size=8)))
        pairs = [(a, b) for a, b in zip(ends[::2], ends[1::2], strict=False) if after(a) < b]
        if draw(st.booleans()) and pairs:
            pairs[0] = (-math.inf, pairs[0][1])
        return tuple(pairs)
    top = 6 if variable.kind == "count" else variable.size
    chosen = sorted(draw(st.sets(st.integers(0, top - 1))))
    runs: list[tuple[float, float]] = []
    for code in chosen:
        if runs and runs[-1][1] == code - 0.5:
            runs[-1] = (runs[-1][0], code + 0.5)
        else:
            runs.append((code - 0.5, code + 0.5))
    return tuple(runs)


pairs = variables.flatmap(lambda v: st.tuples(st.just(v), regions(v), regions(v)))


def contains(region: Region, value: float) -> bool:
    return any(lower < value < upper for lower, upper in region)


def is_sound(region: Region, variable: Variable) -> bool:
    """Every interval holds a value, and so does every gap."""
    gaps = [(a[1], b[0]) for a, b in itertools.pairwise(region)]
    if variable.discrete:
        return all(a < b for a, b in (*region, *gaps))
    return all(after(a) < b for a, b in region) and all(a <= b for a, b in gaps)


@given(pairs)
def test_regions_are_sets(case: tuple[Variable, Region, Region]) -> None:
    variable, a, b = case
    both, other = intersect(a, b), complement(a, variable)
    either = union(a, b, discrete=variable.discrete)
    assert all(is_sound(r, variable) for r in (both, either, other))
    for value in POINTS[variable.name]:
        in_a, in_b = contains(a, value), contains(b, value)
        assert contains(both, value) == (in_a and in_b)
        assert contains(either, value) == (in_a or in_b)
        assert contains(other, value) == (not in_a)


@given(pairs)
def test_complement_is_an_involution(case: tuple[Variable, Region, Region]) -> None:
    variable, a, _ = case
    assert complement(complement(a, variable), variable) == intersect(a, whole(variable))
    assert union(a, complement(a, variable), discrete=variable.discrete) == whole(variable)
    assert intersect(a, complement(a, variable)) == ()


def test_whole_domains() -> None:
    assert whole(REAL) == ((-math.inf, math.inf),)
    assert whole(COUNT) == ((-0.5, math.inf),)
    assert whole(COLOUR) == ((-0.5, 3.5),)
    assert whole(SMOKER) == ((-0.5, 1.5),)


FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(FLOATS, FLOATS, FLOATS)
def test_a_set_and_its_complement_part_the_floats(a: float, b: float, value: float) -> None:
    if not after(a) < b:
        return
    cases: list[Region] = [((a, b),), ((-math.inf, a), (b, math.inf))]
    for region in (intersect(case, whole(REAL)) for case in cases):
        other = complement(region, REAL)
        assert complement(other, REAL) == region
        for near in (a, b, value):
            for v in (before(near), near, after(near)):
                if math.isfinite(v):
                    assert contains(region, v) != contains(other, v)


def test_ends_of_real_intervals() -> None:
    half: Region = ((0.5, math.inf),)
    assert complement(half, REAL) == ((-math.inf, after(0.5)),)
    assert union(((-math.inf, 0.5),), half) == ((-math.inf, 0.5), (0.5, math.inf))  # without 0.5
    assert union(((-math.inf, after(0.5)),), half) == whole(REAL)
    assert intersect(((0.0, after(0.5)),), half) == ()
    assert intersect(((0.0, after(0.5)),), ((before(0.5), 1.0),)) == ((before(0.5), after(0.5)),)


def test_single_values() -> None:
    assert single_value(((2.5, 3.5),), COUNT) == 3
    assert single_value(((2.5, 4.5),), COUNT) is None
    assert single_value(((before(0.5), after(0.5)),), REAL) == 0.5
    assert single_value(((0.5, after(after(after(0.5)))),), REAL) is None
    assert single_value(((0.5, 1.5), (2.5, 3.5)), COUNT) is None
    zero = single_value(((before(0.0), after(0.0)),), REAL)
    assert zero == 0.0 and math.copysign(1.0, zero) == 1.0


def test_codes_that_touch_are_one_interval() -> None:
    assert of_codes([3, 1, 0, 3]) == ((-0.5, 1.5), (2.5, 3.5))
    assert of_codes([]) == ()


# ---------------------------------------------------------------------- events


@st.composite
def events(draw: st.DrawFn) -> Event:
    """One box, or two that differ on a count."""
    box = {
        v.name: region
        for v in (REAL, COLOUR)
        if draw(st.booleans()) and (region := draw(regions(v))) and region != whole(v)
    }
    if draw(st.booleans()):
        return (box,)
    return ({**box, "n": ((2.5, 5.5),)}, {"n": ((-0.5, 1.5),)})


def hits(event: Event, point: dict[str, float]) -> int:
    return sum(all(contains(r, point[n]) for n, r in box.items()) for box in event)


def is_tidy(event: Event) -> bool:
    return all(r and r != whole(SCHEMA[n]) for box in event for n, r in box.items())


@given(events(), events(), events())
def test_events_are_sets_of_disjoint_boxes(a: Event, b: Event, c: Event) -> None:
    both, either = conjunction(a, b, c), disjunction([a, b, c], SCHEMA)
    neither, without = difference(EVERYTHING, either, SCHEMA), difference(a, b, SCHEMA)
    assert all(map(is_tidy, (both, either, neither, without)))
    for point in GRID:
        in_a, in_b, in_c = (hits(e, point) for e in (a, b, c))
        assert hits(both, point) == (in_a and in_b and in_c)
        assert hits(either, point) == (in_a or in_b or in_c)
        assert hits(neither, point) == (not (in_a or in_b or in_c))
        assert hits(without, point) == (in_a and not in_b)


def test_no_event_and_no_condition() -> None:
    assert conjunction() == EVERYTHING == difference(EVERYTHING, NOTHING, SCHEMA)
    assert disjunction([], SCHEMA) == NOTHING == difference(EVERYTHING, EVERYTHING, SCHEMA)
    assert disjunction([({"n": ((2.5, 9.5),)},), EVERYTHING], SCHEMA) == EVERYTHING


def test_alternatives_of_one_variable_are_one_box() -> None:
    ones = [({"n": ((k - 0.5, k + 0.5),)},) for k in (1, 2, 5)]
    assert disjunction(ones, SCHEMA) == ({"n": ((0.5, 2.5), (4.5, 5.5))},)


def test_boxes_that_differ_in_one_variable_are_merged() -> None:
    old = {"age": ((40.0, math.inf),)}
    split = [({**old, "smoker": ((k - 0.5, k + 0.5),)},) for k in (0, 1)]
    assert disjunction(split, SCHEMA) == (old,)


def test_too_many_boxes_are_refused() -> None:
    schema = Schema.real(40)
    above: Region = ((0.0, math.inf),)
    clauses = [
        disjunction([({f"x{i}": above},), ({f"x{i + 1}": above},)], schema) for i in range(0, 40, 2)
    ]
    assert len(conjunction(*clauses[:13])) == 2**13
    with pytest.raises(QueryError, match=f"more than {MAXIMUM_BOXES:,} separate cases"):
        conjunction(*clauses)
    products = [({f"x{i}": above, f"x{i + 1}": above},) for i in range(0, 40, 2)]
    with pytest.raises(QueryError, match="smaller parts"):
        disjunction(products, schema)


# ---------------------------------------------------------------------- describe


@pytest.mark.parametrize(
    ("region", "variable", "text"),
    [
        (((40.0, math.inf),), REAL, "age > 40"),
        (((-math.inf, 2.5),), REAL, "age < 2.5"),
        (((20.0, 40.0),), REAL, "20 < age < 40"),
        (((before(40), math.inf),), REAL, "age >= 40"),
        (((-math.inf, after(0.1)),), REAL, "age <= 0.1"),
        (((before(0.0), 0.3),), REAL, "0 <= age < 0.3"),
        (((-0.25, after(0.0)),), REAL, "-0.25 < age <= 0"),
        (((before(0.5), after(0.5)),), REAL, "0.5 <= age <= 0.5"),
        (((-math.inf, 2.0), (2.0, math.inf)), REAL, "age < 2 or age > 2"),
        (((-math.inf, 1.0), (3.0, math.inf)), REAL, "age < 1 or age > 3"),
        (((3.5, math.inf),), COUNT, "n >= 4"),
        (((-0.5, 3.5),), COUNT, "n <= 3"),
        (((2.5, 3.5),), COUNT, "n = 3"),
        (((-0.5, 0.5), (2.5, 5.5)), COUNT, "n = 0 or 3 <= n <= 5"),
        (((-0.5, 1.5),), COLOUR, "colour in {'red', 'blue'}"),
        (((-0.5, 2.5),), COLOUR, 'colour != "it\'s"'),
        (((1.5, 2.5),), COLOUR, "colour = 'green'"),
        (((0.5, 1.5),), SMOKER, "smoker = True"),
        (whole(REAL), REAL, "any value of age"),
        ((), COUNT, "no value of n"),
        (((0.0, 1.0),), Variable("mean radius"), "0 < mean radius < 1"),
        (((0.0, math.inf),), Variable("in"), "`in` > 0"),
        (((0.0, math.inf),), Variable("a`b"), "`a``b` > 0"),
    ],
)
def test_describe(region: Region, variable: Variable, text: str) -> None:
    assert describe(region, variable) == text


@given(FLOATS, FLOATS)
def test_ends_are_read_again_to_the_last_bit(a: float, b: float) -> None:
    below, above = (-math.inf, a), (b, math.inf)
    cases: list[Region] = [((a, b),), (below,), (above,), (below, above)] if after(a) < b else []
    for region in (intersect(case, whole(REAL)) for case in cases):
        if region not in (whole(REAL), ()):
            assert parse_event(describe(region, REAL), SCHEMA) == ({"age": region},)


@given(FLOATS, st.sampled_from(["<", "<=", ">", ">="]))
def test_a_description_is_what_was_written(bound: float, order: str) -> None:
    short = round(bound, 3) if abs(bound) < 1e9 else 1.5
    (box,) = parse_event(f"age {order} {short!r}", SCHEMA)
    found = describe(box["age"], REAL).split()
    assert found[:2] == ["age", order] and float(found[2]) == short


names = st.text(min_size=1, max_size=12)


@given(pairs, names)
def test_a_description_can_be_read_again(case: tuple[Variable, Region, Region], name: str) -> None:
    variable, region, _ = case
    renamed = Variable(name, variable.kind, variable.categories)
    if region and region != whole(variable):
        event = parse_event(describe(region, renamed), Schema((renamed,)))
        assert event == ({name: region},)
