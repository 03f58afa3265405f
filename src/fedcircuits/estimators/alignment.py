"""The rows that all parties of a federation hold, matched by tokens or privately."""

from __future__ import annotations

from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError
from fedcircuits.estimators.engine_choice import engine_of
from fedcircuits.estimators.federated import TrainingState, run_programs
from fedcircuits.federation.federation import COORDINATOR, Federation, row_ids
from fedcircuits.federation.flow import Program
from fedcircuits.federation.messages import Ledger
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.methods.meeting import alignment
from fedcircuits.methods.meeting.alignment import AlignmentPlan, restricted
from fedcircuits.methods.meeting.intersection import openmined


def aligned(
    federation: Federation,
    *,
    private: bool = False,
    engine: str | Engine | None = None,
    ledger: Ledger | None = None,
) -> Federation:
    """Restrict a federation to the rows that all parties hold, in the same order.

    Parameters
    ----------
    federation : Federation
        Parties whose rows have ids: ``Federation(…, row_id="…")``.
    private : bool, default=False
        Match the rows by private set intersection, which needs the extra ``psi``. Each party learns
        the ids that all of them hold and the number of rows of the others; the first party also
        learns which rows it shares with each. Otherwise rows are matched by hashes of their ids
        under a key unknown to the coordinator.
    engine : {"memory", "process", "ray"} or Engine, optional
        Where the parties run; by default in memory, or at the sites the federation is connected to.
    ledger : Ledger, optional
        Messages are recorded in it.

    Returns
    -------
    Federation
        The same parties and permissions, with the common rows in the order of their ids.

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
    for party in federation:
        row_ids(party)  # an error before anything crosses
    if private:
        openmined()  # an error that says how to get it
    state = TrainingState()
    plan = AlignmentPlan(federation.names, "private" if private else "tokens")
    where = engine_of(federation.engine if engine is None else engine)
    outcome = run_programs(where, _programs(federation, plan, state), state)
    if ledger is not None:
        ledger.add(outcome.ledger)
    for error in outcome.lost.values():
        raise FederationError(f"rows could not be matched: {error}") from error
    count = outcome.results.pop(COORDINATOR)
    assert isinstance(count, int)
    return restricted(federation, outcome.results, count)


def _programs(
    federation: Federation, plan: AlignmentPlan, state: TrainingState
) -> dict[str, Program[Labels | int]]:
    secret = state.secrets_of(plan.members, plan.rows)
    programs: dict[str, Program[Labels | int]] = {
        COORDINATOR: Program(alignment.coordinator, {"plan": plan})
    }
    for party in federation:
        arguments = {"party": party, "plan": plan, "secret": secret[party.name]}
        programs[party.name] = Program(alignment.member, arguments)
    return programs
