"""Leaf families: input distributions, one family to a file, registered under their names.

Importing this package makes all of them known to circuits. ``fedcircuits.testing.check_leaf``
checks whether a new family keeps the contract (``circuits.graph.family``).
"""

from fedcircuits.circuits.graph.family import register
from fedcircuits.circuits.leaves.bernoulli import Bernoulli
from fedcircuits.circuits.leaves.binomial import Binomial
from fedcircuits.circuits.leaves.categorical import Categorical
from fedcircuits.circuits.leaves.discretised_logistic import DiscretisedLogistic
from fedcircuits.circuits.leaves.exponential import Exponential
from fedcircuits.circuits.leaves.gamma import Gamma
from fedcircuits.circuits.leaves.gaussian import Gaussian
from fedcircuits.circuits.leaves.gaussian_mass import GaussianMass
from fedcircuits.circuits.leaves.histogram import CountHistogram, Histogram
from fedcircuits.circuits.leaves.indicator import Indicator
from fedcircuits.circuits.leaves.multivariate_gaussian import MultivariateGaussian
from fedcircuits.circuits.leaves.poisson import Poisson
from fedcircuits.circuits.leaves.student_t import StudentT

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "CountHistogram",
    "DiscretisedLogistic",
    "Exponential",
    "Gamma",
    "Gaussian",
    "GaussianMass",
    "Histogram",
    "Indicator",
    "MultivariateGaussian",
    "Poisson",
    "StudentT",
]

register(Gaussian())
register(GaussianMass())
register(Bernoulli())
register(Categorical())
register(Indicator())
register(Histogram())
register(CountHistogram())
register(Poisson())
register(Binomial())
register(DiscretisedLogistic())
register(Gamma())
register(Exponential())
register(StudentT())
register(MultivariateGaussian())
