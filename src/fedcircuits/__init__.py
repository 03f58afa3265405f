"""fedcircuits: one model from data that cannot be pooled, and answers from it.

Names are imported on first access, so that ``fedcircuits --help`` need not wait for torch and
scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from fedcircuits.compiling import choose_place as _choose_place
from fedcircuits.version import __version__ as __version__

_choose_place()

if TYPE_CHECKING:
    from fedcircuits import datasets, errors, testing
    from fedcircuits.circuits.graph import structures
    from fedcircuits.circuits.graph.circuit import Circuit, Fuse, Leaf, Node, Product, Sum
    from fedcircuits.circuits.graph.parameters import Parameters
    from fedcircuits.circuits.questions.distribution import Distribution
    from fedcircuits.circuits.questions.queryable import Explanation
    from fedcircuits.engines.watching import Progress
    from fedcircuits.errors import FedcircuitsError
    from fedcircuits.estimators.alignment import aligned
    from fedcircuits.estimators.best_density import best_density
    from fedcircuits.estimators.circuit_model import CircuitModel
    from fedcircuits.estimators.einsum import EinsumNetwork
    from fedcircuits.estimators.external import External
    from fedcircuits.estimators.feature_fusion import FeatureFusion
    from fedcircuits.estimators.fedpc import FedPC
    from fedcircuits.estimators.fedtrees import FedTrees
    from fedcircuits.estimators.hidden_tree import HiddenChowLiuTree
    from fedcircuits.estimators.imputer import CircuitImputer
    from fedcircuits.estimators.learn_spn import LearnSPN
    from fedcircuits.estimators.loading import load
    from fedcircuits.estimators.mixture import MixtureOfProducts
    from fedcircuits.estimators.model import Model
    from fedcircuits.estimators.normals import MixtureOfNormals
    from fedcircuits.estimators.predictors import CircuitClassifier, CircuitRegressor
    from fedcircuits.estimators.private_forest import PrivateForest
    from fedcircuits.estimators.trees import ChowLiuTree, MixtureOfChowLiuTrees
    from fedcircuits.estimators.vertical_kmeans import VerticalKMeans
    from fedcircuits.estimators.vertical_mixture import VerticalGaussianMixture
    from fedcircuits.federation.federation import Federation, Party
    from fedcircuits.federation.messages import Ledger
    from fedcircuits.federation.split import dirichlet, split
    from fedcircuits.federation.sums.summations import Chebyshev, Hub, Metropolis, Tree
    from fedcircuits.federation.sums.topology import Topology
    from fedcircuits.learning.batches import ParquetRows
    from fedcircuits.learning.encoders.choosing import BestEncoder
    from fedcircuits.learning.encoders.encoders import SequenceEncoder, TabularEncoder
    from fedcircuits.learning.encoders.fixed import RocketEncoder, SummaryEncoder
    from fedcircuits.learning.encoders.foreign import Frozen
    from fedcircuits.methods.trees.decision_tree import DecisionTreeLeaf
    from fedcircuits.privacy.differential import DifferentialPrivacy
    from fedcircuits.privacy.hidden_sums import Masked, Secret
    from fedcircuits.reports.comparison import compare
    from fedcircuits.reports.evaluation import evaluate
    from fedcircuits.reports.imputation import impute
    from fedcircuits.reports.synthesis import synthesise
    from fedcircuits.tables.schema import Schema, Variable
    from fedcircuits.tables.table import Table

__all__ = [
    "BestEncoder",
    "Chebyshev",
    "ChowLiuTree",
    "Circuit",
    "CircuitClassifier",
    "CircuitImputer",
    "CircuitModel",
    "CircuitRegressor",
    "DecisionTreeLeaf",
    "DifferentialPrivacy",
    "Distribution",
    "EinsumNetwork",
    "Explanation",
    "External",
    "FeatureFusion",
    "FedPC",
    "FedTrees",
    "FedcircuitsError",
    "Federation",
    "Frozen",
    "Fuse",
    "HiddenChowLiuTree",
    "Hub",
    "Leaf",
    "LearnSPN",
    "Ledger",
    "Masked",
    "Metropolis",
    "MixtureOfChowLiuTrees",
    "MixtureOfNormals",
    "MixtureOfProducts",
    "Model",
    "Node",
    "Parameters",
    "ParquetRows",
    "Party",
    "PrivateForest",
    "Product",
    "Progress",
    "RocketEncoder",
    "Schema",
    "Secret",
    "SequenceEncoder",
    "Sum",
    "SummaryEncoder",
    "Table",
    "TabularEncoder",
    "Topology",
    "Tree",
    "Variable",
    "VerticalGaussianMixture",
    "VerticalKMeans",
    "aligned",
    "best_density",
    "compare",
    "datasets",
    "dirichlet",
    "errors",
    "evaluate",
    "impute",
    "load",
    "split",
    "structures",
    "synthesise",
    "testing",
]

_MODULES = {
    "datasets": "fedcircuits.datasets",
    "errors": "fedcircuits.errors",
    "structures": "fedcircuits.circuits.graph.structures",
    "testing": "fedcircuits.testing",
}
_NAMES = {
    "circuits.graph.circuit": "Circuit Fuse Leaf Node Product Sum",
    "circuits.questions.distribution": "Distribution",
    "circuits.questions.queryable": "Explanation",
    "circuits.graph.parameters": "Parameters",
    "tables.schema": "Schema Variable",
    "engines.watching": "Progress",
    "errors": "FedcircuitsError",
    "estimators.alignment": "aligned",
    "estimators.best_density": "best_density",
    "estimators.einsum": "EinsumNetwork",
    "estimators.external": "External",
    "estimators.feature_fusion": "FeatureFusion",
    "estimators.fedpc": "FedPC",
    "estimators.fedtrees": "FedTrees",
    "estimators.imputer": "CircuitImputer",
    "estimators.learn_spn": "LearnSPN",
    "estimators.predictors": "CircuitClassifier CircuitRegressor",
    "estimators.mixture": "MixtureOfProducts",
    "estimators.normals": "MixtureOfNormals",
    "estimators.loading": "load",
    "estimators.circuit_model": "CircuitModel",
    "estimators.model": "Model",
    "estimators.private_forest": "PrivateForest",
    "estimators.hidden_tree": "HiddenChowLiuTree",
    "estimators.trees": "ChowLiuTree MixtureOfChowLiuTrees",
    "estimators.vertical_kmeans": "VerticalKMeans",
    "estimators.vertical_mixture": "VerticalGaussianMixture",
    "federation.federation": "Federation Party",
    "federation.messages": "Ledger",
    "federation.split": "dirichlet split",
    "federation.sums.summations": "Chebyshev Hub Metropolis Tree",
    "federation.sums.topology": "Topology",
    "learning.batches": "ParquetRows",
    "learning.encoders.choosing": "BestEncoder",
    "learning.encoders.encoders": "SequenceEncoder TabularEncoder",
    "learning.encoders.fixed": "RocketEncoder SummaryEncoder",
    "learning.encoders.foreign": "Frozen",
    "methods.trees.decision_tree": "DecisionTreeLeaf",
    "reports.comparison": "compare",
    "reports.evaluation": "evaluate",
    "reports.imputation": "impute",
    "reports.synthesis": "synthesise",
    "tables.table": "Table",
    "privacy.differential": "DifferentialPrivacy",
    "privacy.hidden_sums": "Masked Secret",
}
_HOMES = {name: f"fedcircuits.{home}" for home, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # else any misspelt name would have a type

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            module = import_module(_MODULES[name])
        elif name in _HOMES:
            module = getattr(import_module(_HOMES[name]), name)
        else:
            raise AttributeError(f"module 'fedcircuits' has no attribute {name!r}")
        globals()[name] = module
        return module

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
