"""Tokens of row ids: equal for equal ids under one key, and worth nothing without it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.federation.sums.counting import patterns
from fedcircuits.methods.meeting.tokens import matched, tokens

KEY = b"a key that the coordinator lacks"


def test_numbers_and_texts_are_the_same_ids() -> None:
    numbers, texts = np.array([1, 20, 300]), np.array(["1", "20", "300"])
    assert np.array_equal(tokens(numbers, KEY), tokens(texts, KEY))
    assert np.array_equal(tokens(numbers[::-1], KEY), tokens(numbers, KEY)[::-1])


def test_another_key_gives_other_tokens() -> None:
    ids = np.arange(1000)
    one, other = tokens(ids, KEY), tokens(ids, b"another key")
    assert len(np.unique(one)) == 1000 and not np.isin(one, other).any()
    # nor do their orders say anything of each other, or of the ids
    ranks = [np.argsort(np.argsort(t)) for t in (one, other)]
    assert abs(np.corrcoef(ranks[0], ranks[1])[0, 1]) < 0.15
    assert abs(np.corrcoef(ranks[0], ids)[0, 1]) < 0.15


@given(st.lists(st.sets(st.integers(0, 30)), min_size=1, max_size=4), st.randoms())
def test_rows_are_matched_whatever_their_order(held: list[set[int]], random: object) -> None:
    lists = [np.array(random.sample(sorted(own), len(own)), np.int64) for own in held]  # type: ignore[attr-defined]
    where = matched([tokens(own, KEY) for own in lists])
    every = set().union(*held)
    assert where.shape == (len(every), len(held))
    found = set()
    for row in where:
        ids = {int(lists[p][at]) for p, at in enumerate(row) if at >= 0}
        assert len(ids) == 1
        (one,) = ids
        assert [at >= 0 for at in row] == [one in own for own in held]
        found.add(one)
    assert found == every


def test_nobody_sends_anything() -> None:
    assert matched([]).shape == (0, 0)
    assert matched([np.zeros(0, np.uint64), np.zeros(0, np.uint64)]).shape == (0, 2)


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 1)), min_size=1))
def test_patterns_are_counted(rows: list[tuple[int, int]]) -> None:
    found, counts = patterns(np.array(rows, dtype=np.int64))
    assert {tuple(f): c for f, c in zip(found.tolist(), counts, strict=True)} == {
        row: float(rows.count(row)) for row in set(rows)
    }
