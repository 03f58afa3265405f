"""What was revealed, in lines that stay readable with many parties."""

from __future__ import annotations

from fedcircuits.federation.messages import Entry, Ledger
from fedcircuits.federation.sent import phases, revelations

NAMES = [f"clinic {i}" for i in range(1, 31)]


def test_many_parties_share_a_line() -> None:
    entries = [Entry(name, "coordinator", "agree/hello", 10, "its columns") for name in NAMES]
    entries += [Entry(NAMES[0], to, "sum/total", 8, "the sum") for to in NAMES[1:]]
    entries += [Entry("coordinator", to, "graph/used", 2, "what is used") for to in NAMES[:6]]
    entries += [Entry("coordinator", to, "end/name", 2, "a name") for to in NAMES[:2]]
    assert revelations(Ledger(entries)) == [
        ["agree", "coordinator", "all 30 parties", "its columns"],
        ["sum", "the other 29 parties", "clinic 1", "the sum"],
        ["graph", "clinic 1, clinic 2, clinic 3, clinic 4 … (6)", "coordinator", "what is used"],
        ["end", "clinic 1, clinic 2", "coordinator", "a name"],
    ]
    assert phases(Ledger(entries))[-1] == ["all", "67", "548"]
    assert "clinic 4 … (30)" in Ledger(entries)._repr_html_()
