"""Public conformance suites: hand them an implementation of your own, they raise if it is wrong.

For a leaf family of your own:

    from fedcircuits.testing import check_leaf

    check_leaf(MyFamily(), {"location": [0.0, 5.0], "width": [1.0, 0.1]})

For a protocol: the programs of all its parties, on a small table:

    from fedcircuits.testing import check_protocol

    check_protocol({"north": Program(client, {…}), "coordinator": Program(coordinator, {…})})

and the same with every message spoiled in turn, which must blame its sender:

    from fedcircuits.testing import check_messages

    check_messages({"north": Program(client, {…}), "coordinator": Program(coordinator, {…})})

and the same from the bytes: what every role received is what the ledger says it learned:

    from fedcircuits.testing import check_ledger

    check_ledger({"north": Program(client, {…}), "coordinator": Program(coordinator, {…})})

For an engine that runs parties somewhere else, and for another way of adding up:

    from fedcircuits.testing import check_engine, check_summation

    check_engine(my_run)
    check_summation(lambda me, members: MySum(me, members))
"""

from fedcircuits.testing.engines import check_engine, check_summation
from fedcircuits.testing.leaves import check_leaf
from fedcircuits.testing.protocols import check_protocol
from fedcircuits.testing.protocols.audit import check_ledger
from fedcircuits.testing.protocols.malformed import check_messages

__all__ = [
    "check_engine",
    "check_leaf",
    "check_ledger",
    "check_messages",
    "check_protocol",
    "check_summation",
]
