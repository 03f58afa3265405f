"""Connected graphs over a few parties, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from fedcircuits.federation.sums.topology import Topology


@st.composite
def topologies(draw: st.DrawFn, largest: int = 8) -> Topology:
    """A random tree, and links besides."""
    count = draw(st.integers(1, largest))
    names = [f"party {i}" for i in range(count)]
    edges = [(i, draw(st.integers(0, i - 1))) for i in range(1, count)]
    place = st.integers(0, count - 1)
    edges += draw(st.lists(st.tuples(place, place), max_size=count))
    return Topology.of(edges or [(0, 0)], names)
