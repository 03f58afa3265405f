"""Methods by their names on the command line, and the files of their models.

All files of ``fedcircuits train`` belong to whoever runs it, so every party allows its part of
the model to be collected. k-means has no model to collect: its file has the cluster of every
row.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from sklearn.base import BaseEstimator

from fedcircuits.app import report
from fedcircuits.circuits.graph import files
from fedcircuits.errors import FederationError
from fedcircuits.estimators import record
from fedcircuits.estimators.einsum import EinsumNetwork
from fedcircuits.estimators.feature_fusion import FeatureFusion
from fedcircuits.estimators.federated import FederatedEstimator
from fedcircuits.estimators.fedpc import FedPC
from fedcircuits.estimators.fedtrees import FedTrees
from fedcircuits.estimators.hidden_tree import HiddenChowLiuTree
from fedcircuits.estimators.learn_spn import LearnSPN
from fedcircuits.estimators.mixture import MixtureOfProducts
from fedcircuits.estimators.model import Model
from fedcircuits.estimators.private_forest import PrivateForest
from fedcircuits.estimators.trees import ChowLiuTree, MixtureOfChowLiuTrees
from fedcircuits.estimators.vertical_kmeans import VerticalKMeans
from fedcircuits.estimators.vertical_mixture import VerticalGaussianMixture
from fedcircuits.federation.federation import Federation
from fedcircuits.federation.sums.summations import Hub
from fedcircuits.privacy.hidden_sums import Masked, Secret
from fedcircuits.tables.declared import DeclaredReading

LEARNERS = {
    "learn-spn": LearnSPN,
    "mixture": MixtureOfProducts,
    "chow-liu": ChowLiuTree,
    "chow-liu-mixture": MixtureOfChowLiuTrees,
    "hidden-chow-liu": HiddenChowLiuTree,
    "einsum": EinsumNetwork,
}
METHODS: dict[str, type[BaseEstimator]] = {
    "fedpc": FedPC,
    "mixture": VerticalGaussianMixture,
    "kmeans": VerticalKMeans,
    "forest": PrivateForest,
    "fusion": FeatureFusion,
    "trees": FedTrees,
    "chow-liu": ChowLiuTree,
}
ARGUMENTS = {  # of options, where they are called otherwise
    ("mixture", "clusters"): "n_components",
    ("kmeans", "clusters"): "n_clusters",
}
SUMMATIONS = {"hub": Hub, "masked": Masked, "secret": Secret}


@dataclass(frozen=True, slots=True)
class MethodOptions:
    """The user's options for learning; None: not given."""

    method: str | None
    target: str | None
    learner: str | None
    clusters: int | None
    weights: str | None
    share_target: bool
    settings: Sequence[str]
    seed: int

    @property
    def name(self) -> str:
        return self.method or "fedpc"

    @property
    def said(self) -> dict[str, object]:
        """The given options by name."""
        options = {
            "target": self.target,
            "learner": self.learner,
            "clusters": self.clusters,
            "weights": self.weights,
            "share_target": self.share_target or None,
        }
        return {name: value for name, value in options.items() if value is not None}

    def estimator(self) -> FederatedEstimator[object]:
        """The estimator; FederationError for an option or parameter unknown to the method."""
        kind, given = METHODS[self.name], dict[str, object]()
        known = kind._get_param_names()
        for option, value in self.said.items():
            argument = ARGUMENTS.get((self.name, option), option)
            if argument not in known:
                raise FederationError(
                    f"--{option.replace('_', '-')} does not apply to {self.name}: leave it out"
                )
            given[argument] = LEARNERS[str(value)]() if option == "learner" else value
        for argument, value in map(_setting, self.settings):
            if argument not in known or argument == "random_state":
                raise FederationError(
                    f"--set {argument}: {self.name} has no such argument; it has "
                    f"{', '.join(n for n in known if n != 'random_state')}"
                )
            given[argument] = value
        return kind(**given, random_state=self.seed)  # type: ignore[no-any-return]

    def words(self) -> list[str]:
        """The options as arguments of the command line."""
        words = ["--method", self.method] if self.method else []
        for name, value in self.said.items():
            option = f"--{name.replace('_', '-')}"
            words += [option] if value is True else [option, str(value)]
        words += [word for text in self.settings for word in ("--set", text)]
        return [*words, "--seed", str(self.seed)] if self.seed else words

    def about(self, engine: str) -> dict[str, object]:
        """The metadata for the file of the model."""
        if self.name == "fedpc":
            chosen = {"learner": self.learner or "learn-spn", "weights": "cooccurrence"}
            chosen |= {"weights": self.weights} if self.weights else {}
        else:
            chosen = {"method": self.name}
        for argument, _ in map(_setting, self.settings):
            chosen[argument] = next(s for s in self.settings if s.startswith(f"{argument}="))
        return {**chosen, "engine": engine, "seed": self.seed}


def _setting(text: str) -> tuple[str, object]:
    """NAME=VALUE; the value is JSON, or text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise FederationError(f"--set {text}: expected NAME=VALUE, such as max_iter=50")
    if name == "summation" and value in SUMMATIONS:
        return name, SUMMATIONS[value]()
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


# ---------------------------------------------------------------------- files


def check_output(path: Path, method: str = "fedpc", sites: bool = False) -> None:
    """FileError, before anything is learned, if the model cannot be written there."""
    ending = ".csv" if method == "kmeans" and not sites else ".fc"
    report.check_output(path, "a model" if ending == ".fc" else "a table of clusters", ending)


def save(
    path: Path,
    model: FederatedEstimator[object],
    federation: Federation,
    settings: dict[str, object],
    command: str,
    reading: DeclaredReading,
) -> None:
    """Write the model, how it was learned, and how its files were read."""
    if isinstance(model, VerticalKMeans):
        report.write(path, _clusters(model, federation))
        return
    if isinstance(model, FeatureFusion | FedTrees):
        model.save(path)
    else:
        whole = _whole(model)
        learned = {
            **settings,
            "split": model.kind_,
            "parties": {p.name: [len(p.table), len(p.table.names)] for p in federation},
            "messages": len(model.ledger_),
            "bytes": model.ledger_.bytes,
            "notes": list(model.notes_),
        }
        target = getattr(model, "target", None)
        about = {"estimator": type(model).__name__, "target": target, "learned": learned}
        files.write(path, whole.circuit_, whole.parameters_, about)
    record.write(path, record.of_training(model, federation, command, reading))


def _whole(model: FederatedEstimator[object]) -> Model:
    if isinstance(model, PrivateForest):
        return model.open_parameters()
    if isinstance(model, ChowLiuTree):
        return model
    whole = model.collect()
    assert isinstance(whole, Model)
    return whole


def _clusters(model: VerticalKMeans, federation: Federation) -> bytes:
    parts = []
    for party in federation:
        ids = party.table.row_ids
        rows = range(len(party.table)) if ids is None else ids
        parts.append(
            pd.DataFrame({"party": party.name, "row": rows, "cluster": model.labels_[party.name]})
        )
    text = io.StringIO()
    pd.concat(parts).to_csv(text, index=False)
    return text.getvalue().encode()
