"""The ledger: sums by phase and way, and what was revealed to whom."""

from __future__ import annotations

from fedcircuits.federation.messages import Entry, Ledger


def example() -> Ledger:
    ledger = Ledger()
    ledger.add([Entry("a", "hub", "fit/sums/0", 100, "sums of rows")])
    ledger.add(
        [Entry("hub", "a", "fit/sums/0", 80), Entry("a", "hub", "fit/sums/1", 50, "sums of rows")]
    )
    ledger.add([Entry("b", "hub", "names", 7, "names of columns")])
    return ledger


def test_totals() -> None:
    ledger = example()
    assert len(ledger) == 4 and ledger.bytes == 237
    assert [e.phase for e in ledger] == ["fit", "fit", "fit", "names"]
    assert repr(ledger) == "<Ledger of 4 messages, 237 bytes>"


def test_summary() -> None:
    summary = example().summary()
    assert summary.loc[("fit", "a", "hub")].to_dict() == {"messages": 2, "bytes": 150}
    assert summary["bytes"].sum() == 237 and len(summary) == 3
    assert summary.index[0] == ("fit", "a", "hub")  # in the order of the run
    assert len(Ledger().summary()) == 0


def test_revealed() -> None:
    ledger = example()
    rows = [("hub", "a", "fit", "sums of rows"), ("hub", "b", "names", "names of columns")]
    assert list(ledger.revealed().itertuples(index=False, name=None)) == rows  # each once
    assert len(ledger.revealed("hub")) == 2 and ledger.revealed("a").empty
    assert list(ledger.revealed("a").columns) == ["to", "from", "phase", "what"]
