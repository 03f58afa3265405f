"""The dashboard of a demo model: time to the first answer, answers per second, size of the page.

``python -m benchmarks.dashboard`` prints one table and writes its JSON; ``--pictures docs`` takes
the screenshots of docs/dashboard.md anew, for which it needs Debian's chromium and selenium.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

import fedcircuits as fc
from benchmarks import pages
from benchmarks.runner import machine_facts
from fedcircuits.app import events
from fedcircuits.app.dashboard.desk import Desk
from fedcircuits.app.dashboard.server import ASSETS, Shown
from fedcircuits.estimators import record
from tests.app import browser

KNOWN = [{"mean radius": {"low": 10 + i / 5, "high": None}} for i in range(40)]
SEVERAL = {
    "mean radius": {"low": 15, "high": None},
    "mean texture": {"low": 12, "high": 25},
    "worst area": {"low": 500, "high": None},
}


def trained(folder: Path) -> Path:
    """Three hospitals with different columns of the breast cancer data, and the run's events."""
    table = fc.datasets.load("breast_cancer")
    names = ["north", "south", "west"]
    parties = fc.split(table, names, by="columns", target="diagnosis", allow_collect=True)
    model = fc.FedPC(target="diagnosis", refine=6, random_state=0)
    with events.written(folder / "run.jsonl") as callback:
        model.fit(parties, callback=callback)
    path = folder / "model.fc"
    model.save(path)
    command = "fedcircuits train north.csv south.csv west.csv -o model.fc"
    record.write(path, record.of_training(model, parties, command))
    return path


def asked(line: HTTPConnection, path: str, said: object = None) -> tuple[Any, float]:
    """The answer, and after how many milliseconds it was there."""
    began = time.perf_counter()
    body = None if said is None else json.dumps(said)
    line.request("GET" if body is None else "POST", path, body)
    found = line.getresponse().read()
    return found, 1000 * (time.perf_counter() - began)


def measured(path: Path) -> dict[str, float]:
    began = time.perf_counter()
    desk = Desk(fc.load(path))  # type: ignore[arg-type]
    ready = time.perf_counter() - began
    with browser.served(Shown(path, desk)) as address:
        line = HTTPConnection(urlsplit(address).netloc, timeout=120)
        _, first = asked(line, "/api/marginals", {"known": KNOWN[0]})
        began, cpu, times = time.perf_counter(), time.process_time(), []
        for known in KNOWN:
            times.append(asked(line, "/api/marginals", {"known": known})[1])
        wall, busy = time.perf_counter() - began, time.process_time() - cpu
        three = statistics.median(
            asked(line, "/api/marginals", {"known": SEVERAL})[1] for _ in range(10)
        )
        page = sum(p.stat().st_size for p in ASSETS.iterdir() if p.suffix != ".txt")
    return {
        "seconds from the file to a model ready to be asked": ready,
        "milliseconds to the first answer after that": first,
        "milliseconds to all marginals, median": statistics.median(times),
        "milliseconds of CPU for them, mean": 1000 * busy / len(KNOWN),
        "milliseconds to all marginals, three ranges known": three,
        "answers per second": len(KNOWN) / wall,
        "answers per second of one core": len(KNOWN) / busy,
        "kB of the page with all assets": page / 1000,
    }


def page(found: dict[str, float]) -> dict[str, Any]:
    machine: dict[str, Any] = machine_facts()
    about = (
        "A model of the breast cancer data, 31 columns split among three parties. One thread of "
        f"{machine['processor']}, {machine['cores']} cores, load {os.getloadavg()[0]:.1f} during "
        "the run: other programs add to wall milliseconds, but hardly to CPU milliseconds."
    )
    rows = [[name, f"{value:.3g}"] for name, value in found.items()]
    table = {"columns": ["what", ""], "rows": rows}
    command = {"code": "python -m benchmarks.dashboard"}
    return {"title": "The dashboard", "blocks": [command, {"text": about}, table]}


def pictures(path: Path, folder: Path) -> None:
    """The page in each of its views."""
    desk = Desk(fc.load(path))  # type: ignore[arg-type]
    shown = Shown(path, desk, path.with_name("run.jsonl"))
    with browser.served(shown) as address, browser.chromium() as driver:
        driver.get(address)
        driver.implicitly_wait(60)
        driver.find_element("css selector", "body[data-answered]")
        driver.execute_script(
            "const f = document.querySelector(\"input[aria-label='mean radius from']\");"
            "f.value = 15; f.dispatchEvent(new Event('input'));"
        )
        driver.find_element("css selector", "body[data-answered='2']")
        browser.picture(driver, folder / "dashboard-ask.png", 1200, 800)
        driver.execute_script("byId('evidence-box').open = false")  # as a phone begins
        browser.picture(driver, folder / "dashboard-phone.png", 390, 844)
        driver.execute_script("show('watch')")
        driver.find_element("css selector", "#watch-state[data-over=true]")
        browser.picture(driver, folder / "dashboard-watch.png", 1200, 800)
        driver.execute_script("show('model')")
        driver.find_element("css selector", "img.circuit")
        browser.picture(driver, folder / "dashboard-model.png", 1200, 900)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, help="A folder for screenshots.")
    folder = parser.parse_args().pictures
    torch.set_num_threads(1)
    place = Path(tempfile.mkdtemp())
    try:
        path = trained(place)
        if folder is not None:
            pictures(path, folder)
            return
        found = measured(path)
        for name, value in found.items():
            print(f"{name:<52} {value:10.3g}")
        pages.write(pages.RESULTS / "dashboard.json", page(found))
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
