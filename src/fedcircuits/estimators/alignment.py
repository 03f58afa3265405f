"""The rows that all parties of a federation hold, in the clear or privately."""

from __future__ import annotations

from fedcircuits.engines.choice import engine_of
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError
from fedcircuits.federation.alignment import align, id_texts, restricted
from fedcircuits.federation.federation import Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.federation.tokens import Labels
from fedcircuits.methods.meeting import intersection


def aligned(
    federation: Federation,
    *,
    private: bool = False,
    engine: str | Engine = "memory",
    ledger: Ledger | None = None,
) -> Federation:
    """The federation with the rows that all parties hold, in one order.

    Parameters
    ----------
    federation : Federation
        Parties whose rows have ids: ``Federation(…, row_id="…")``.
    private : bool, default=False
        Find the rows by private set intersection, which needs the extra ``psi``. Parties then learn
        the ids that all of them hold and how many rows the others have; the first party also
        learns which rows it has in common with each. Otherwise all ids are compared in the clear.
    engine : {"memory", "process", "ray"} or Engine, default="memory"
        What runs the private intersection.
    ledger : Ledger, optional
        The messages of the private intersection are added to it.

    Returns
    -------
    Federation
        The same parties and permissions, with the rows of all in the order of ids.

    Examples
    --------
    >>> import fedcircuits as fc
    >>> federation = fc.Federation({
    ...     "clinic": {"patient": ["c", "a", "b"], "age": [54, 31, 47]},
    ...     "laboratory": {"patient": ["a", "d", "c"], "glucose": [4.9, 6.1, 5.2]},
    ... }, row_id="patient")
    >>> both = fc.aligned(federation)
    >>> both["laboratory"].table.row_ids.tolist(), both["laboratory"].table.column("glucose")
    (['a', 'c'], array([4.9, 5.2]))
    """
    rows = _private(federation, engine, ledger) if private else align(federation)
    return restricted(federation, rows)


def _private(
    federation: Federation, engine: str | Engine, ledger: Ledger | None
) -> dict[str, Labels]:
    first, *others = federation.names
    for party in federation:
        id_texts(party)  # an error before anything crosses
    programs: dict[str, Program[Labels]] = {}
    for name in federation.names:
        given = {"party": federation[name], "key": intersection.new_key()}
        if name == first:
            programs[name] = Program(intersection.first, {**given, "others": others})
        else:
            programs[name] = Program(intersection.other, {**given, "first": first})
    outcome = engine_of(engine)(programs)
    if ledger is not None:
        ledger.add(outcome.ledger)
    for error in outcome.lost.values():
        raise FederationError(f"rows could not be matched: {error}") from error
    return {name: outcome.results[name] for name in federation.names}
