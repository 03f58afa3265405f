"""Training and asking at sites by commands alone: killed, resumed, saved, asked, forgotten."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.app import cli
from tests.app.typing_pages import TypedPage
from tests.commands import RUNNER
from tests.engines.sites.relays import SERVER, free_port, needs_server
from tests.forked import python

pytest.importorskip("nats", reason="needs the extra sites")
RNG = np.random.default_rng(0)
AGE = RNG.integers(20, 90, 300)
NORTH = pd.DataFrame({"patient": np.arange(300), "age": AGE, "smoker": RNG.random(300) < 0.3})
RISK = np.where(RNG.random(300) < (AGE - 10) / 90, "high", "low")
SOUTH = pd.DataFrame({"patient": np.arange(300), "risk": RISK, "score": RNG.normal(AGE, 20)})
PAGE = TypedPage("sites.md")
KEYS = TypedPage("sites.md", "## Keys").lines  # which test_sites.py runs
QUESTION = "P(risk = 'high' | age > 60)"
pytestmark = needs_server


class Consortium:
    """A server and two sites, each a program of its own, by the commands of docs/sites.md."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kits = folder, folder / "kits"
        self.run(*PAGE.words("consortium init"))
        toml = folder / "consortium.toml"
        toml.write_text(toml.read_text().replace("4222", str(free_port())))
        self.run(*PAGE.words("provision consortium.toml -o"))
        self.programs: dict[str, subprocess.Popen[str]] = {}
        for name, frame in (("north", NORTH), ("south", SOUTH)):
            own = frame.rename(columns={"risk": "risiko"})
            own.to_csv(self.kits / name / "data.csv", index=False)
            site = self.kits / name / "site.toml"
            text = site.read_text().replace('# row_id = "patient" ', 'row_id = "patient" ')
            if "risiko" in own:
                names = '[data.columns]\nrisk = "risiko"\nscore = "score"\n\n[policy]'
                text = text.replace("[policy]", names)
            site.write_text(text)
        self.checked = [
            self.run(*PAGE.words("site check", north=name)) for name in ("north", "south")
        ]
        server = [str(SERVER), *PAGE.line("nats-server").split()[1:]]
        self.programs["server"] = subprocess.Popen(
            server, cwd=folder, stderr=subprocess.DEVNULL, text=True
        )
        try:
            for name in ("north", "south"):
                self.start(name)
        except AssertionError:
            self.close()
            raise

    def close(self) -> None:
        for name in list(self.programs):
            self.stop(name)

    def start(self, name: str) -> None:
        command = python("-m", "fedcircuits", *PAGE.words("site start", north=name))
        site = self.programs[name] = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, text=True
        )
        assert site.stdout is not None
        assert "serves 300 rows" in site.stdout.readline()

    def stop(self, name: str) -> None:
        program = self.programs.pop(name)
        program.kill()
        program.communicate()

    def end(self, name: str) -> None:
        """As its operator does."""
        self.run(*PAGE.words("site stop", north=name))
        program = self.programs.pop(name)
        assert program.wait(60) == 0 and program.stdout is not None
        program.stdout.close()

    def begin(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = python("-m", "fedcircuits", *words)
        return subprocess.Popen(command, cwd=self.folder, stdout=pipe, stderr=pipe, text=True)

    def run(self, *words: str, code: int = 0) -> str:
        """What the command prints; of one that fails, its line."""
        with chdir(self.folder):
            found = RUNNER.invoke(cli.app, list(words))
        assert found.exit_code == code, found.stderr
        return found.stderr if code else found.stdout


@pytest.fixture(scope="module")
def clinics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consortium]:
    found = Consortium(tmp_path_factory.mktemp("clinics"))
    yield found
    found.close()


def in_memory(**settings: object) -> fc.FedPC:
    here = fc.Federation({"north": NORTH, "south": SOUTH}, "patient")
    return fc.FedPC(target="risk", random_state=0, **settings).fit(here)  # type: ignore[arg-type]


def answer(told: str) -> float:
    return json.loads(told)[0]["probability"]  # type: ignore[no-any-return]


def test_a_model_is_trained_asked_next_week_and_forgotten(clinics: Consortium) -> None:
    assert all("300 rows" in text for text in clinics.checked)
    assert re.search(r"risk\s+.*'high', 'low'", clinics.checked[1])
    kit = {"KIT": "kits/coordinator"}
    status = clinics.run(*PAGE.words("status", **kit))
    assert re.search(r"north\s+there\s+300", status) and re.search(r"south\s+there", status)
    train = PAGE.words("train kits/coordinator --target")
    told = clinics.run(*train)
    assert "vertical split: 2 parties" in told and "wrote model.fc" in told
    expected, ask = in_memory().probability("risk = 'high'", "age > 60"), PAGE.words("query")
    assert answer(clinics.run(*ask, "--json")) == expected
    clinics.end("south")
    line = clinics.run("status", "kits/coordinator", "--timeout", "2", code=1)
    assert line == "fedcircuits: south did not answer within 2 s\n"
    clinics.start("south")
    other = ("--consortium", "kits/coordinator/consortium.toml")
    assert answer(clinics.run(*ask, "--json", *other)) == expected
    drawn = clinics.run("sample", "model.fc", "-n", "5", "--given", "age > 60")
    assert len(drawn.splitlines()) == 6 and "risk" in drawn.splitlines()[0]
    shown = clinics.run(*PAGE.words("inspect"))
    assert "model: risk" in shown and "parts at: north, south" in shown
    kept = clinics.run(*PAGE.words("models", **kit), "--json")
    assert json.loads(kept)["models"] == {"risk": ["north", "south"]}
    taken = clinics.run("train", "consortium.toml", *train[2:], code=1)
    assert "a model 'risk' already exists" in taken
    assert "rows/tokens" in clinics.run(*PAGE.words("audit"))
    assert "forgotten" in clinics.run(*PAGE.words("forget", **kit))
    gone = clinics.run(*ask, code=1)
    assert "north, south has no model 'risk'" in gone
    audit = (clinics.kits / "north" / "store" / "audit.jsonl").read_text()
    assert '"event": "begun"' in audit and '"tag": "rows/tokens"' in audit
    assert not re.search(r"\b(high|low)\b", audit)
    left = [line for line in PAGE.left if line not in KEYS]
    assert all(" --resume risk " in line for line in left), "the page has commands that nobody runs"


def test_the_python_of_the_page(clinics: Consortium) -> None:
    """As the program of an analyst: trained, saved, and asked by a later one."""
    first, later, resumed = PAGE.snippets
    code = f"import fedcircuits as fc\n{first}federation.close()\n"
    code += later.replace("federation =", "federation.close()\nfederation =") + "federation.close()"
    assert "resume=" in resumed  # which the next test does by its command
    with chdir(clinics.folder):
        found: dict[str, object] = {}
        exec(code, found)
        model = found["model"]
    assert isinstance(model, fc.FedPC) and model.name_
    clinics.run("forget", "kits/coordinator", model.name_)


def test_a_caller_that_is_killed_goes_on_in_a_new_process(clinics: Consortium) -> None:
    """It is killed when the coordinator's inbox has one byte, and again when it has 30,000. The
    order of rows depends on a key that is drawn anew, so sums of EM agree up to rounding."""
    name, output = "killed", "killed.fc"
    settings: dict[str, float] = {"refine": 40, "validation": 0.0}
    sets = [word for n, value in settings.items() for word in ("--set", f"{n}={value}")]
    program = clinics.begin(
        "train", "kits/coordinator", "--target", "risk", *sets, "--name", name, "-o", output
    )
    inbox = clinics.kits / "coordinator" / "store" / "runs" / name / "coordinator" / "inbox"
    for size in (1, 30_000):
        while not inbox.exists() or inbox.stat().st_size < size:
            assert program.poll() is None, program.communicate()[1]
            time.sleep(0.005)
        os.kill(program.pid, signal.SIGKILL)
        program.communicate()
        assert program.returncode == -signal.SIGKILL and not (clinics.folder / output).exists()
        assert f"train --resume {name} resumes it" in clinics.run("models", "kits/coordinator")
        again = PAGE.words("train kits/coordinator --resume", risk=name, model=name)
        program = clinics.begin(*again)
    _, error = program.communicate()
    assert program.returncode == 0, error
    expected = in_memory(**settings)
    with fc.Federation.connect(clinics.kits / "coordinator", timeout=60) as federation:
        model = fc.load(clinics.folder / output, federation)
        assert isinstance(model, fc.FedPC)
        rows = NORTH.merge(SOUTH).drop(columns="patient")
        answers = model.score_samples(rows)
        np.testing.assert_allclose(answers, expected.score_samples(rows), rtol=0, atol=1e-8)
        assert model.ledger_.bytes == expected.ledger_.bytes
    line = clinics.run("train", "kits/coordinator", "--resume", name, "-o", output, code=1)
    assert f"no training {name!r} was interrupted here" in line


def test_an_audit_is_read_as_a_table(clinics: Consortium) -> None:
    clinics.run("train", "kits/coordinator", "--name", "audited", "-o", "audited.fc")
    audited, noted = ("audit", "kits/north", "--run", "audited"), set[str]()
    until = time.monotonic() + 60
    while "ended" not in noted and time.monotonic() < until:  # when the site hears that all have
        noted = {line["event"] for line in json.loads(clinics.run(*audited, "--json"))}
    assert {"begun", "sent", "ended"} <= noted
    table = clinics.run(*audited, "--last", "200")
    assert "rows/tokens" in table and "coordinator" in table
    assert len(json.loads(clinics.run("audit", "kits/south", "--last", "2", "--json"))) == 2


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("train", "kits/north", "-o", "m.fc"), "is the kit of north: training and querying"),
        (("train", "nowhere.toml", "-o", "m.fc"), "there is no such file or folder"),
        (("status", "kits/server"), "is not a kit: it has no consortium.toml"),
        (("audit", "kits/server"), "is not a kit: it has no consortium.toml"),
        (("query", "nothing.fc", "P(risk)"), "there is no such file"),
        (("train", "kits/coordinator", "--resume", "no", "-o", "m.fc"), "no training 'no' was int"),
        (("train", "kits/coordinator", "--name", "a/b", "-o", "m.fc"), "'a/b' is not a valid name "
                                                                       "of a run"),
        (("train", "kits/coordinator", "--resume", "x", "--clusters", "2", "-o", "m.fc"),
         "--resume continues an interrupted run with its own options: leave other options out"),
    ],
)  # fmt: skip
def test_mistakes_end_with_one_line(clinics: Consortium, words: tuple[str, ...], line: str) -> None:
    told = clinics.run(*words, code=1)
    assert re.search(line, told) and told.count("\n") == 1


def test_mistakes_of_the_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "consortium.toml"
    path.write_text('name = "clinics"\nserver = "nats:4222"\nsites = ["north"]\n')
    with pytest.raises(fc.FedcircuitsError, match=r"consortium\.toml, line 2, server: "):
        fc.Federation.connect(path)
    path.write_text('name = "clinics"\nserver = "tls://nats:4222"\nsites = ["north"]\n')
    with pytest.raises(fc.FedcircuitsError, match=r"identity: there is no such file; .* provision"):
        fc.Federation.connect(path)
