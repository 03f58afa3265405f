"""The command line as a new user meets it, with tables of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import Result

import fedcircuits as fc
from fedcircuits.app import cli
from tests.commands import RUNNER
from tests.forked import python

SOURCE = Path(fc.__file__).parents[1]
ROWS = 300
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "utf-8"}
TRAIN = "train north.csv south.parquet --row-id id --target risk -o model.fc".split()
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables of two parties, and a model learned from them."""
    folder = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    age = rng.integers(20, 90, ROWS)
    risk = np.where(rng.random(ROWS) < (age - 20) / 70, "high", "low")
    pressure = (100 + 0.5 * age + rng.normal(0, 8, ROWS)).round(1)
    frame = pd.DataFrame({"id": [f"p{i:03d}" for i in range(ROWS)], "age": age, "risk": risk})
    frame["blood pressure"] = pressure
    frame.to_csv(folder / "all.csv", index=False)
    frame[["id", "age"]].sample(frac=0.9, random_state=1).to_csv(folder / "north.csv", index=False)
    frame[["id", "risk", "blood pressure"]].to_parquet(folder / "south.parquet")
    (folder / "other").mkdir()
    (folder / "other" / "north.csv").write_text("age\n1\n2\n")
    (folder / "junk.fc").write_text("no model")
    (folder / "empty.csv").write_text("")
    program = python("-m", "fedcircuits", *TRAIN)
    found = subprocess.run(
        program, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=600
    )
    assert found.returncode == 0, found.stderr
    (folder / "printed.txt").write_text(found.stdout, encoding="utf-8")
    whole = (folder / "model.fc").read_bytes()
    (folder / "cut.fc").write_bytes(whole[: len(whole) // 2])
    return folder


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(home)

    def ran(*words: str) -> Result:
        return RUNNER.invoke(cli.app, list(words))

    return ran


def test_train_tells_the_split_and_what_crossed(home: Path) -> None:
    printed = (home / "printed.txt").read_text(encoding="utf-8")
    assert printed.startswith("vertical split: 2 parties, 3 variables")
    lines = {line.split()[0]: line.split() for line in printed.splitlines() if line.strip()}
    assert lines["variables"][1:] == ["north", "(270", "rows)", "south", "(300", "rows)"]
    assert lines["age"][1:] == ["●", "·"] and lines["risk,"][-2:] == ["·", "●"]
    table = printed[printed.index("messages") : printed.index("What was revealed")]
    rows = [line.replace(",", "").split() for line in table.splitlines()[1:] if line]
    assert [row[0] for row in rows] == ["agree", "key", "rows", "count", "graph", "all"]
    assert sum(int(row[2]) for row in rows[:-1]) == int(rows[-1][2])
    assert "for every pair of columns how many rows" in printed
    assert "wrote model.fc, and model.schema.toml" in printed


def test_the_same_words_learn_the_same_model(run: Run, home: Path) -> None:
    words = [w if w != "model.fc" else "again.fc" for w in TRAIN]
    assert run(*words).exit_code == 0
    asked = {"risk": ["high"], "age": [50], "blood pressure": [130.0]}
    first, again = (
        fc.load(home / n).score_samples(pd.DataFrame(asked)) for n in ("model.fc", "again.fc")
    )
    np.testing.assert_array_equal(first, again)


def test_rows_without_ids_and_other_learners(run: Run, home: Path) -> None:
    found = run("split", "all.csv", "--row-id", "id", "--by", "rows", "--parties", "a,b", "-o", "r")
    assert found.exit_code == 0 and "horizontal split: 2 parties" in found.stdout
    parts = [f"{n}={home / 'r' / n}.csv" for n in ("a", "b")]
    words = ["--learner", "mixture", "--clusters", "2", "--row-id", "id", "-o", "rows.fc"]
    found = run("train", *parts, *words)
    assert found.exit_code == 0, found.stderr
    assert "horizontal" in found.stdout and fc.load(home / "rows.fc").schema_.names[0] == "age"


def test_parties_without_shared_rows_are_noted(run: Run, home: Path) -> None:
    frame = pd.read_csv(home / "all.csv")
    frame[["age"]].to_csv(home / "ages.csv", index=False)
    frame[["risk"]].to_csv(home / "risks.csv", index=False)
    found = run("train", "ages.csv", "risks.csv", "-o", "apart.fc")
    assert found.exit_code == 0
    assert found.stderr.startswith("note: ") and "row ids" in found.stderr
    assert "row ids" in run("inspect", "apart.fc").stdout


def test_pooled_categories_are_noted_and_a_question_about_one_is_explained(
    run: Run, home: Path
) -> None:
    frame = pd.read_csv(home / "all.csv")[["age", "risk"]]
    frame.loc[0, "risk"] = "kuru"
    frame.to_csv(home / "rare.csv", index=False)
    found = run("train", "rare.csv", "-o", "rare.fc")
    assert found.exit_code == 0, found.stderr
    assert "note: rare: categories of 'risk' that occur in fewer than 5" in found.stderr
    asked = run("query", "rare.fc", "P(risk = kuru)")
    assert asked.exit_code == 1
    assert "a federation calls categories that few rows of a party have 'other'" in asked.stderr
    kept = run("train", "rare.csv", "-o", "kept.fc", "--least-count", "1")
    assert kept.exit_code == 0 and kept.stderr == ""
    assert run("query", "kept.fc", "P(risk = kuru)").exit_code == 0


# ---------------------------------------------------------------------- questions


def test_answers_are_those_of_the_model(run: Run, home: Path) -> None:
    questions = ["P(risk = 'high' | age > 60)", "risk = high", "E(age | risk = 'high')", "P(risk)"]
    found = run("query", "model.fc", "--json", *questions)
    assert found.exit_code == 0
    conditional, prior, mean, classes = json.loads(found.stdout)
    model = fc.load(home / "model.fc")
    expected = model.probability("risk = high", given="age > 60")
    assert conditional["probability"] == pytest.approx(expected, rel=1e-12)
    assert prior["probability"] == pytest.approx(model.probability("risk = high"), abs=1e-12)
    line = model.expect("age", given="risk = high").loc["age"]
    assert (mean["mean"], mean["variance"]) == pytest.approx(tuple(line))
    assert classes["probabilities"]["high"] == pytest.approx(prior["probability"])
    assert sum(classes["probabilities"].values()) == pytest.approx(1)
    assert conditional["probability"] > prior["probability"]


def test_answers_in_words(run: Run) -> None:
    found = run(
        "query", "model.fc", "E(`blood pressure` | 30 < age < 40)", "P(risk | age = 80)", "age > 50"
    )
    first, second, high, low, last = found.stdout.splitlines()
    assert first.startswith("E(`blood pressure` | 30 < age < 40) = 1") and " ± " in first
    assert second == "P(risk | age = 80)"
    assert high.startswith("  high: 0.") and low.startswith("  low: 0.")
    assert last.startswith("P(age > 50) = 0.")


def test_inspect_tells_all(run: Run) -> None:
    printed = run("inspect", "model.fc").stdout
    for words in ("target: risk", "risk", "category", "high, low", "sum", "product", "parameters"):
        assert words in printed
    assert "parties: north 270 rows × 1 variables; south 300 rows × 2 variables" in printed
    assert "split: vertical" in printed


def test_inspect_takes_any_model(run: Run, home: Path) -> None:
    table = fc.Table.of({"\x1b[31mred": [1.0, 2.0, 4.0]})
    fc.MixtureOfProducts(1, random_state=0).fit(table).save(home / "plain.fc")
    found = run("inspect", "plain.fc")
    assert found.exit_code == 0 and "target: none" in found.stdout
    assert "\x1b" not in found.stdout and "�[31mred" in found.stdout


def test_samples_are_csv(run: Run, home: Path) -> None:
    words = ("sample", "model.fc", "-n", "5", "--given", "age > 60")
    printed = run(*words).stdout
    assert run(*words, "-o", "drawn.csv").exit_code == 0
    assert (home / "drawn.csv").read_text() == printed
    drawn = pd.read_csv(home / "drawn.csv")
    assert len(drawn) == 5 and (drawn["age"] > 60).all() and set(drawn["risk"]) <= {"high", "low"}


# ---------------------------------------------------------------------- splits


def test_the_files_of_a_split_are_the_table(run: Run, home: Path) -> None:
    found = run("split", "all.csv", "--row-id", "id", "--target", "risk", "-o", "parts")
    assert found.exit_code == 0 and "vertical split: 3 parties" in found.stdout
    parts = [pd.read_csv(home / "parts" / f"party-{i}.csv", index_col="id") for i in (1, 2, 3)]
    whole = pd.read_csv(home / "all.csv", index_col="id")
    pd.testing.assert_frame_equal(pd.concat(parts, axis=1)[whole.columns], whole)
    assert "risk" in parts[2] and "--row-id id --target risk -o model.fc" in found.stdout


def test_the_command_that_split_names_works(run: Run, home: Path) -> None:
    frame = pd.read_csv(home / "all.csv").drop(columns="id")
    frame.to_csv(home / "bare.csv", index=False)
    words = "split bare.csv --by both --parties 2 --overlap 0.4 -o pieces".split()
    command = run(*words).stdout.strip().splitlines()[-1].split()
    assert command[:2] == ["fedcircuits", "train"] and "row_id" in command
    found = run(*command[1:])
    assert found.exit_code == 0 and "hybrid split: 2 parties" in found.stdout


def test_a_split_writes_over_nothing(run: Run, home: Path) -> None:
    (home / "mine").mkdir()
    (home / "mine" / "party-2.csv").write_text("precious")
    found = run("split", "all.csv", "--row-id", "id", "-o", "mine")
    assert found.exit_code == 1 and "party-2.csv already exists" in found.stderr
    assert [p.name for p in (home / "mine").iterdir()] == ["party-2.csv"]
    assert (home / "mine" / "party-2.csv").read_text() == "precious"


# ---------------------------------------------------------------------- what goes wrong

WRONG = {
    "train nope.csv -o m.fc": "nope.csv: there is no such file",
    "train north.csv nope.csv -o m.fc": "nope.csv: there is no such file",
    "train north.csv south.parquet --row-id idd -o m.fc": "did you mean 'id'?",
    "train north.csv south.parquet --row-id south=idd -o m.fc": "did you mean 'id'?",
    "train north.csv south.parquet --row-id id --row-id risk -o m.fc": "--row-id PARTY=COLUMN",
    "train north.csv south.parquet --row-id id --target rsk -o m.fc": "did you mean 'risk'?",
    "train north.csv other/north.csv -o m.fc": "two files are called 'north'",
    "train coordinator=north.csv --row-id id -o m.fc": "coordinator",
    "train empty.csv -o m.fc": "empty.csv: the file is empty",
    "train north.csv --row-id id --learner chow-liu -o m.fc": "north failed while learning",
    "train junk.fc -o m.fc": "expected a file ending in .csv",
    "train north.csv --row-id id -o nowhere/m.fc": "there is no folder nowhere",
    "train north.csv --row-id id -o /proc/m.fc": "/proc",
    "train north.csv --row-id id -o m.fc --watch nowhere/run.jsonl": "there is no folder nowhere",
    "train north.csv --row-id id --method trees -o m.fc": "--target COLUMN",
    "train north.csv --row-id id -o other": "ending in .fc",
    "train north.csv --row-id id -o north.csv": "ending in .fc",
    "query nope.fc risk=high": "cannot read nope.fc",
    "query junk.fc risk=high": "junk.fc is not a fedcircuits model",
    "query cut.fc risk=high": "cut.fc is not a fedcircuits model",
    "query all.csv risk=high": "all.csv is not a fedcircuits model",
    "query model.fc P(rsk=high)": "P(rsk=high): unknown variable 'rsk': did you mean 'risk'?",
    "query model.fc P(risk=hgih)": "did you mean 'high'?",
    "query model.fc P(age>>60)": "expected a value of 'age', found '>' (at '>60)')",
    "query model.fc P(age>60": "found the end",
    "query model.fc risk=high P(age": "P(age: ",
    "query model.fc E(rsk)": "unknown variable 'rsk'",
    "query model.fc E(risk)": "it has no mean; ask P(risk)",
    "query model.fc E()": "expected a column",
    "query model.fc E(age)+1": "expected the end, found '+1'",
    "query model.fc E(age|risk=high": "expected ')', found the end",
    "query model.fc P(risk|age=)": "expected a value of 'age'",
    "query model.fc P(risk|age<0)": "evidence",
    "inspect junk.fc": "junk.fc is not a fedcircuits model",
    "inspect .": "it is a folder",
    "sample model.fc --given x>1": "unknown variable 'x'",
    "sample model.fc -o nowhere/drawn.csv": "there is no folder nowhere",
    "sample model.fc -o model.fc": "ending in .csv",
    "split nope.csv -o new": "nope.csv: there is no such file",
    "split all.csv --row-id id --parties 9 -o new": "give fewer parties, or split --by rows",
    "split all.csv --row-id id --by rows --parties 400 -o new": "so give fewer parties",
    "sample model.fc -n 9000000000000": "out of memory",
    "split all.csv --row-id id --parties 0 -o new": "parties must be a number from 1",
    "split all.csv --row-id id --parties ../a,b -o new": "names of files",
    "split all.csv --row-id id --parties -3 -o new": "names of files, got '-3'",
    "split all.csv --row-id id --by rows --skew odd -o new": "skew must be",
    "split all.csv --row-id id --by rows --skew dirichlet:x -o new": "dirichlet:0.5",
    "split all.csv --row-id id --target nope -o new": "nope",
    "split all.csv --row-id id -o north.csv": "north.csv: expected a folder, got a file",
    "demo -o north.csv": "north.csv",
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_a_mistake_is_one_clear_line(run: Run, home: Path, words: str) -> None:
    before = sorted(p.name for p in home.iterdir())
    found = run(*words.split())
    assert found.exit_code == 1, found.output
    assert found.stderr.startswith("fedcircuits: ") and found.stderr.count("\n") == 1
    assert WRONG[words] in found.stderr
    assert "unexpected" not in found.stderr and "resume" not in found.stderr
    assert sorted(p.name for p in home.iterdir()) == before


@pytest.mark.parametrize("folder", ["nowhere", "/proc"])
def test_a_place_that_cannot_be_written_to_is_found_before_training(run: Run, folder: str) -> None:
    found = run("train", "north.csv", "--row-id", "id", "-o", f"{folder}/m.fc")
    assert found.exit_code == 1 and not found.stdout and f"cannot write {folder}" in found.stderr


@pytest.mark.parametrize(
    "words",
    [
        "train north.csv",
        "train -o m.fc",
        "train north.csv -o m.fc --learner magic",
        "query model.fc",
        "sample model.fc -n 0",
        "split all.csv -o new --by diagonals",
        "--nonsense",
        "nonsense",
    ],
)
def test_wrong_usage_is_two(run: Run, words: str) -> None:
    found = run(*words.split())
    assert found.exit_code == 2 and "Usage: " in found.stderr and "Traceback" not in found.stderr


# ---------------------------------------------------------------------- what need not wait

LISTS_HEAVY = """
import sys
from fedcircuits.app.cli import main
try:
    main()
finally:
    heavy = {"torch", "numpy", "pandas", "sklearn", "scipy", "matplotlib"} & sys.modules.keys()
    print("loaded", sorted(heavy), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("--help", 0, "Learn one model from tables"),
        ("train --help", 0, "Train one model from several tables"),
        ("--version", 0, f"fedcircuits {fc.__version__}\n"),
        ("qurey model.fc", 2, "No such command 'qurey'"),
        ("train north.csv", 2, "Missing option '--output'"),
    ],
)
def test_words_about_the_command_load_no_library(words: str, code: int, told: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", LISTS_HEAVY, *words.split()],
        env=ENVIRONMENT, capture_output=True, text=True, encoding="utf-8", timeout=300,
    )  # fmt: skip
    assert found.returncode == code and told in found.stdout + found.stderr
    assert found.stderr.endswith("loaded []\n")


STOPPED_WHILE_LOADING = """
import sys
class Stop:
    def find_spec(self, name, *_):
        if name == "fedcircuits.app.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
from fedcircuits.__main__ import main
main()
"""


def test_ctrl_c_while_libraries_are_loaded_is_one_line() -> None:
    found = subprocess.run(
        [sys.executable, "-c", STOPPED_WHILE_LOADING],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (130, "fedcircuits: stopped\n")


# ---------------------------------------------------------------------- models that stay


def test_a_failure_keeps_the_older_model(run: Run, home: Path) -> None:
    before = (home / "model.fc").read_bytes()
    words = [w if w != "risk" else "rsk" for w in TRAIN]
    assert run(*words).exit_code == 1
    assert (home / "model.fc").read_bytes() == before


def test_tracebacks_on_demand(run: Run) -> None:
    found = run("--debug", "inspect", "junk.fc")
    assert found.exit_code == 1 and "Traceback" in found.stderr
    assert found.stderr.splitlines()[-1].startswith("fedcircuits: junk.fc is not")


def test_a_process_of_its_own_fails_with_one_line(home: Path) -> None:
    found = subprocess.run(
        python("-m", "fedcircuits", "query", "model.fc", "P(age >"),
        cwd=home,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == "fedcircuits: P(age >: expected a value of 'age', found the end\n"


@pytest.mark.skipif(os.name == "nt", reason="signals are another matter there")
def test_stopped_by_the_user(home: Path, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(100_000, 8))
    pd.DataFrame(rows).add_prefix("x").to_parquet(tmp_path / "large.parquet")
    words = "-m fedcircuits train large.parquet --learner einsum -o model.fc"
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        python(*words.split()), cwd=tmp_path, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("horizontal split")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (130, "fedcircuits: stopped\n")
    assert [path.name for path in tmp_path.iterdir()] == ["large.parquet"]
