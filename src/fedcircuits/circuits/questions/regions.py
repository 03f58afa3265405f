"""Exact algebra of the sets of values that queries refer to.

A region is a set of values of one variable: sorted, disjoint, open intervals (lower, upper). Ends
of discrete variables are halves, so (2.5, 3.5) is {3}. Values of a real variable are floats:
x > 0.5 is (0.5, ∞), x >= 0.5 starts at the float before 0.5. So a region and its complement share
no float and miss none, which matters for leaves with atoms and for values at an end; to a density
the difference is one rounding. Every interval holds a value, and so does every gap.

A box restricts some variables to a region each and leaves the others free. An event is a tuple of
pairwise disjoint boxes: its probability is the sum of theirs. The whole domain never appears in a
box, so ({},) is the event that always holds and () the one that never does.

    A and B    = all a ∩ b
    A or B     = A ∪ (¬A ∩ B)
    not (a, b) = ¬a ∪ (a ∩ ¬b)

An expression can have exponentially many boxes; above MAXIMUM_BOXES it is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from fedcircuits.circuits.graph.family import EVERYWHERE, Region
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Scalar, Schema, Variable

Box = Mapping[str, Region]
Event = tuple[Box, ...]
EVERYTHING: Event = ({},)
NOTHING: Event = ()
MAXIMUM_BOXES = 10_000
MAXIMUM_STEPS = 1_000_000  # pairs of boxes looked at in one operation: a few seconds
KEYWORDS = frozenset({"and", "or", "not", "in", "between"})
_PLAIN_NAME = re.compile(r"[^\W\d]\w*(?:[ .-]\w+)*")

# ---------------------------------------------------------------------- one variable


def whole(variable: Variable) -> Region:
    """Every value the variable can take."""
    if variable.kind == "real":
        return EVERYWHERE
    return ((-0.5, math.inf if variable.kind == "count" else variable.size - 0.5),)


def after(value: float) -> float:
    """The next float."""
    return math.nextafter(value, math.inf)


def before(value: float) -> float:
    return math.nextafter(value, -math.inf)


def of_codes(codes: Iterable[float]) -> Region:
    """The region of these values of a discrete variable."""
    return union(tuple((code - 0.5, code + 0.5) for code in codes), discrete=True)


def single_value(region: Region, variable: Variable) -> float | None:
    """The only value of the region, or None if there are more."""
    if len(region) != 1:
        return None
    ((lower, upper),) = region
    if variable.discrete:
        return lower + 0.5 if upper - lower == 1 else None
    return after(lower) + 0.0 if after(lower) == before(upper) else None  # + 0.0: no −0


def intersect(a: Region, b: Region) -> Region:
    pieces: list[tuple[float, float]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        lower, upper = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if after(lower) < upper:
            pieces.append((lower, upper))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(pieces)


def union(*regions: Region, discrete: bool = False) -> Region:
    """Join intervals without a value between them; discrete ones may share no end."""
    pieces: list[tuple[float, float]] = []
    for lower, upper in sorted(interval for region in regions for interval in region):
        if pieces and (lower < pieces[-1][1] or (discrete and lower == pieces[-1][1])):
            pieces[-1] = (pieces[-1][0], max(pieces[-1][1], upper))
        else:
            pieces.append((lower, upper))
    return tuple(pieces)


def complement(region: Region, variable: Variable) -> Region:
    """The values of the variable's domain that are not in the region."""
    ((start, stop),) = whole(variable)
    gaps: list[tuple[float, float]] = []
    for lower, upper in region:
        gaps.append((start, min(lower if variable.discrete else after(lower), stop)))
        start = max(start, upper if variable.discrete else before(upper))
    gaps.append((start, stop))
    return tuple((lower, upper) for lower, upper in gaps if after(lower) < upper)


# ---------------------------------------------------------------------- many variables


def conjunction(*events: Event) -> Event:
    """All of the events hold."""
    result = EVERYTHING
    for event in sorted(events, key=len):
        _limit(0, len(result) * len(event))
        boxes = [box for a in result for b in event if (box := _meet(a, b)) is not None]
        _limit(len(boxes))
        result = tuple(boxes)
    return result


def disjunction(events: Iterable[Event], schema: Schema) -> Event:
    """At least one of the events holds."""
    boxes: list[Box] = []
    rest = EVERYTHING  # where none of the events so far holds
    for event in _by_variable(events, schema):
        boxes.extend(conjunction(rest, event))
        rest = difference(rest, event, schema)
        _limit(len(boxes))
    return _merged(boxes, schema)


def difference(a: Event, b: Event, schema: Schema) -> Event:
    """``a`` holds and ``b`` does not."""
    pieces, steps = list(a), 0
    for box in b:
        steps += len(pieces)
        pieces = [part for piece in pieces for part in _without(piece, box, schema)]
        _limit(len(pieces), steps)
    return tuple(pieces)


def _meet(a: Box, b: Box) -> Box | None:
    joined = dict(a)
    for name, region in b.items():
        joined[name] = intersect(joined[name], region) if name in joined else region
        if not joined[name]:
            return None
    return joined


def _without(box: Box, other: Box, schema: Schema) -> list[Box]:
    if _meet(box, other) is None:
        return [box]
    pieces: list[Box] = []
    rest = dict(box)
    for name, region in other.items():
        inside = rest.get(name, whole(schema[name]))
        if outside := intersect(inside, complement(region, schema[name])):
            pieces.append({**rest, name: outside})
        rest[name] = intersect(inside, region)
    return pieces


def _by_variable(events: Iterable[Event], schema: Schema) -> list[Event]:
    """The same events, those on one and the same variable made one: a = 1 or a = 2 is a box."""
    single: dict[str, Region] = {}
    others: list[Event] = []
    for event in events:
        if len(event) == 1 and len(event[0]) == 1:
            ((name, region),) = event[0].items()
            single[name] = union(single.get(name, ()), region, discrete=schema[name].discrete)
        else:
            others.append(event)
    return [(_tidy({name: region}, schema),) for name, region in single.items()] + others


def _merged(event: Sequence[Box], schema: Schema, most: int = 100_000) -> Event:
    """Boxes that differ in one variable only are made one, where that is quick to see."""
    names = list(dict.fromkeys(name for box in event for name in box))
    if len(event) < 2 or len(names) * sum(map(len, event)) > most:
        return tuple(event)
    for name in names:
        groups: dict[frozenset[tuple[str, Region]], Box] = {}
        for box in event:
            rest = frozenset(item for item in box.items() if item[0] != name)
            if rest in groups:
                here, there = (b.get(name, whole(schema[name])) for b in (groups[rest], box))
                either = union(here, there, discrete=schema[name].discrete)
                box = _tidy({**groups[rest], name: either}, schema)
            groups[rest] = box
        event = list(groups.values())
    return tuple(event)


def _tidy(box: Box, schema: Schema) -> Box:
    return {name: region for name, region in box.items() if region != whole(schema[name])}


def _limit(boxes: int, steps: int = 0) -> None:
    if boxes > MAXIMUM_BOXES or steps > MAXIMUM_STEPS:
        raise QueryError(
            f"the question falls into more than {MAXIMUM_BOXES:,} separate cases: "
            "ask it in smaller parts, or with fewer 'or'"
        )


# ---------------------------------------------------------------------- in the user's words


def describe(region: Region, variable: Variable) -> str:
    """The region as a condition that ``parse_event`` reads, in the user's own values."""
    if not region:
        return f"no value of {_quoted_name(variable.name)}"
    if region == whole(variable):
        return f"any value of {_quoted_name(variable.name)}"
    if variable.categories:
        return _describe_codes(region, variable)
    return " or ".join(_describe_interval(i, variable) for i in region)


def _describe_codes(region: Region, variable: Variable) -> str:
    inside = [c for c in range(variable.size) if any(lo < c < up for lo, up in region)]
    outside = [c for c in range(variable.size) if c not in inside]
    fewer, operators = (inside, ("=", "in"))
    if len(outside) < len(inside):
        fewer, operators = (outside, ("!=", "not in"))
    values = [_quoted(variable.categories[c]) for c in fewer]
    name = _quoted_name(variable.name)
    if len(values) == 1:
        return f"{name} {operators[0]} {values[0]}"
    return f"{name} {operators[1]} {{{', '.join(values)}}}"


def _describe_interval(interval: tuple[float, float], variable: Variable) -> str:
    lower, upper = interval
    name = _quoted_name(variable.name)
    if variable.discrete and upper - lower == 1:
        return f"{name} = {_figure(lower + 0.5)}"
    low, to_low = _end(lower, lower + 0.5 if variable.discrete else after(lower), variable)
    high, to_high = _end(upper, upper - 0.5 if variable.discrete else before(upper), variable)
    if lower == whole(variable)[0][0]:
        return f"{name} <{to_high} {high}"
    if upper == math.inf:
        return f"{name} >{to_low} {low}"
    return f"{low} <{to_low} {name} <{to_high} {high}"


def _end(end: float, inside: float, variable: Variable) -> tuple[str, str]:
    """The end, or the value just inside with "=": what is shorter is what the user wrote."""
    closed = variable.discrete or len(_figure(inside)) < len(_figure(end))
    return (_figure(inside), "=") if closed else (_figure(end), "")


def _figure(number: float) -> str:
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(float(number))


def _quoted(value: Scalar) -> str:
    if not isinstance(value, str):
        return repr(value)
    mark = '"' if "'" in value and '"' not in value else "'"
    return mark + value.replace(mark, mark * 2) + mark


def _quoted_name(name: str) -> str:
    plain = _PLAIN_NAME.fullmatch(name) and KEYWORDS.isdisjoint(name.lower().split())
    return name if plain else "`" + name.replace("`", "``") + "`"
