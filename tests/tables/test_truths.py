"""Words for yes and no."""

import pytest

from fedcircuits.tables import truths


@pytest.mark.parametrize(
    ("texts", "pair"),
    [
        (["Yes", "no ", "NO"], ("no", "yes")),
        (["True", "False"], ("false", "true")),
        (["J", "N"], ("n", "j")),
        (["oui", "non"], ("non", "oui")),
        (["yes"], None),
        (["yes", "no", "maybe"], None),
        (["0", "1"], None),  # numbers
        (["y", "n", "Yes", "NO"], ("n", "y")),
        (["WAHR", "FALSCH"], ("falsch", "wahr")),
        (["pos.", "neg."], ("neg.", "pos.")),
        (["T", "N"], None),  # letters that may be anything
    ],
)
def test_truths(texts: list[str], pair: tuple[str, str] | None) -> None:
    assert truths.truths(texts) == pair


def test_ticks() -> None:
    assert truths.ticked(["X", "x"]) and truths.ticked(["✓"])
    assert not truths.ticked([]) and not truths.ticked(["x", "o"])
