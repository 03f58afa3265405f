"""fedcircuits: one model from data that cannot be put in one place, and answers from it."""

from fedcircuits import datasets, errors, testing
from fedcircuits.circuits import structures
from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.distribution import Distribution, Explanation
from fedcircuits.circuits.nodes import Fuse, Leaf, Node, Product, Sum
from fedcircuits.circuits.parameters import Parameters
from fedcircuits.circuits.schema import Schema, Variable
from fedcircuits.errors import FedcircuitsError
from fedcircuits.estimators.alignment import aligned
from fedcircuits.estimators.einsum import EinsumNetwork
from fedcircuits.estimators.external import External
from fedcircuits.estimators.fedpc import FedPC
from fedcircuits.estimators.fedtrees import FedTrees
from fedcircuits.estimators.learn_spn import LearnSPN
from fedcircuits.estimators.mixture import MixtureOfProducts
from fedcircuits.estimators.model import CircuitModel, Model, load
from fedcircuits.estimators.trees import ChowLiuTree, HiddenChowLiuTree, MixtureOfChowLiuTrees
from fedcircuits.federation.federation import Federation, Party
from fedcircuits.federation.ledger import Ledger
from fedcircuits.federation.split import dirichlet, split
from fedcircuits.learning.batches import ParquetRows
from fedcircuits.learning.predictors import DecisionTreeLeaf
from fedcircuits.learning.table import Table

__version__ = "0.1.0"
__all__ = [
    "ChowLiuTree",
    "Circuit",
    "CircuitModel",
    "DecisionTreeLeaf",
    "Distribution",
    "EinsumNetwork",
    "Explanation",
    "External",
    "FedPC",
    "FedTrees",
    "FedcircuitsError",
    "Federation",
    "Fuse",
    "HiddenChowLiuTree",
    "Leaf",
    "LearnSPN",
    "Ledger",
    "MixtureOfChowLiuTrees",
    "MixtureOfProducts",
    "Model",
    "Node",
    "Parameters",
    "ParquetRows",
    "Party",
    "Product",
    "Schema",
    "Sum",
    "Table",
    "Variable",
    "aligned",
    "datasets",
    "dirichlet",
    "errors",
    "load",
    "split",
    "structures",
    "testing",
]
