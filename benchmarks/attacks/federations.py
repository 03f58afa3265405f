"""Tables to attack: a clinic and a laboratory with the same patients, and rows of booleans."""

from typing import Any

import numpy as np
import pandas as pd

import fedcircuits as fc

FIRST_ID = 4_000_000  # of seven digits: whoever wants to can try them all
DIAGNOSES = ("none", "asthma", "diabetes", "gout", "lupus", "measles", "rabies", "scurvy")
SHARES = (0.6, 0.2, 0.1, 0.05, 0.02, 0.01, 0.01, 0.01)
Frames = dict[str, pd.DataFrame]


def patients(seed: int, rows: int = 500, others: int = 0) -> Frames:
    """A clinic, and a laboratory that has ``others`` more patients. The clinic's columns say
    nothing about the laboratory's sensitive ones but a little about ``cd4``."""
    rng = np.random.default_rng([seed, rows])
    every = rows + others
    ids = rng.choice(FIRST_ID + np.arange(4 * every), every, replace=False)
    hiv = rng.random(every) < 0.1
    diagnosis = rng.choice(len(SHARES), every, p=SHARES)
    age = rng.normal(50, 15, every).round()
    clinic = pd.DataFrame({"patient": ids, "age": age, "smoker": rng.random(every) < 0.3})
    clinic["visits"] = rng.poisson(3 + age / 30)
    laboratory = pd.DataFrame({"patient": ids, "hiv": hiv})
    laboratory["cd4"] = rng.normal(np.where(hiv, 300, 850) - age, 90)
    laboratory["viral"] = np.where(hiv, rng.normal(4.5, 0.7, every), rng.normal(1.2, 0.2, every))
    laboratory["diagnosis"] = np.array(DIAGNOSES)[diagnosis]
    clinic = clinic.iloc[rng.permutation(rows)].reset_index(drop=True)
    laboratory = laboratory.iloc[rng.permutation(every)].reset_index(drop=True)
    return {"clinic": clinic, "laboratory": laboratory}


def with_pharmacy(frames: Frames, seed: int) -> Frames:
    """A third party, with the clinic's patients and a column of its own."""
    rng, ids = np.random.default_rng([seed, 3]), frames["clinic"]["patient"].to_numpy()
    own = pd.DataFrame({"patient": ids, "doses": rng.poisson(4, len(ids))})
    return {**frames, "pharmacy": own}


def guesses(frames: Frames) -> Any:
    """Every id that a patient could have."""
    return FIRST_ID + np.arange(4 * max(map(len, frames.values())))


def federation(frames: Any, **settings: Any) -> fc.Federation:
    """As the checkout makes it; settings that it does not know raise TypeError."""
    return fc.Federation(frames, row_id="patient", **settings)


def kinds(seed: int, rows: int, columns: int = 40, kinds: int = 30) -> Any:
    """Booleans (rows, columns) of as many kinds of rows."""
    rng = np.random.default_rng([seed, columns])
    chance = rng.beta(2, 2, (kinds, columns))
    drawn = np.random.default_rng([seed, columns, rows])
    return drawn.random((rows, columns)) < chance[drawn.integers(kinds, size=rows)]
