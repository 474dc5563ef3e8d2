#!/usr/bin/env python3
"""man_render_check.py MANDOC PAGE...: each page as people see it, at 80 and at 120 columns: no line is wider, nothing is
printed over something else, no macro is printed as a word, no text of a table runs into the next column or is lost,
quotes come in pairs, whatis finds every page and every name of it, each line of the synopsis begins with the program's
name, references lead to pages that exist, and muster-run(1) has at most 500 lines."""
import pathlib
import re
import subprocess
import sys

WIDTHS = 80, 120
LINES_MAX = {"muster-run.1": 500}
# A macro that does not begin its line is a word, but behind some others.
MACRO = ".* (?:Ns|Ar|Pf|Fl|Cm|Li|Ql|Xr|Ev|Dv) .*"


def render(mandoc, page, width):
    return subprocess.run([mandoc, "-T", "utf8", "-O", f"width={width}", page], check=True, capture_output=True,
                          text=True).stdout


def overprinted(text):
    """Characters that are printed over others; bold is x BS x, underlined _ BS x."""
    return [pair for pair in re.findall("(.\b.)", text) if pair[0] not in ("_", pair[2])]


def plain(text):
    return re.sub(".\b", "", text)


def words_of(cell):
    """The words of a cell of mdoc source, without macros."""
    return [w for w in cell.replace(r"\(dq", '"').split() if not re.fullmatch("[A-Z][a-z]", w)]


def tables(source):
    """(widths of the columns, rows) of each table; a row is a list of cells, a cell a list of words."""
    for widths, table in re.findall(r"^\.Bl -column ([^\n]*)\n(.*?)^\.El$", source, re.M | re.S):
        yield ([len(w) for w in re.findall('"([^"]*)"', widths)],
               [[words_of(cell) for cell in re.split(r"(?:^|\s)Ta(?:\s|$)", row)]
                for row in re.findall(r"^\.It (.*)$", table, re.M)])


def table_problems(widths, rows, lines):
    """Each cell must begin at its column, after a blank. mandoc puts 4 blanks between up to 4 columns."""
    assert len(widths) <= 4
    for row in rows:
        first = " ".join(row[0])
        good = False
        for line in lines:
            at = len(line) - len(line.lstrip())
            if not line[at:].startswith(first):
                continue
            columns = [at + sum(w + 4 for w in widths[:n]) for n in range(len(row))]
            good = good or all(line[c - 1:c] == " " and line[c:c + 1].strip() for c, cell in zip(columns, row) if cell and c > at)
        if not good:
            yield f"the row {first!r} of a table is not in its columns"


def check(mandoc, path):
    source = path.read_text()
    problems = []
    for width in WIDTHS:
        text = render(mandoc, path, width)
        problems += [f"at {width}: overprinted {pair!r}" for pair in overprinted(text)]
        problems += [f"at {width}: quotes: {q!r}" for q in re.findall(".*‘[^’]*‘.*|.*’’.*|.*’:[;,].*", plain(text))]
        problems += [f"at {width}: a macro: {line!r}" for line in re.findall(MACRO, plain(text))]
        lines = plain(text).splitlines()
        problems += [f"at {width}: {len(line)} columns: {line}" for line in lines if len(line) > width]
        for widths, rows in tables(source):
            problems += [f"at {width}: {p}" for p in table_problems(widths, rows, lines)]
    lines = plain(render(mandoc, path, 80)).splitlines()
    if len(lines) > LINES_MAX.get(path.name, len(lines)):
        problems.append(f"{len(lines)} lines, at most {LINES_MAX[path.name]}")
    problems += [f"no page {name}({section})" for name, section in re.findall(r"\bXr (muster[\w-]*) (\d)", source)
                 if not (path.parent / f"{name}.{section}").exists()]
    names = re.sub(r"\s+", " ", " ".join(lines[lines.index("NAME") + 1:][:8]).split("–")[0]).strip().split(", ")
    if path.suffix == ".1" and path.stem not in names or not names[0].startswith(path.stem):
        problems.append(f"whatis does not know {path.name}: {names}")
    if path.suffix == ".1":
        begin = lines.index("SYNOPSIS")
        synopsis = lines[begin + 1:lines.index("DESCRIPTION")]
        problems += [f"synopsis: {line}" for line in synopsis
                     if line and not re.match(r"     muster( [a-z]|$)|      +\S", line)]
    return [f"{path.name}: {p}" for p in problems]


def main():
    mandoc, *pages = sys.argv[1:]
    problems = [p for page in pages for p in check(mandoc, pathlib.Path(page))]
    n_tables = sum(len(list(tables(pathlib.Path(page).read_text()))) for page in pages)
    if n_tables == 0:
        problems.append("no table was found: is this check blind?")
    print("\n".join(problems) or f"{len(pages)} pages with {n_tables} tables can be read at {WIDTHS} columns")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
