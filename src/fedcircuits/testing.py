"""Public conformance suites: hand them an implementation of your own, they raise if it is wrong.

For a leaf family of your own:

    from fedcircuits.testing import check_leaf

    check_leaf(MyFamily(), {"location": [0.0, 5.0], "width": [1.0, 0.1]})
"""

from fedcircuits.leaves.conformance import check_leaf

__all__ = ["check_leaf"]
