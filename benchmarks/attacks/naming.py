"""Identifying rows: who can tell which patients the received messages are about?

An attacker holds everything that its program was given, received and sent. As candidate keys it
uses every string of bytes among these, everything that the library derives from them, and hashes of
small seeds. Under each key it computes the token of every possible id, and searches for it among
the tokens that it received. The table counts identified rows that the attacker does not hold
itself.
"""

import hashlib
import hmac
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

import fedcircuits as fc
from benchmarks.attacks.federations import Frames, federation, guesses, patients
from benchmarks.attacks.measuring import Measure, attempt, made
from benchmarks.attacks.wire import Role, Tap

SEEDS = 100  # that an attacker tries
PURPOSES = ("key/tokens", "rows that not all parties hold")  # that the library derives keys for
BOTH = "coordinator and clinic"  # who put together what they hold
TOLD = {"target": "hiv", "share_target": True}
ATTACKED: list[tuple[str, Any, dict[str, Any], tuple[str, ...]]] = [
    ("FedPC", fc.FedPC, {}, ("coordinator", "clinic", BOTH)),
    ("FedPC, share_target", fc.FedPC, TOLD, ("coordinator", "clinic")),
    ("FedTrees, share_target", fc.FedTrees, TOLD, ("coordinator", "clinic")),
    ("VerticalGaussianMixture", partial(fc.VerticalGaussianMixture, 2), {}, ("coordinator", BOTH)),
    ("VerticalKMeans", partial(fc.VerticalKMeans, 2), {}, ("coordinator", BOTH)),
    (
        "FeatureFusion",
        partial(fc.FeatureFusion, epochs=20),
        {"target": "hiv"},
        ("coordinator", BOTH),
    ),
]  # who matches rows, and who attacks


def measures(seed: int) -> list[Measure]:
    found = []
    for title, model, settings, roles in ATTACKED:
        for rows in ("tokens", "private"):
            more = {} if rows == "tokens" else {"rows": rows}
            fitted = cache(partial(tapped, model, {**settings, **more, "random_state": seed}, seed))
            for role in roles:
                row = {"method": title, "rows": rows, "attacker": role}
                attack = partial(named, fitted, role, seed)
                found.append(attempt("rows named", row, attack))
    return found


def tapped(model: Any, settings: dict[str, Any], seed: int) -> Tap:
    tap = Tap()
    made(model, settings).fit(federation(_patients(seed)), engine=tap)
    return tap


def _patients(seed: int) -> Frames:
    return patients(seed, rows=200, others=300)


def named(fitted: Callable[[], Tap], attacker: str, seed: int) -> float:
    """The share of the laboratory's rows, unknown to the attacker, that it names."""
    frames, tap = _patients(seed), fitted()
    roles = attacker.split(" and ")
    role = Role({}).joined(tap.role(name) for name in roles)
    own = {i for name in roles if name in frames for i in frames[name]["patient"].tolist()}
    strange = set(frames["laboratory"]["patient"].tolist()) - own
    return len(names_found(role, guesses(frames)) & strange) / len(strange)


def names_found(role: Role, ids: Any) -> set[int]:
    """The ids whose tokens are among what the role received."""
    got = {int(t) for a in role.arrays() if a.dtype == np.uint64 for t in a.reshape(-1)}
    held = role.keys()
    derived = [hmac.digest(key, purpose.encode(), "sha256") for key in held for purpose in PURPOSES]
    found: set[int] = set()
    for key in [*held, *derived, *map(_of_seed, range(SEEDS))]:
        if got & {_token(i, key) for i in ids[: len(ids) // 4].tolist()}:  # the right one
            found |= {i for i in ids.tolist() if _token(i, key) in got}
    return found


def _of_seed(seed: int) -> bytes:
    """The key that a seed once stood for."""
    return hashlib.sha256(f"fedcircuits rows {seed}".encode()).digest()


def _token(identity: int, key: bytes) -> int:
    digest = hmac.new(key, str(identity).encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8], "little")
