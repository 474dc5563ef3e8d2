"""The pictures of `muster profile`: of a job of four ranks (profile_train.py), whose rank 2 has a slow dataset."""
import collections
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
import zlib

import pytest

import page_lines
from harness import SLOWER, Job
from test_operate import ask
from test_profile import DATA_LINE, end, profile, start
from test_stacks import OWN

SVG = "{http://www.w3.org/2000/svg}"
SIZE = 1260, 700
FORMS = "svg", "strip.svg", "speedscope.json", "txt"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Form -> its file, of one job, where the lines of docs/profile.md run."""
    with Job(tmp_path_factory.mktemp("profile") / "job") as job:
        agent = start(job, slow="2:data")
        for words in [line.text.split()[1:] for line in page_lines.lines() if line.page == "profile.md"]:
            code, _, err = ask(job, *words, prefix=OWN)
            assert code == 0, err
        for form in FORMS[2:]:
            profile(job, "--seconds=5", f"--output=job.{form}")
        end(job, agent)
        return {form: job.tmp / f"job.{form}" for form in FORMS}


def texts(root):
    return ["".join(t.itertext()) for t in root.iter(SVG + "text")]


def test_the_lines_of_the_page(files):
    """A flame graph that marks the dataset of the late rank."""
    root = ET.parse(files["svg"]).getroot()
    assert re.fullmatch(r"job trains: what 4 ranks did in [.0-9]+ s", texts(root)[0]), texts(root)
    assert any(re.fullmatch(r"rank 2: \+\d\d %", t) for t in texts(root)), texts(root)
    hot = [g for g in root.iter(SVG + "g") if any("hot" in r.get("class") for r in g.iter(SVG + "rect"))]
    names = [g.find(SVG + "title").text for g in hot]
    assert any(n.startswith("__getitem__ (") and "; rank 2 " in n for n in names), names
    assert not list(root.iter(SVG + "script")) and "http" not in files["svg"].read_text().replace(SVG[1:-1], "")


def test_the_strip_has_a_row_for_each_rank(files):
    root = ET.parse(files["strip.svg"]).getroot()
    assert [t for t in texts(root) if t.startswith("rank ") and len(t) == 6] == [f"rank {r}" for r in range(4)], texts(root)
    late = [t.text for t in root.iter(SVG + "text") if "late" in t.get("class", "")]
    assert late[0].startswith("rank 2 is late: the others wait for it ") and late[1] == "rank 2", late
    assert {"data loading", "forward"} < set(texts(root)), texts(root)


def test_speedscope_has_a_profile_for_each_rank(files):
    seen = json.loads(files["speedscope.json"].read_text())
    assert [p["name"] for p in seen["profiles"]] == [f"rank {r}" for r in range(4)]
    frames = seen["shared"]["frames"]
    for p in seen["profiles"]:
        assert len(p["samples"]) == len(p["weights"]) > 0 and p["type"] == "sampled" and p["unit"] == "seconds"
        assert abs(sum(p["weights"]) - p["endValue"]) < 0.001
        assert all(0 <= i < len(frames) for s in p["samples"] for i in s)
    assert "__getitem__" in {frames[i]["name"] for s in seen["profiles"][2]["samples"] for i in s}


def test_the_text_names_the_line(files):
    assert re.search(rf"^rank 2 is late: .*\n  it spends more time in data loading \(\+\d\d %\), __getitem__ \(profile_train.py:{DATA_LINE}\)$",
                     files["txt"].read_text(), re.M), files["txt"].read_text()


def pixels(png):
    """How often each colour is there, of a PNG of 8-bit RGB or RGBA."""
    data, at, body = png.read_bytes(), 8, b""
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        kind, chunk = data[at + 4:at + 8], data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, deep, coloured = int.from_bytes(chunk[:4], "big"), chunk[8], chunk[9]
        body += chunk if kind == b"IDAT" else b""
        at += size + 12
    assert deep == 8 and coloured in (2, 6), (deep, coloured)
    n = 3 if coloured == 2 else 4
    raw, stride, found = zlib.decompress(body), width * n, collections.Counter()
    above = bytearray(stride)
    for start in range(0, len(raw), stride + 1):
        way, row = raw[start], bytearray(raw[start + 1:start + 1 + stride])
        for i in range(stride if way else 0):
            left, up, corner = (row[i - n] if i >= n else 0), above[i], (above[i - n] if i >= n else 0)
            nearest = min((left, up, corner), key=lambda v: abs(left + up - corner - v))
            row[i] = (row[i] + (0, left, up, (left + up) // 2, nearest)[way]) & 255
        found.update(bytes(row[i:i + 3]).hex() for i in range(0, stride, n))
        above = row
    return found


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH")
@pytest.mark.parametrize("scheme, background, forward", [("light", "ffffff", "5b8fc7"), ("dark", "0d1117", "3f6fa8")])
@pytest.mark.parametrize("form", ["svg", "strip.svg"])
def test_a_browser_draws_it_in_light_and_dark(files, tmp_path, form, scheme, background, forward):
    subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={tmp_path}/own",
                    f"--window-size={SIZE[0]},{SIZE[1]}", f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
                    f"--screenshot={tmp_path}/shot.png", files[form].as_uri()], check=True, timeout=60 * SLOWER, capture_output=True)
    found = pixels(tmp_path / "shot.png")
    assert found[background] > 100_000, found.most_common(5)
    assert found["f28e2b"] > 300 and found[forward] > 300, found.most_common(9)
    red = "d62728" if form == "svg" or scheme == "light" else "ff3333"
    assert found[red] > 300, "the late rank"
