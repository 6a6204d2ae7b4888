"""The page of a results folder: what is on it, that it needs nothing else, and that it works in a browser."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest

from figures.report import main
from figures.report_captions import about, caption
from figures.report_table import short, table_html

RESULTS = Path(__file__).resolve().parents[2] / "results"
NASTY = "<script>alert(\"1\")</script> & 'x'"
SUMMARY = """config,preset,arch,variant,alignment,pairs,loss,loss_low,loss_high,loss_n
0123,laptop,mlp,standard,none,3,10.123456,9.5,11.5,3
0123,laptop,mlp,w,none,3,0.000123456,nan,nan,3
0123,laptop,mlp,sigma,none,3,2.5,2.25,2.75,3
"""


class Structure(HTMLParser):
    """Elements in order, each with its attributes and the text in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def _folder(root: Path) -> Path:
    root.mkdir(exist_ok=True)
    (root / "lmc_summary.csv").write_text(SUMMARY, encoding="utf-8")
    (root / "lmc_curves.csv").write_text(
        "lam,loss\n" + "".join(f"{i / 300},{i}\n" for i in range(300)), encoding="utf-8"
    )
    quoted = NASTY.replace('"', '""')
    (root / "claims.csv").write_text(
        f'id,claim,ours,low,high,n,verdict,command\nA1,"{quoted}",1.23456,1,1.5,4,holds,"python ""{quoted}"""\n'
        "A2,other,,,,,not tested,\n",
        encoding="utf-8",
    )
    (root / "runs.csv").write_text(
        'study,command,settings,commit\nlmc,python -m studies.lmc --arch mlp,"{""arch"": ""mlp""}",abc\n',
        encoding="utf-8",
    )
    (root / "figures").mkdir(exist_ok=True)
    shutil.copy(next((RESULTS / "figures").glob("lmc_*.png")), root / "figures")
    return root


def _page(root: Path) -> str:
    assert main(["--results", str(root)]) == 0
    return (root / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    return _page(_folder(tmp_path_factory.mktemp("results")))


def test_every_image_has_words_and_every_table_a_caption(page):
    found = Structure(page)
    assert len(found.all("img")) == 1
    assert all(len(image["alt"]) > 60 and image["src"].startswith("data:image/") for image in found.all("img"))
    tables = [place for place, (tag, _) in enumerate(found.elements) if tag == "table"]
    assert len(tables) == 2
    assert all(found.elements[place + 1][0] == "caption" for place in tables)
    assert all(heading.get("scope") in ("col", "row") for heading in found.all("th"))
    assert {section["id"] for section in found.all("section")} == {"claims", "lmc"}
    assert "python -m studies.lmc --arch mlp" in found.words
    names = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(set(names)) == len(names)
    targets = {link["href"][1:] for link in found.all("a") if link["href"].startswith("#")}
    assert targets <= set(names)


def test_nothing_is_fetched(page):
    for _, attributes in Structure(page).elements:
        for name in ("src", "href", "srcset", "action", "poster"):
            assert re.match(r"data:|#|$", attributes.get(name, ""))
    assert not re.search(r"@import|url\(|https?:", page)
    assert "default-src 'none'" in page


def test_text_from_tables_stays_text(page):
    found = Structure(page)
    assert len(found.all("script")) == 1
    assert NASTY in found.words
    assert f'python "{NASTY}"' in found.words


def test_what_backs_a_claim_is_folded_where_there_is_something(page):
    assert page.count("<summary>show</summary>") == 1


def test_files_can_be_taken_as_they_are(page):
    links = {link["download"]: link["href"] for link in Structure(page).all("a") if "download" in link}
    assert set(links) == {"lmc_summary.csv", "lmc_curves.csv", "claims.csv"}
    assert unquote(links["lmc_summary.csv"].partition(",")[2]) == SUMMARY


def test_the_same_folder_gives_the_same_bytes(tmp_path):
    first, second = (_page(_folder(tmp_path / name)) for name in ("a", "b"))
    assert first == second
    (tmp_path / "b" / "lmc_summary.csv").write_text(SUMMARY.replace("2.5,", "2.6,"), encoding="utf-8")
    assert _page(tmp_path / "b") != first


def test_a_number_has_three_digits_and_its_full_value_behind_it(page):
    assert (
        '<td class="n" title="10.123456; 95 % interval 9.5 to 11.5; n = 3">10.1 <small>[9.50, 11.5]</small></td>'
        in page
    )
    assert "Same in every row: preset laptop, arch mlp, alignment none, pairs 3, config 0123." in page


@pytest.mark.parametrize(
    ("value", "padded", "text"),
    [
        (0.0123456, False, "0.0123"), (2.4, True, "2.40"), (2.0, False, "2"), (-1.5, False, "−1.5"),
        (0.0, True, "0.00"), (1234.5, True, "1230"), (999.9, True, "1000"), (4059309.8, False, "4.06×10⁶"),
        (-1e-6, False, "−1×10⁻⁶"), (99999.0, False, "1×10⁵"), (float("nan"), True, "–"), (float("-inf"), False, "−∞"),
    ],
)  # fmt: skip
def test_short_numbers(value, padded, text):
    assert short(value, padded=padded) == text


def test_an_n_of_its_own_is_said():
    measure = {"": [1.0, 2.0], "_low": [0.5, 1.0], "_high": [2.0, 3.0]}
    frame = pd.DataFrame({"reader": ["a", "b"]} | {f"{name}{end}": v for name in "xy" for end, v in measure.items()})
    shown = table_html(frame.assign(x_n=[3, 2], y_n=[3, 3]), "t")
    assert shown.count("<small>n = 2</small>") == 1
    assert "n 3." in shown


def test_every_kept_figure_has_a_caption_of_its_own():
    names = [path.stem for path in (RESULTS / "figures").glob("*.png")]
    assert names
    for name in names:
        words, seen = caption(name)
        assert "{" not in words + seen
        assert len(seen) > len(words.split(" (")[0]) + 40, name
    assert caption("ablate_equal_params_resnet8_digits")[0] == (
        "Number of parameters: the barrier, and what it costs (resnet8, digits)."
    )
    assert caption("mine_of-something")[1] == "Figure mine, of-something."


def test_a_study_says_what_it_asks():
    assert about("lmc") == (
        "Linear mode connectivity", "How high is the loss between two networks that differ in their seed?"
    )  # fmt: skip


def test_figures_that_are_missing_are_drawn(tmp_path):
    shutil.copy(RESULTS / "bnn_nuts.csv", tmp_path)
    found = Structure(_page(tmp_path))
    assert len(found.all("img")) == 1
    assert "presets: laptop" in " ".join(found.words)


def test_figures_that_cannot_be_drawn_are_named(tmp_path):
    shutil.copytree(_folder(tmp_path / "a"), tmp_path / "b", ignore=shutil.ignore_patterns("figures"))
    page = _page(tmp_path / "b")
    assert f"python -m figures.lmc --results {tmp_path / 'b'}" in page
    assert not Structure(page).all("img")


def test_a_large_table_is_linked_to(tmp_path, monkeypatch):
    monkeypatch.setattr("figures.report_page.LARGEST_INSIDE", 400)
    links = {
        link["download"]: link["href"] for link in Structure(_page(_folder(tmp_path))).all("a") if "download" in link
    }
    assert links["lmc_curves.csv"] == "lmc_curves.csv"


@pytest.mark.parametrize("content", [None, "", "a,b\n1\n", "a,a\n1,2\n"])
def test_bad_folders_are_one_line(content, tmp_path, capsys):
    if content is not None:
        (tmp_path / "lmc.csv").write_text(content, encoding="utf-8")
    assert main(["--results", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert ("--results" if content is None else "lmc.csv") in err
    assert not (tmp_path / "report.html").exists()


def test_a_folder_without_a_study_is_one_line_and_gets_no_page(tmp_path, capsys):
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    assert main(["--results", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert f"--results: only mine.csv in {tmp_path}, no table of lmc" in err
    assert err.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["mine.csv"]


def test_the_page_goes_where_it_is_told(tmp_path, capsys):
    root, page = _folder(tmp_path / "results"), tmp_path / "pages" / "mine.html"
    assert main(["--results", str(root), "--output", str(page)]) == 0
    assert page.is_file()
    assert not (root / "report.html").exists()
    assert main(["--results", str(root), "--output", str(tmp_path)]) == 2
    assert "--output" in capsys.readouterr().err


@pytest.fixture
def browser(tmp_path, monkeypatch):
    """Chromium without a window, through Debian's driver."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no browser: chromium and chromedriver are not installed")
    monkeypatch.setenv("HOME", str(tmp_path))
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "disable-background-networking",
                 "disable-component-update", "disable-sync", f"user-data-dir={tmp_path / 'profile'}"):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.add_experimental_option("prefs", {"download.default_directory": str(tmp_path / "taken")})
    session = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield session
    session.quit()


def test_the_page_in_a_browser(browser, tmp_path):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.wait import WebDriverWait

    root = _folder(tmp_path / "results")
    _page(root)
    browser.get((root / "report.html").as_uri())
    column = "#lmc table tbody tr > *:nth-child({})"

    def shown(place: int) -> list[str]:
        return [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, column.format(place))]

    headings = browser.find_elements(By.CSS_SELECTOR, "#lmc thead th")
    assert [heading.text.split()[0] for heading in headings] == ["variant", "loss"]
    assert shown(1) == ["standard", "w", "sigma"]
    loss = headings[1].find_element(By.TAG_NAME, "button")
    loss.click()
    assert headings[1].get_attribute("aria-sort") == "ascending"
    assert shown(1) == ["w", "sigma", "standard"]  # by value: as text, 10.1 would come first
    loss.send_keys(Keys.ENTER)
    assert headings[1].get_attribute("aria-sort") == "descending"
    assert shown(1) == ["standard", "sigma", "w"]
    headings[0].find_element(By.TAG_NAME, "button").send_keys(Keys.SPACE)
    assert [heading.get_attribute("aria-sort") for heading in headings] == ["ascending", "none"]
    assert shown(1) == ["sigma", "standard", "w"]

    browser.find_element(By.CSS_SELECTOR, 'a[download="lmc_summary.csv"]').click()
    taken = tmp_path / "taken" / "lmc_summary.csv"
    WebDriverWait(browser, 20).until(lambda _: taken.is_file())
    assert taken.read_text(encoding="utf-8") == SUMMARY

    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    width = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    assert browser.execute_script(width) == [360, 360]
    assert browser.execute_script("return [...document.images].every(i => i.complete && i.naturalWidth > 0)")
    assert browser.get_log("browser") == []
