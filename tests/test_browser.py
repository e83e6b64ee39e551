"""The built site as a person sees it, in headless Chromium.

Runs where Chromium with its driver, selenium, and a site are: `SKIDENT_SITE` names its folder, `build/docs` otherwise.
Screenshots are kept where `SKIDENT_SCREENSHOTS` says, else nowhere.
"""

import functools
import gzip
import http.server
import os
import re
import shutil
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium (extra docs)")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait

TOP = Path(__file__).parents[1]
SITE = Path(os.environ.get("SKIDENT_SITE", TOP / "build" / "docs"))
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Chromium and its driver"),
    pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="needs a built site: see CONTRIBUTING.md"),
]
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,1400",
]  # fmt: skip
PAGES = {
    "landing": "index.html",
    "guide": "guide/identify.html",
    "gallery": "gallery/plot_01_recover_sklearn_mlp.html",
    "api": "api/identification/NetworkIdentifier.html",
    "reproduction": "generated/reproduction.html",
}
REAL = ("SEVERE", "ERROR")  # levels of the console; the theme talks on others
SMALLEST = """
const sizes = [...document.querySelectorAll('.bd-article p')].map(e => parseFloat(getComputedStyle(e).fontSize));
return Math.min(...sizes);
"""
CONTRAST = """
const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
const parse = s => s.match(/[\\d.]+/g).map(Number);
const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
  if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
const ratio = e => { const a = light(parse(getComputedStyle(e).color)), b = light(ground(e));
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); };
return Math.min(...[...document.querySelectorAll('.bd-article p, .bd-article h1, .bd-article h2')].map(ratio));
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address():
    """The site on a port of this machine, while the tests run."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.implicitly_wait(10)
    yield driver
    driver.quit()


def complaints(browser):
    """What the console says is wrong."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in REAL]


def keep(browser, name):
    """A screenshot, where they are wanted."""
    if folder := os.environ.get("SKIDENT_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        browser.save_screenshot(f"{folder}/{name}.png")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_pages_can_be_read(browser, address, name, width, theme):
    size = {"width": width, "height": 1400, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(f"{address}/{PAGES[name]}")
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    keep(browser, f"{name}-{width}-{theme}")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(SMALLEST) >= 12
    assert browser.execute_script(CONTRAST) >= 4.5  # WCAG AA
    broken = "return [...document.images].filter(i => !i.complete || i.naturalWidth === 0).map(i => i.src)"
    assert browser.execute_script(broken) == []
    assert complaints(browser) == []


QUERIES = {
    "extract model": "guide/identify",
    "model stealing": "guide/identify",
    "how many queries": "guide/identify",
    "float32": "guide/identify",
    "black box": "guide/identify",
    "saddle": "guide/saddles",
    "polynomial network": "guide/hierarchical",
    "install": "install",
    "global optimum": "guide/certify",
    "audit": "guide/audit",
    "onnx": "guide/align",
    "rate limit": "how_do_i",
}


@pytest.mark.parametrize("query", QUERIES)
def test_search_finds_the_page_among_the_first_three(browser, address, query):
    browser.get(f"{address}/search.html?q={query.replace(' ', '+')}")
    WebDriverWait(browser, 20).until(lambda b: "found" in b.find_element("id", "search-results").text)
    links = browser.find_elements("css selector", "#search-results ul.search > li > a")[:3]
    keep(browser, f"search-{query}")
    assert any(f"/{QUERIES[query]}.html" in link.get_attribute("href") for link in links)
    assert complaints(browser) == []


WEIGHT = """
const entries = [...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')];
return entries.map(e => e.name);
"""


def test_the_landing_page_is_light(browser, address):
    """Bytes of the page and all that it loads, compressed as servers do: pictures and fonts as they are."""
    browser.get(f"{address}/index.html")
    names = {urlsplit(name).path for name in browser.execute_script(WEIGHT)}
    data = {name: (SITE / unquote(name).strip("/")).read_bytes() for name in names}
    sizes = {name: min(len(content), len(gzip.compress(content))) for name, content in data.items()}
    assert len(sizes) > 5 and sum(sizes.values()) < 400_000, sizes


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_screen(browser, address, width):
    size = {"width": width, "height": 1400, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wide = []
    for page in sorted(SITE.rglob("*.html")):
        name = page.relative_to(SITE).as_posix()
        if not name.startswith("_"):
            browser.get(f"{address}/{name}")
            if browser.execute_script("return document.documentElement.scrollWidth") > width:
                wide.append(name)
    assert wide == [] and complaints(browser) == []


def test_search_finds_the_words_of_a_warning(browser, address):
    browser.get(f"{address}/search.html?q=carry+noise+or+rounding")
    assert browser.find_elements("css selector", "#search-results li a[href*='troubleshooting']")


def test_links_inside_lead_somewhere():
    broken = []
    pages = {page: page.read_text(encoding="utf-8") for page in sorted(SITE.rglob("*.html"))}
    pages = {page: text for page, text in pages.items() if "_static" not in page.parts}
    anchors = {page: set(re.findall(r"\bid=\"([^\"]+)\"", text)) for page, text in pages.items()}
    for page, text in pages.items():
        for link in set(re.findall(r"(?:href|src)=\"([^\"]+)\"", text)):
            parts = urlsplit(link.replace("&amp;", "&"))
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            there = target.is_file() or (target / "index.html").is_file()
            known = not parts.fragment or target not in anchors or unquote(parts.fragment) in anchors[target]
            if not there or not (known or parts.fragment == ""):
                broken.append((page.relative_to(SITE).as_posix(), link))
    assert len(pages) > 150 and broken == []
