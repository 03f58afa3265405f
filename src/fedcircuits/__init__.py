"""fedcircuits: one model from data that cannot be put in one place, and answers from it."""

from fedcircuits import datasets, errors, testing
from fedcircuits.circuits import structures
from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.distribution import Distribution, Explanation
from fedcircuits.circuits.nodes import Fuse, Leaf, Node, Product, Sum
from fedcircuits.circuits.parameters import Parameters
from fedcircuits.circuits.schema import Schema, Variable
from fedcircuits.errors import FedcircuitsError
from fedcircuits.estimators.einsum import EinsumNetwork
from fedcircuits.estimators.external import External
from fedcircuits.estimators.learn_spn import LearnSPN
from fedcircuits.estimators.mixture import MixtureOfProducts
from fedcircuits.estimators.model import CircuitModel, Model, load
from fedcircuits.estimators.trees import ChowLiuTree, HiddenChowLiuTree
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
    "FedcircuitsError",
    "Fuse",
    "HiddenChowLiuTree",
    "Leaf",
    "LearnSPN",
    "MixtureOfProducts",
    "Model",
    "Node",
    "Parameters",
    "ParquetRows",
    "Product",
    "Schema",
    "Sum",
    "Table",
    "Variable",
    "datasets",
    "errors",
    "load",
    "structures",
    "testing",
]
