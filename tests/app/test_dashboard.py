"""The dashboard in a real browser: asked by menus and ranges, watched, by keyboard, on a phone."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.app.dashboard.desk import Desk
from fedcircuits.app.dashboard.server import Shown
from tests.app import browser, watched
from tests.app.browser import css, script, until
from tests.federation.cases import QUICK, mixed_table

pytestmark = pytest.mark.skipif(bool(browser.lacking()), reason=browser.lacking() or "-")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, fc.CircuitModel]:
    parties = fc.split(mixed_table(), ["north", "south"], by="columns", allow_collect=True)
    path = tmp_path_factory.mktemp("model") / "model.fc"
    fc.FedPC(QUICK, clusters=2, target="risk", random_state=0).fit(parties).save(path)
    loaded = fc.load(path)
    assert isinstance(loaded, fc.CircuitModel)
    return path, loaded


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser.chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page(driver: Any, model: tuple[Path, fc.CircuitModel]) -> Iterator[str]:
    path, loaded = model
    with browser.served(Shown(path, Desk(loaded))) as address:
        yield address


@pytest.fixture
def opened(driver: Any, page: str) -> Iterator[Any]:
    """The page, whose console stays without an error and which asks no other host."""
    driver.get(page)
    until(driver, lambda: answered(driver) >= 1)
    yield driver
    assert browser.complaints(driver) == []


def answered(driver: Any) -> int:
    return int(driver.execute_script("return document.body.dataset.answered || 0"))


def values(driver: Any, column: str) -> list[float]:
    panel = css(driver, f"figure[data-column='{column}']")
    return list(json.loads(panel.get_attribute("data-values")))


def settled(driver: Any, change: Callable[[], object]) -> None:
    """The change is made, and its answer has been shown."""
    before = answered(driver)
    change()
    until(driver, lambda: answered(driver) > before and not script(driver, "return Ask.busy"))


def test_evidence_moves_all_marginals_to_the_library_s_numbers(
    opened: Any, model: tuple[Path, fc.CircuitModel]
) -> None:
    from selenium.webdriver.support.select import Select

    before = {name: values(opened, name) for name in ("risk", "smoker", "age")}
    menu = Select(css(opened, "fieldset[data-column='colour'] select"))
    settled(opened, lambda: menu.select_by_visible_text("blue"))
    low = css(opened, "input[aria-label='weight from']")
    settled(opened, lambda: low.send_keys("61"))
    loaded, known = model[1], {"colour": "blue", "weight": (61, None)}
    assert before["risk"] == pytest.approx(loaded._posterior("risk", None)[0].tolist())
    assert values(opened, "risk") == pytest.approx(loaded._posterior("risk", known)[0].tolist())
    assert values(opened, "smoker") == pytest.approx(loaded._posterior("smoker", known)[0].tolist())
    assert values(opened, "age") != pytest.approx(before["age"], rel=1e-3)
    probability = loaded.probability("risk = low", known)
    assert float(css(opened, "#event-answer").get_attribute("data-value")) == pytest.approx(
        probability
    )
    assert "Given colour = blue and weight ≥ 61" in css(opened, "#words").text
    mean = loaded.expect(["age"], given=known).loc["age", "mean"]
    words = css(opened, "figure[data-column='age'] .sum").text
    assert words.startswith(f"mean {float(f'{mean:.3g}'):g}, peak near ")
    points = script(opened, "return Ask.columns.find((c) => c.name === 'age').points")
    x, event = loaded._given(known)
    rows = np.repeat(x, len(points), axis=0)
    rows[:, loaded.schema_.index("age")] = points
    logs = loaded._distribution.log_probability(rows, event)
    logs -= loaded._distribution.log_probability(x, event)
    assert values(opened, "age") == pytest.approx(np.exp(logs).tolist())


def test_what_if_completing_drawing_and_what_crossed(opened: Any, tmp_path: Path) -> None:
    from selenium.webdriver.support.select import Select

    menu = Select(css(opened, "fieldset[data-column='colour'] select"))
    settled(opened, lambda: menu.select_by_visible_text("blue"))
    css(opened, "#pin").click()
    settled(opened, lambda: menu.select_by_visible_text("red"))
    until(opened, lambda: "Kept:" in css(opened, "#event-answer").text)
    assert "kept: given colour = blue" in css(opened, "#legend").text
    css(opened, "#complete-box summary").click()
    css(opened, "#complete").click()
    until(opened, lambda: "colour red known" in css(opened, "#completed").text)
    css(opened, "#sample-box summary").click()
    css(opened, "#draw").click()
    until(opened, lambda: len(opened.find_elements("css selector", "#samples tbody tr")) == 10)
    cells = [row.text for row in opened.find_elements("css selector", "#samples tbody tr")]
    assert all("red" in cell for cell in cells)
    assert "number=100" in css(opened, "#download").get_attribute("href")
    css(opened, "#crossed-box summary").click()
    until(opened, lambda: "drawn rows" in css(opened, "#crossed").text)
    told = css(opened, "#crossed").text
    for what in ("the distributions", "the probability of risk = low", "the most probable row"):
        assert what in told
    assert "10 drawn rows" in told and "no party was queried, nothing was sent" in told
    saving = {"behavior": "allow", "downloadPath": str(tmp_path)}
    opened.execute_cdp_cmd("Browser.setDownloadBehavior", saving)
    css(opened, "#download").click()
    until(opened, lambda: (tmp_path / "samples.csv").exists())
    assert "100 drawn rows" in css(opened, "#crossed").text
    csv = (tmp_path / "samples.csv").read_text()
    assert csv.startswith("age,") and len(csv.splitlines()) == 101


def test_columns_are_found_ordered_and_forgotten(opened: Any) -> None:
    from selenium.webdriver.support.select import Select

    def shown(what: str) -> list[str]:
        boxes = opened.find_elements("css selector", what)
        return [box.get_attribute("data-column") for box in boxes if box.is_displayed()]

    menu = Select(css(opened, "fieldset[data-column='smoker'] select"))
    assert [option.text for option in menu.options] == ["not known", "no", "yes"]
    settled(opened, lambda: menu.select_by_visible_text("yes"))
    css(opened, "#find").send_keys("Col")
    assert shown("#controls fieldset") == shown("#marginals figure") == ["colour"]
    css(opened, "#find").send_keys("xx")
    assert css(opened, "#unfound").text == "No column is called “Colxx”."
    script(opened, "byId('find').value = ''; byId('find').dispatchEvent(new Event('input'))")
    as_in_table = shown("#marginals figure")
    Select(css(opened, "#order")).select_by_value("changed")
    changes = script(opened, "return [...Ask.panels].map(([name, p]) => [name, p.change()])")
    by_change = [name for name, _ in sorted(changes, key=lambda pair: -pair[1])]
    assert shown("#marginals figure") == by_change != as_in_table
    assert by_change[-1] == "smoker"  # is known
    settled(opened, lambda: css(opened, "fieldset[data-column='smoker'] .forget").click())
    assert css(opened, "#words").text == "Without evidence"
    assert menu.first_selected_option.text == "not known"


def test_a_wrong_question_is_told_in_one_line(opened: Any) -> None:
    settled(opened, lambda: css(opened, "#clear").click())
    field = css(opened, "#event")
    field.clear()
    field.send_keys("aeg > 3\n")
    until(opened, lambda: "aeg" in css(opened, "#problem").text)
    assert [c for c in browser.complaints(opened) if "400" not in c] == []


def test_by_keyboard_alone(opened: Any) -> None:
    """From the top of the page to a known value, to another view and back."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys: str) -> None:
        ActionChains(opened).send_keys(*keys).perform()

    def focused() -> str:
        return str(script(opened, "return document.activeElement.getAttribute('aria-label') || ''"))

    script(opened, "document.activeElement.blur()")
    for _ in range(60):
        press(Keys.TAB)
        if focused() == "known value of colour":
            break
    assert focused() == "known value of colour"
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert script(opened, outline) != "none"
    settled(opened, lambda: press(Keys.ARROW_DOWN))
    assert "colour = red" in css(opened, "#words").text
    script(opened, "document.getElementById('tab-ask').focus()")
    press(Keys.ARROW_RIGHT)  # past Watch, where there is no training
    until(opened, lambda: css(opened, "#model").is_displayed())
    until(opened, lambda: "The circuit" in css(opened, "#about").text)
    press(Keys.ARROW_LEFT)
    assert css(opened, "#ask").is_displayed()


def test_names_for_screen_readers(opened: Any) -> None:
    """Everything that is typed into or chosen from has a name."""
    nameless = script(
        opened,
        "return [...document.querySelectorAll('input, select, button, a, img')].filter((e) =>"
        " !(e.labels && e.labels.length) && !e.getAttribute('aria-label') && !e.alt"
        " && !e.textContent.trim()).map((e) => e.outerHTML)",
    )
    assert nameless == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_in_light_and_dark(opened: Any, scheme: str) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    opened.refresh()
    until(opened, lambda: answered(opened) >= 1)
    assert script(opened, "return document.documentElement.scrollWidth") <= 390
    paper = script(opened, "return getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 25, 31)"}[scheme]
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_colours_change_and_evidence_stays(opened: Any) -> None:
    """As when a system turns dark in the evening; and the handle of a slider sets a range."""
    from selenium.webdriver.common.keys import Keys

    handle = css(opened, "input[aria-label='weight from, slider']")
    settled(opened, lambda: handle.send_keys(Keys.ARROW_RIGHT * 20))
    assert "Given weight ≥" in css(opened, "#words").text
    assert css(opened, "#evidence-title").text == "Evidence: 1 of 6 columns known"
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    until(
        opened,
        lambda: script(opened, "return Ask.panels.get('age').chart.series[3]._stroke") == "#6aa9ea",
    )
    assert "Given weight ≥" in css(opened, "#words").text
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    settled(opened, lambda: css(opened, "#clear").click())
    assert css(opened, "#evidence-title").text == "Evidence"


def test_a_wrong_token_is_refused(driver: Any, model: tuple[Path, fc.CircuitModel]) -> None:
    with browser.served(Shown(model[0], Desk(model[1])), token="right") as address:
        driver.get(f"{address}?token=wrong")
        assert "the token is wrong" in css(driver, "body").text
        driver.get(f"{address}api/start")
        assert "a token is needed" in css(driver, "body").text
        driver.get(f"{address}?token=right")
        until(driver, lambda: answered(driver) >= 1)
        until(driver, lambda: "token" not in driver.current_url)
    assert [text for text in browser.complaints(driver) if "403" not in text] == []


def test_a_training_is_watched_to_its_end_with_a_party_killed(driver: Any, tmp_path: Path) -> None:
    watched.with_a_party_killed(driver, tmp_path / "run.jsonl", "process", _process_of)


def _process_of(party: str) -> int:
    [process] = [p for p in multiprocessing.active_children() if p.name == party]
    assert process.pid is not None
    return process.pid
