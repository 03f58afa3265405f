"""What noise spends, by the accountant of dp-accounting (the extra ``dp``).

A release of sums has a multiplier: the deviation of its noise over its sensitivity, the largest
change by one row. By Canonne, Kamath and Steinke (2020), theorem 4, discrete Gaussian noise has at
each order α a Rényi divergence of at most α / 2 multiplier², as has the continuous one; the
accountant adds these up over releases, of which each may depend on those before, and turns them
into ε at a given δ. Sums of discrete Gaussians of N parties are off that bound by
10 N exp(−π² variance / step²), which is nothing for a variance of 2³⁰ steps (Kairouz, Liu and
Steinke 2021, theorem 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from fedcircuits.errors import ExtraMissingError


def epsilon_of(multipliers: Sequence[float], delta: float) -> float:
    """What releases with these multipliers spend together.

    >>> bool(0.99 < epsilon_of([8.1] * 4, 1e-5) < 1.01)
    True
    """
    library = accountant_library()
    accountant = library.rdp.RdpAccountant()
    for multiplier in multipliers:
        accountant.compose(library.GaussianDpEvent(multiplier))
    return float(accountant.get_epsilon(delta))


def multiplier_for(epsilon: float, delta: float) -> float:
    """The least multiplier of a single release that spends no more."""
    library = accountant_library()
    return float(
        library.calibrate_dp_mechanism(
            library.rdp.RdpAccountant, library.GaussianDpEvent, epsilon, delta
        )
    )


def accountant_library() -> ModuleType:
    """dp-accounting, imported when it is needed: it takes a while."""
    try:
        import dp_accounting
        import dp_accounting.rdp
    except ImportError:
        raise ExtraMissingError(
            "differential privacy needs dp-accounting: pip install 'fedcircuits[dp]'"
        ) from None
    library: ModuleType = dp_accounting
    return library
