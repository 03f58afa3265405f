"""A fusion as one .fc file: the graph, every owner's encoder, the coordinator's fusion.

    circuit.json            a leaf an owner ("north/encoder") and the root ("fusion")
    parameters.safetensors  arrays of encoders under their leaves (learning/encoder_files.py), those
                            of the fusion and the overall shares under the root
                            (learning/fusion_files.py)
    fedcircuits.json        owners in their order with what their encoders are, the target, how it
                            was learned

Who writes it has what every owner has learned, so every owner must have allowed that. What is read
is checked part by part, and the graph must be the one that follows from the parts. What is written
is read back before it is, so that no file is written that could not be read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import TYPE_CHECKING, TypeVar, get_args

from fedcircuits.circuits.graph import files
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.engines.choice import engine_of
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FedcircuitsError, FileError
from fedcircuits.estimators import fusion_setup
from fedcircuits.estimators.model import require_estimator
from fedcircuits.estimators.summation_file import summation_of, summation_stored
from fedcircuits.estimators.task import Task
from fedcircuits.estimators.training import refuse_to_collect
from fedcircuits.federation.ledger import Ledger
from fedcircuits.learning.encoders.encoders import Encoder, Frozen, NetworkEncoder, Silent
from fedcircuits.learning.encoders.files import StoredEncoder, stored, suits
from fedcircuits.learning.encoders.foreign import ForeignEncoder
from fedcircuits.learning.stored import (
    AnyArray,
    Fields,
    StoredArrays,
    overall_of,
    plain,
    read_from,
)
from fedcircuits.methods.fusion.files import (
    MOST_SEEDS,
    Sizes,
    fusion_of,
    fusion_stored,
    settings_of,
    settings_stored,
    votes_of,
    votes_stored,
)
from fedcircuits.methods.fusion.fitting import Fusion, FusionSettings
from fedcircuits.methods.fusion.fused import FusionView, OwnerView, graph_of
from fedcircuits.methods.fusion.rows import TRAFFIC
from fedcircuits.methods.fusion.together import Together
from fedcircuits.methods.fusion.votes import Votes
from fedcircuits.tables.schema import Schema, Variable

if TYPE_CHECKING:
    from fedcircuits.estimators.feature_fusion import FeatureFusion

ESTIMATOR = "FeatureFusion"
AnyFusion = TypeVar("AnyFusion", bound="FeatureFusion")
SETTINGS = (  # that FusionSettings has under the same names
    "align", "reference", "temperature", "graph_draws", "owner_dropout", "hidden", "epochs",
    "patience", "learning_rate", "batch",
)  # fmt: skip
OTHERS = (  # that it has not
    "traffic", "clip", "noise", "training", "target", "task", "share_target", "validation",
    "on_lost", "random_state",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Content:
    """What a file has of a fusion, before it is known to be sound."""

    circuit: Circuit
    parameters: Parameters
    about: Fields

    @property
    def owners(self) -> dict[str, StoredEncoder]:
        found = {}
        for row in self.about.rows("owners"):
            one = Fields.of("an owner", row)
            name = one.text("name")
            about = one.inner("encoder", f"the encoder of {name!r}")
            found[name] = StoredEncoder(about, self.parameters.values.get(f"{name}/encoder", {}))
        if not found or len(found) != len(self.about.rows("owners")):
            raise FileError("owners must be some with different names")
        return found


# ---------------------------------------------------------------------- to a file


def write(model: FeatureFusion, path: str | os.PathLike[str]) -> None:
    """Refused unless every owner has allowed what it has learned to leave it."""
    refuse_to_collect({n: v.allow_collect for n, v in model.views_.items()})
    try:
        content = _content(model)
        own = {n: _inner(model.views_[n].encoder) for n, s in content.owners.items() if s.needs}
        _parts(content, own)
    except (FedcircuitsError, TypeError) as error:  # TypeError: a setting that JSON has no form of
        raise FileError(f"cannot write {path}: {error}") from error
    files.write(path, content.circuit, content.parameters, content.about.values)


def _inner(encoder: object) -> object:
    """The model that has to be given back for it."""
    while isinstance(encoder, Frozen):
        encoder = encoder.encoder
    return encoder.model_ if isinstance(encoder, ForeignEncoder) else encoder


def _content(model: FeatureFusion) -> Content:
    view, arrays, owners = model.fusion_, {}, []
    for name, own_view in model.views_.items():
        about, arrays[f"{name}/encoder"] = stored(own_view.encoder)
        owners.append({"name": name, "encoder": about})
    if isinstance(view.fusion, Fusion):
        settings = view.fusion.settings
    else:
        settings = fusion_setup.plan_of(model, model.target_, model._seed, None).settings
    learned = settings_stored(settings) | {n: plain(getattr(model, n)) for n in OTHERS}
    learned["summing"] = summation_stored(model.summation)
    metadata: dict[str, object] = {
        "estimator": ESTIMATOR, "target": view.target.name, "learned": learned, "owners": owners,
        "target variable": Schema((view.target,)).to_json(), "scale": list(map(float, view.scale)),
        "seed": int(model._seed), "notes": list(model.notes_),
    }  # fmt: skip
    own: dict[str, AnyArray] = {}
    if isinstance(view.fusion, Fusion):
        metadata["fusion"], own = fusion_stored(view.fusion)
    else:
        metadata["fusion"] = votes_stored(view.fusion)
    arrays[view.circuit.root.name] = {**own, "overall": view.overall}
    about = json.loads(json.dumps(metadata))
    return Content(view.circuit, Parameters(arrays), Fields("the file", about))  # type: ignore[arg-type]


# ---------------------------------------------------------------------- from a file


def read(
    cls: type[AnyFusion],
    path: str | os.PathLike[str],
    encoders: Mapping[str, object],
    engine: str | Engine,
) -> AnyFusion:
    """``encoders``: by owner, models of other libraries, which the file does not have."""
    circuit, parameters, metadata = files.read(path)
    require_estimator(path, metadata, ESTIMATOR)
    content = Content(circuit, parameters, Fields("the file", metadata))
    with read_from(path):
        needed = {n: (s.name, s.needs) for n, s in content.owners.items() if s.needs is not None}
    _check_given(path, needed, encoders)
    with read_from(path):
        parts = _parts(content, encoders)
    found = cls({n: v.encoder for n, v in parts.views.items()}, **parts.settings)  # type: ignore[arg-type]
    found.views_, found.fusion_, found.target_ = parts.views, parts.view, parts.view.target.name
    found.circuit_, found.placement_ = parts.view.circuit, parts.view.placement
    found.ledger_, found.queries_, found.notes_ = Ledger(), Ledger(), parts.notes
    found._run, found._seed = engine_of(engine), parts.seed
    return found


def _check_given(
    path: object, needed: Mapping[str, tuple[str, str]], given: Mapping[str, object]
) -> None:
    for name, (model, needs) in needed.items():
        if name not in given:
            raise FileError(
                f"{path} does not hold the encoder of {name!r}, a {model} of yours: "
                f"FeatureFusion.load(path, encoders={{{name!r}: model}}) with the one it was "
                "learned with"
            )
        if not suits(given[name], needs):
            raise FileError(
                f"{path}: the encoder of {name!r} must have {needs}, as the {model} it was learned "
                f"with, got {shortened(given[name])}"
            )
    for name in given:
        if name not in needed:
            raise FileError(f"{path} needs no encoder for {name!r}: leave it out")


@dataclass(frozen=True, slots=True)
class Parts:
    """All of a fusion, sound."""

    views: dict[str, OwnerView]
    view: FusionView
    settings: dict[str, object]
    seed: int
    notes: tuple[str, ...]


def _parts(content: Content, given: Mapping[str, object]) -> Parts:
    about = content.about
    target, settings = about.variable("target variable"), settings_of(about.inner("learned"))
    encoders = {n: s.encoder(given.get(n)) for n, s in content.owners.items()}
    speaking = {n: e for n, e in encoders.items() if not isinstance(e, Silent)}
    votes = "vote" in about.inner("fusion").values
    columns, widths = _leaves(content, speaking, votes)
    sizes = Sizes(len(speaking), max(widths.values(), default=0), target.size or 1)
    fusion, overall = _fusion(content, settings, sizes, target, votes)
    operation = fusion.kind if isinstance(fusion, Votes) else settings.head
    circuit, placement = graph_of(columns, widths, operation, sizes.outputs)
    if circuit != content.circuit:
        raise FileError("its graph is not that of a fusion of these owners")
    scale = about.pair("scale")
    if about.text("target") != target.name or (target.size and scale != (0.0, 1.0)):
        raise FileError("'target' and 'scale' must be those of the target's variable")
    owners = tuple(speaking)
    view = FusionView(circuit, placement, target, overall, owners, sizes.width, fusion, scale)
    views = {
        n: OwnerView(n, circuit, placement, target, e, votes, True) for n, e in encoders.items()
    }
    learned = _learned(about.inner("learned"), settings, fusion, tuple(encoders))
    seed = about.whole("seed", most=MOST_SEEDS)
    return Parts(views, view, learned, seed, tuple(about.texts("notes")))


def _fusion(
    content: Content, settings: FusionSettings, sizes: Sizes, target: Variable, votes: bool
) -> tuple[Fusion | Votes, Array]:
    """The fusion, and the overall shares or mean of the target."""
    about, root = content.about.inner("fusion", "the fusion"), content.circuit.root.name
    arrays = StoredArrays("the fusion", content.parameters.values.get(root, {}))
    overall = overall_of(arrays, target)
    found: Fusion | Votes
    if not votes:
        found = fusion_of(about, arrays, settings, sizes, bool(target.size))
    elif sizes.width == sizes.outputs:
        found = votes_of(about, sizes.owners, target.size)
    else:
        raise FileError(f"owners must predict {sizes.outputs} numbers where they vote")
    arrays.end()
    return found, overall


def _leaves(
    content: Content, encoders: Mapping[str, Encoder], votes: bool
) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    """By owner: the columns that its leaf reads, and the width of what it sends."""
    columns, widths = {}, {}
    for name, encoder in encoders.items():
        leaf = content.circuit[f"{name}/encoder"]
        scope = tuple(v.removeprefix(f"{name}/") for v in getattr(leaf, "scope", ()))
        reading = getattr(encoder, "reading_", None)
        columns[name] = scope if reading is None else reading.names
        own = encoder.encoder if isinstance(encoder, Frozen) else encoder
        widths[name] = content.circuit.units[leaf.name]
        meant = getattr(own, "target_", None)
        if votes and isinstance(meant, Variable):
            widths[name] = meant.size or 1
        elif isinstance(own, NetworkEncoder) and hasattr(own, "network_") and not votes:
            widths[name] = own.network_.width
    return columns, widths


def _learned(
    about: Fields, settings: FusionSettings, fusion: Fusion | Votes, owners: tuple[str, ...]
) -> dict[str, object]:
    """The settings that it was learned with, as ``FeatureFusion`` takes them."""
    summation = summation_of(about, owners)
    graph: object = settings.graph
    if summation is not None:
        if settings.align or settings.graph or settings.head != "gcn" or isinstance(fusion, Votes):
            raise FileError("sums of representations are for a complete graph without alignment")
        graph = "complete"
    elif graph == "given":
        graph = fusion.graph if isinstance(fusion, Fusion) else None
    return {
        **{name: getattr(settings, name) for name in SETTINGS},
        "graph": graph,
        "head": fusion.kind if isinstance(fusion, Votes) else settings.head,
        "summation": summation,
        "traffic": about.word("traffic", TRAFFIC),
        "clip": None if about.none("clip") else about.number("clip", above=0),
        "noise": about.number("noise", least=0),
        "training": about.word("training", ("apart", *get_args(Together))),
        "target": None if about.none("target") else about.text("target"),
        "task": about.word("task", get_args(Task)),
        "share_target": about.flag("share_target"),
        "validation": about.share("validation"),
        "on_lost": about.word("on_lost", ("stop", "continue")),
        "random_state": None if about.none("random_state") else about.whole("random_state"),
    }
