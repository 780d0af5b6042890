"""The HTML report in a browser: nothing fails, filters and keys work, hostile texts stay texts, all widths fit."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from pytest_flashinfer.report.html import page
from pytest_flashinfer.report.numbers import times

from .pages import HOSTILE, hostile_report, plain_report

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
for needed in ("jinja2", "plotly"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
if CHROMIUM is None or DRIVER is None:
    pytest.skip("there is no chromium with its chromedriver here", allow_module_level=True)

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/rows_at_once.trace.json"
DOM = Path(page.__file__).parent / "static/dom.js"
SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
)
PATIENCE = 30  # seconds; a busy machine is slow


class Page:
    """One report in the browser."""

    def __init__(self, driver, file: Path) -> None:
        self.driver, self.file = driver, file

    def open(self, fragment: str = "", *, width: int = 1440, scheme: str = "light", fresh: bool = False) -> None:
        """Go to a part of the report with nothing filtered; reading the file anew takes a second or two."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
        if fresh or self.driver.current_url.partition("#")[0] != self.file.as_uri():
            self.driver.get("about:blank")
            self.driver.get(f"{self.file.as_uri()}{fragment}")
        else:
            self.ask("void (filters.reset(), location.hash = arguments[0])", fragment or "#overview")

    def ask(self, script: str, *arguments):
        return self.driver.execute_script(f"return {script}", *arguments)

    def until(self, script: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.ask(script):
            assert time.monotonic() < end, f"never true: {script}\n{self.logged()}"
            time.sleep(0.05)

    def all(self, selector: str):
        return [each for each in self.driver.find_elements(By.CSS_SELECTOR, selector) if each.is_displayed()]

    def texts(self, selector: str) -> list[str]:
        return [each.text for each in self.all(selector)]

    def choose(self, key: str, value: str) -> None:
        self.ask(
            "void (arguments[0].value = arguments[1], arguments[0].dispatchEvent(new Event('input', {bubbles: true})))",
            self.driver.find_element(By.ID, f"filter-{key}"),
            value,
        )

    def draw(self) -> None:
        """Draw every chart of the definition that is open, in view or not."""
        self.until("document.querySelectorAll('.current .chart').length > 0")
        draw = "(each) => { delete each.dataset.drawn; each.draw(); }"
        self.ask(f"void document.querySelectorAll('.current .chart').forEach({draw})")
        charts = "[...document.querySelectorAll('.current .chart')].filter((each) => each.offsetParent)"
        self.until(f"{charts}.every((each) => each.dataset.drawn)")

    def logged(self) -> list[str]:
        return [each["message"] for each in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def driver():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for switch in SWITCHES:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    page.write(folder / "plain.html", plain_report(str(EXAMPLE)))
    page.write(folder / "hostile.html", hostile_report(folder))
    return folder


@pytest.fixture
def plain(driver, files):
    made = Page(driver, files / "plain.html")
    yield made
    assert made.logged() == []


@pytest.fixture
def hostile(driver, files):
    return Page(driver, files / "hostile.html")


def test_overview_and_definition(plain):
    plain.open()
    assert plain.texts("#overview-table tbody th a") == ["gemm_n128", "gemm_n128", "gemm_n1024", "rmsnorm_h128"]
    assert plain.texts("#overview-table tbody tr:last-child td") == [
        *("rmsnorm", "NVIDIA H100 80GB HBM3", "fast", "ann", "4.00\u00d7", "1.51 µs", "80%", "4 of 5"),
    ]
    assert plain.all(".chapter") == []
    plain.all("#overview-table tbody th a")[2].click()
    plain.draw()
    assert plain.texts("h2")[0] == "gemm_n1024"
    assert plain.texts(".leaders tbody th") == ["fast", "steady", "slow", "broken"]
    assert plain.ask("document.activeElement.textContent") == "gemm_n1024"
    drawn = plain.ask("[...document.querySelectorAll('.current .chart')].map((each) => Number(each.dataset.drawn))")
    assert drawn == [5, 2]  # four solutions and the roofline; speedups and failures
    plain.driver.back()
    plain.until("document.querySelector('#overview').classList.contains('current')")


def test_ratios_are_written_as_in_tables(plain):
    [function] = re.findall(r"^function times.*?^}", DOM.read_text(), re.DOTALL | re.MULTILINE)
    ratios = [0, 3.75e-5, 0.0042, 0.5, 1.254]
    plain.open()
    assert plain.ask(f"{ratios}.map({function})") == [f"{times(ratio)}\u00d7" for ratio in ratios]


def test_filters(plain):
    plain.open()
    overview = "#overview-table tbody tr"
    plain.choose("op", "=rmsnorm")
    assert plain.texts(f"{overview} th a") == ["rmsnorm_h128"]
    assert plain.texts("#filter-count") == ["1 of 3 definitions"]
    plain.choose("author", "=bo")
    assert plain.texts(f"{overview} [data-cell=solution]") == ["steady"]
    assert plain.texts(f"{overview} [data-cell=right]") == ["1 of 1"]
    plain.choose("op", "*")
    plain.choose("card", "=NVIDIA B200")
    assert plain.texts(f"{overview} th a") == ["gemm_n128"]
    plain.choose("author", "=cy")
    assert plain.texts(f"{overview} [data-cell=solution]") == ["none"]
    plain.choose("author", "=dee")
    assert plain.texts(f"{overview} th a") == []
    assert plain.texts("#overview .none") == ["No definition fits these filters."]
    plain.all("#filter-reset")[0].click()
    plain.until("document.querySelector('#filter-count').textContent === '3 of 3 definitions'")
    plain.choose("text", "ONLY_here")
    assert plain.texts(f"{overview} th a") == ["rmsnorm_h128"]


def test_filters_reach_charts_and_lists(plain):
    plain.open("#d0")
    plain.draw()
    assert len(plain.all(".current .board")) == 2
    plain.choose("card", "=NVIDIA B200")
    plain.choose("author", "=ann")
    plain.until("document.querySelector('.current .board:not([hidden]) .chart').dataset.drawn === '3'")
    assert plain.texts(".current .leaders tbody th") == ["fast", "slow"]
    assert plain.texts(".current .legend button") == ["fast", "slow"]
    assert plain.texts(".current .solution summary .strong") == ["fast", "slow"]
    assert plain.all(".current .failure") == []
    plain.choose("author", "=cy")
    assert len(plain.all(".current .failure")) == 1


def test_failure_source_and_conversation(plain):
    plain.open("#d2/fast")
    plain.until("document.querySelector('.solution[open] .turns')")
    [summary] = plain.texts(".current .failure summary")
    assert "broken" in summary
    assert "2 workloads; smallest: m = 64, pages = 2" in summary
    assert "INCORRECT_NUMERICAL: y[0, 64]: 1 instead of 2" in summary
    plain.all(".current .failure summary")[0].click()
    assert "1 instead of 2" in plain.texts(".current .failure pre")[0]
    [source] = plain.texts(".solution[open] .code")
    assert source.splitlines()[-1] == "    return x  # the same"
    assert plain.texts(".solution[open] .speaker") == ["User", "Assistant none", "Tool", "Assistant"]
    assert plain.texts(".solution[open] .call p") == ["Calls shell"]
    assert "pytest --fib-solutions=rows_at_once.py" in plain.texts(".solution[open] .call pre")[0]


def test_keyboard(plain):
    plain.open(fresh=True)
    body = plain.driver.switch_to.active_element
    body.send_keys(Keys.TAB)
    assert plain.ask("document.activeElement.className") == "skip"
    plain.ask("void document.querySelector('#overview-table tbody tr:last-child a').focus()")
    plain.driver.switch_to.active_element.send_keys(Keys.ENTER)
    plain.draw()
    assert plain.ask("location.hash") == "#d2"
    for chart, word in ((0, "m = 4"), (1, "\u00d7")):
        place = plain.all(".current .chart")[chart]
        plain.ask("void arguments[0].focus()", place)
        place.send_keys(Keys.ARROW_RIGHT)
        plain.until("document.querySelector('.current .chart:focus .hoverlayer .hovertext') !== null")
        readout = "document.querySelector('.current .chart:focus + .readout').textContent"
        first = plain.ask(readout)
        assert word in first
        place.send_keys(Keys.ARROW_DOWN)
        plain.until(f"{readout} !== {first!r}")
    plain.ask("void document.querySelector('.current .legend button').focus()")
    plain.driver.switch_to.active_element.send_keys(Keys.SPACE)
    plain.until("document.querySelector('.current .chart').dataset.drawn === '5'")
    assert plain.ask("document.querySelector('.current .legend button').getAttribute('aria-pressed')") == "false"
    order = plain.ask("[...document.querySelectorAll('[tabindex]')].filter((each) => each.tabIndex > 0).length")
    assert order == 0


def test_light_and_dark(plain):
    page_colour = "getComputedStyle(document.body).backgroundColor"
    plain.open(scheme="dark")
    dark = plain.ask(page_colour)
    plain.open(scheme="light")
    light = plain.ask(page_colour)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(22, 24, 27)")
    button = plain.all("#theme")[0]
    for wanted, colour in (("light", light), ("dark", dark), ("system", light)):
        button.click()
        assert (button.text, plain.ask(page_colour)) == (f"Theme: {wanted}", colour)


@pytest.mark.parametrize("width", [375, 768, 1440])
def test_nothing_is_wider_than_the_window(plain, hostile, width):
    for report, fragments in ((plain, ("", "#d2/fast")), (hostile, ("", "#d0"))):
        for fragment in fragments:
            report.open(fragment, width=width)
            if fragment:
                report.draw()
            assert report.ask("document.documentElement.scrollWidth") <= width
            assert report.ask("window.innerWidth") == width
    hostile.logged()


def test_hostile_texts_do_nothing(hostile):
    names = set()
    for at in range(len(HOSTILE)):
        hostile.open(f"#d{at}")
        hostile.draw()
        hostile.ask("void document.querySelectorAll('.current details').forEach((each) => { each.open = true; })")
        hostile.until("document.querySelector('.current .turns')")
        for chart in range(2):
            place = hostile.all(".current .chart")[chart]
            place.send_keys(Keys.ARROW_RIGHT)
            hostile.until("document.querySelector('.current .chart:focus .hoverlayer .hovertext')")
            assert hostile.ask("document.querySelectorAll('.current .chart a').length") == 0
        assert hostile.ask("window.hacked") is None
        assert (
            hostile.ask("document.querySelectorAll('img, iframe, object, main script, a[href^=javascript]').length")
            == 0
        )
        names.add(hostile.ask("document.querySelector('.current').dataset.name"))
        assert len(hostile.all(".current .solution")) == 2
    assert names == {text.replace("\x00", "\ufffd").replace("\ud800", "?") for text in HOSTILE}
    assert hostile.logged() == []


def test_without_scripts_the_tables_are_there(driver, files):
    report = Page(driver, files / "plain.html")
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        report.open()
        assert [len(report.all(selector)) for selector in ("#overview", ".chapter", ".filters")] == [1, 3, 0]
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    report.logged()
