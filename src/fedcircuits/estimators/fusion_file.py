"""A fusion as one .fc file: the graph, the encoders of all owners, and the coordinator's fusion.

    circuit.json            a leaf per owner ("north/encoder") and the root ("fusion")
    parameters.safetensors  arrays of encoders under their leaves (encoders/files.py); under the
                            root the "overall" shares, and of a trained fusion the parameters of its
                            head by name, "graph" (owners, owners), "scale/mean" and "scale/rate" of
                            what owners send, "history/training" and "history/held back"
    fedcircuits.json        ``StoredFusionModel``: the owners in order with descriptions of their
                            encoders, the target, and the settings

The writer holds what every owner has learned, so every owner must have allowed that. A file is
checked part by part when it is read, and its graph must be the one that follows from the parts.
Before writing, the content is read back, so that no unreadable file is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np

from fedcircuits.circuits.graph import files
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.files import require_estimator
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.graph.records import (
    AnyArray,
    BelowOne,
    Json,
    Place,
    Positive,
    Probability,
    SchemaJson,
    StoredArrays,
    fields_of,
    overall_of,
    read_from,
    record_of,
    variable_of,
)
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FedcircuitsError, FileError
from fedcircuits.estimators.engine_choice import engine_of
from fedcircuits.estimators.targets import Task
from fedcircuits.federation.messages import Ledger
from fedcircuits.learning.encoders.encoders import NetworkEncoder
from fedcircuits.learning.encoders.files import AnyStoredEncoder, stored, suits
from fedcircuits.learning.encoders.fixed import FixedEncoder
from fedcircuits.learning.encoders.foreign import Encoder, ForeignEncoder, Frozen, LabelsOnly
from fedcircuits.methods.fusion.fitting import Fusion, Standardisation, Vote, Votes
from fedcircuits.methods.fusion.gathering import Traffic
from fedcircuits.methods.fusion.heads import FusionSettings, shapes
from fedcircuits.methods.fusion.query import FusionView, OwnerView, graph_of
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.privacy.summation_file import summation_of, summation_stored
from fedcircuits.tables.schema import Schema, Variable

if TYPE_CHECKING:
    from fedcircuits.estimators.feature_fusion import FeatureFusion

ESTIMATOR: Final = "FeatureFusion"
AnyFusion = TypeVar("AnyFusion", bound="FeatureFusion")
Seed: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
PRESENCE = "presence"  # of owners, which not every fusion of numbers has learned from
HISTORY = ("training", "held back")


@dataclass(frozen=True, slots=True)
class StoredSettings(FusionSettings):
    """The parameters of ``FeatureFusion`` except encoders; votes are stored with head "gcn"."""

    traffic: Traffic = "float32"
    clip: Positive | None = None
    noise: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    training: Literal["apart", "tied", "averaged", "joint", "scratch"] = "apart"  # once a choice
    target: str | None = None
    task: Task = "auto"
    share_target: bool = False
    rows: RowRule = "tokens"
    validation: BelowOne = 0.125
    on_lost: Literal["stop", "continue"] = "stop"
    random_state: Seed | None = None
    summing: Json | None = None  # how owners add up


OTHERS = [f.name for f in fields(StoredSettings) if f.name not in FusionSettings.__slots__]


class StoredOwner(msgspec.Struct, frozen=True):
    name: str
    encoder: AnyStoredEncoder


class StoredFusion(msgspec.Struct, frozen=True):
    """A trained fusion; the rest is in arrays."""

    parameters: list[str]
    seed: Seed
    best: Place
    standardised: bool


class StoredVotes(msgspec.Struct, frozen=True):
    vote: Vote
    threshold: Probability
    best: Place


class StoredFusionModel(msgspec.Struct, frozen=True):
    estimator: Literal["FeatureFusion"]
    target: str
    target_variable: SchemaJson = msgspec.field(name="target variable")
    learned: StoredSettings
    owners: Annotated[list[StoredOwner], msgspec.Meta(min_length=1)]
    scale: tuple[float, float]
    seed: Seed
    notes: list[str]
    fusion: Json  # StoredFusion or StoredVotes

    @property
    def encoders(self) -> dict[str, AnyStoredEncoder]:
        """By owner."""
        encoders = {owner.name: owner.encoder for owner in self.owners}
        if len(encoders) < len(self.owners):
            raise FileError("owners must have different names")
        return encoders


@dataclass(frozen=True, slots=True)
class StoredContent:
    """The content of a file of a fusion, before validation."""

    circuit: Circuit
    parameters: Parameters
    about: StoredFusionModel

    def arrays(self, node: str, what: str) -> StoredArrays:
        return StoredArrays(what, self.parameters.values.get(node, {}))


# ---------------------------------------------------------------------- to a file


def write(
    model: FeatureFusion, views: Mapping[str, OwnerView], path: str | os.PathLike[str]
) -> None:
    """Write a model whose owners have allowed their parts, ``views``, to be collected."""
    try:
        content = _content(model, views)
        encoders = content.about.encoders
        given = {n: _inner(views[n].encoder) for n, s in encoders.items() if s.needs}
        _loaded(content, given)
    except FedcircuitsError as error:
        raise FileError(f"cannot write {path}: {error}") from error
    files.write(path, content.circuit, content.parameters, fields_of(content.about))


def _inner(encoder: object) -> object:
    """The model that must be passed to ``load`` for this encoder."""
    while isinstance(encoder, Frozen):
        encoder = encoder.encoder
    return encoder.model_ if isinstance(encoder, ForeignEncoder) else encoder


def _content(model: FeatureFusion, views: Mapping[str, OwnerView]) -> StoredContent:
    """The content as it will be read, after a round trip through JSON."""
    view, owners = model.fusion_, []
    arrays: dict[str, Mapping[str, AnyArray]] = {}
    for name, state in views.items():
        encoder, arrays[f"{name}/encoder"] = stored(state.encoder)
        owners.append(StoredOwner(name, encoder))
    fusion, learned = _stored_fusion(view.fusion)
    arrays[view.circuit.root.name] = {**learned, "overall": view.overall}
    about = StoredFusionModel(
        ESTIMATOR, view.target.name, list(Schema((view.target,)).to_json()),
        _stored_settings(model), owners, view.scale, model._seed, list(model.notes_), fusion,
    )  # fmt: skip
    about = record_of(StoredFusionModel, fields_of(about), "the fusion")
    return StoredContent(view.circuit, Parameters(arrays), about)  # type: ignore[arg-type]


def _stored_settings(model: FeatureFusion) -> StoredSettings:
    """The settings that the fusion was trained with."""
    fusion = model.fusion_.fusion
    if isinstance(fusion, Fusion):
        settings = fusion.settings
    else:
        settings = model._plan(model.target_, model._seed).settings
    others = {name: getattr(model, name) for name in OTHERS if hasattr(model, name)}
    summing = summation_stored(model.summation)
    return StoredSettings(**asdict(settings), **others, summing=summing)


def _stored_fusion(fusion: Fusion | Votes) -> tuple[Json, dict[str, AnyArray]]:
    if isinstance(fusion, Votes):
        return fields_of(StoredVotes(fusion.kind, fusion.threshold, fusion.best)), {}
    arrays: dict[str, AnyArray] = dict(fusion.values)
    if fusion.graph is not None:
        arrays["graph"] = fusion.graph
    if fusion.scale is not None:
        arrays |= {"scale/mean": fusion.scale.mean, "scale/rate": fusion.scale.rate}
    for name in HISTORY:
        arrays[f"history/{name}"] = np.array(fusion.history.get(name, []), np.float64)
    standardised = fusion.scale is not None
    about = StoredFusion(list(fusion.values), fusion.seed, fusion.best, standardised)
    return fields_of(about), arrays


# ---------------------------------------------------------------------- from a file


def read(
    cls: type[AnyFusion],
    path: str | os.PathLike[str],
    encoders: Mapping[str, object],
    engine: str | Engine | None,
) -> AnyFusion:
    """Load a fusion; ``encoders``: models of other libraries by owner, which files do not hold."""
    circuit, parameters, metadata = files.read(path)
    require_estimator(path, metadata, ESTIMATOR)
    with read_from(path):
        about = record_of(StoredFusionModel, metadata, "the file")
        needed = {n: (s.name, s.needs) for n, s in about.encoders.items() if s.needs is not None}
    _check_given(path, needed, encoders)
    with read_from(path):
        views, view, settings = _loaded(StoredContent(circuit, parameters, about), encoders)
    model = cls({n: v.encoder for n, v in views.items()}, **settings)  # type: ignore[arg-type]
    model._set_learned(views, view, tuple(about.notes), about.seed)
    model.ledger_, model.queries_, model._engine = Ledger(), Ledger(), engine_of(engine)
    model._allow_collect = dict.fromkeys(views, True)
    return model


def encoder_names(metadata: files.Metadata) -> dict[str, str]:
    """The class names of encoders by owner."""
    about = record_of(StoredFusionModel, dict(metadata), "the file")
    return {name: encoder.name for name, encoder in about.encoders.items()}


def _check_given(
    path: object, needed: Mapping[str, tuple[str, str]], given: Mapping[str, object]
) -> None:
    for name, (model, needs) in needed.items():
        if name not in given:
            raise FileError(
                f"{path} does not hold the encoder of {name!r}, your own {model}: "
                f"FeatureFusion.load(path, encoders={{{name!r}: model}}) with the one used in "
                "training"
            )
        if not suits(given[name], needs):
            raise FileError(
                f"{path}: the encoder of {name!r} must have {needs}, as the {model} it was learned "
                f"with, got {shortened(given[name])}"
            )
    for name in given:
        if name not in needed:
            raise FileError(f"{path} needs no encoder for {name!r}: leave it out")


def _loaded(
    content: StoredContent, given: Mapping[str, object]
) -> tuple[dict[str, OwnerView], FusionView, dict[str, object]]:
    """The parts of the owners and of the coordinator, and the parameters of ``FeatureFusion``."""
    about = content.about
    target = variable_of(about.target_variable, "'target variable'")
    encoders: dict[str, Encoder] = {}
    for name, encoder in about.encoders.items():
        arrays = content.arrays(f"{name}/encoder", f"the encoder of {name!r}")
        encoders[name] = encoder.encoder(arrays, given.get(name))
    owners = {n: e for n, e in encoders.items() if not isinstance(e, LabelsOnly)}
    votes = "vote" in about.fusion
    columns, widths = _leaves(content, owners, votes)
    fusion, overall = _fusion(content, target, widths)
    operation = fusion.kind if isinstance(fusion, Votes) else about.learned.head
    circuit, placement = graph_of(columns, widths, operation, target.size or 1)
    if circuit != content.circuit:
        raise FileError("its graph is not that of a fusion of these owners")
    if about.target != target.name or (target.size and about.scale != (0.0, 1.0)):
        raise FileError("'target' and 'scale' must be those of the target's variable")
    width = max(widths.values())
    view = FusionView(
        circuit, placement, target, overall, tuple(owners), width, fusion, about.scale
    )
    clip, noise = about.learned.clip, about.learned.noise
    views = {
        n: OwnerView(n, circuit, placement, target, e, votes, clip, noise)
        for n, e in encoders.items()
    }
    return views, view, _arguments(about.learned, fusion, tuple(encoders))


def _fusion(
    content: StoredContent, target: Variable, widths: Mapping[str, int]
) -> tuple[Fusion | Votes, Array]:
    """The fusion, and the overall shares or mean of the target."""
    arrays, about = content.arrays(content.circuit.root.name, "the fusion"), content.about.fusion
    overall, outputs = overall_of(arrays, target), target.size or 1
    width = max(widths.values(), default=0)
    fusion: Fusion | Votes
    if "vote" not in about:
        record = record_of(StoredFusion, about, "the fusion")
        fusion = _trained(record, arrays, content.about.learned, (len(widths), width), target)
    else:
        votes = record_of(StoredVotes, about, "the fusion")
        if width != outputs or votes.best >= len(widths):
            raise FileError(f"the best of {len(widths)} owners must predict {outputs} numbers")
        if votes.vote == "threshold" and target.size != 2:
            raise FileError(f"a threshold needs two classes, got {target.size}")
        fusion = Votes(votes.vote, target.size, votes.threshold, votes.best)
    arrays.end()
    return fusion, overall


def _trained(
    about: StoredFusion, arrays: StoredArrays, learned: StoredSettings, sizes: tuple[int, int],
    target: Variable,
) -> Fusion:  # fmt: skip
    settings = FusionSettings(**{f.name: getattr(learned, f.name) for f in fields(FusionSettings)})
    owners, width = sizes
    known = shapes(settings, owners, width, target.size or 1)
    if not target.size and settings.head in ("gcn", "mean") and PRESENCE in about.parameters:
        known[PRESENCE] = (1,)
    if set(about.parameters) != set(known):
        raise FileError(f"the fusion: expected the parameters {', '.join(known)}")
    values = {name: arrays.take(name, shape).astype(np.float32) for name, shape in known.items()}
    graph = None
    if settings.has_graph:
        graph = arrays.take("graph", (owners, owners), "float64").astype(np.float64)
        most = 1.0 if settings.learns_graph else np.inf
        if (graph < 0).any() or (graph > most).any():
            raise FileError(f"the fusion: numbers of 'graph' must be from 0 to {most:g}")
    losses = {n: arrays.take(f"history/{n}", (None,), "float64", finite=False) for n in HISTORY}
    scale = None
    if about.standardised:
        mean, rate = (arrays.take(f"scale/{n}", (owners, 1, width)) for n in ("mean", "rate"))
        scale = Standardisation(mean.astype(np.float32), rate.astype(np.float32))
    return Fusion(
        settings, "classes" if target.size else "numbers", values, graph,
        {name: each.tolist() for name, each in losses.items()}, about.best, about.seed, scale,
    )  # fmt: skip


def _leaves(
    content: StoredContent, encoders: Mapping[str, Encoder], votes: bool
) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    """The columns read by each owner's leaf, and the width of what it sends."""
    columns, widths = {}, {}
    for name, encoder in encoders.items():
        leaf = content.circuit[f"{name}/encoder"]
        scope = tuple(v.removeprefix(f"{name}/") for v in getattr(leaf, "scope", ()))
        reading = getattr(encoder, "reading_", None)
        columns[name] = scope if reading is None else reading.names
        inner = encoder.encoder if isinstance(encoder, Frozen) else encoder
        widths[name] = content.circuit.units[leaf.name]
        predicted = getattr(inner, "target_", None)
        if votes and isinstance(predicted, Variable):
            widths[name] = predicted.size or 1
        elif isinstance(inner, NetworkEncoder) and hasattr(inner, "network_") and not votes:
            widths[name] = inner.network_.width
        elif isinstance(inner, FixedEncoder) and hasattr(inner, "_centre") and not votes:
            widths[name] = inner.representation_width
    return columns, widths


def _arguments(
    learned: StoredSettings, fusion: Fusion | Votes, owners: tuple[str, ...]
) -> dict[str, object]:
    """The stored settings as parameters of ``FeatureFusion``."""
    summation = summation_of(learned.summing, owners)
    graph: object = learned.graph
    if summation is not None:
        if learned.align or learned.graph or learned.head != "gcn" or isinstance(fusion, Votes):
            raise FileError("sums of representations are for a complete graph without alignment")
        graph = "complete"
    elif graph == "given":
        graph = fusion.graph if isinstance(fusion, Fusion) else None
    arguments = asdict(learned) | {"graph": graph, "summation": summation}
    arguments["head"] = fusion.kind if isinstance(fusion, Votes) else learned.head
    for name in ("weight_decay", "training", "summing"):
        del arguments[name]
    return arguments
