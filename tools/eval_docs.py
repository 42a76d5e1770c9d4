#!/usr/bin/env python3
"""Puts runs of `coppice eval` into the docs: their figures as pictures, their tables into a page.

    tools/eval_docs.py RESULTS...                         # docs/img/eval/*.png and the tables of docs/quality-coppice-12.md
    tools/eval_docs.py RESULTS --sweeps OTHER --no-page   # pictures alone, the figure `sweeps` from another run

Each RESULTS is the folder that `coppice eval -o` named, or a results.json; several are shown as one run, so they must
have the same methods and hold different tasks or lengths. Figures that they do not hold keep their old picture, and the
output names them. The tables stand in the page between two comments (BEGIN, END); what is around stays. Pictures are
taken by headless Chromium (tools/setup.sh web, or COPPICE_BROWSER).
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from browser import Browser, Tab, find_browser  # noqa: E402

BEGIN, END = "<!-- tables: made by tools/eval_docs.py -->", "<!-- end of tables -->"
SWEEPS = "sweeps"


def rows_of(sources: list[pathlib.Path]) -> list[dict]:
    """The rows of all results, each task and length from one of them."""
    rows, methods, seen = [], None, {}
    for source in sources:
        path = source if source.suffix == ".json" else source / "results.json"
        try:
            own = json.loads(path.read_text(encoding="utf-8"))
            prunes = {row["prune"] for row in own}
            groups = {(row["task"], row["length"]) for row in own}
        except (OSError, ValueError, KeyError, TypeError) as error:
            sys.exit(f"{path}: no results of coppice eval: {error}")
        if methods is not None and prunes != methods:
            sys.exit(f"{path}: other methods than {sources[0]}: {', '.join(sorted(prunes ^ methods))}")
        methods = prunes
        for group in groups:
            if group in seen:
                sys.exit(f"{path}: {group[0]} at {group[1]} stands in {seen[group]}, too")
            seen[group] = path
        rows += own
    return rows


def write_rows(rows: list[dict], path: pathlib.Path) -> None:
    """A line for each row, so that differences can be read."""
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8", newline="\n")


def report(coppice: str, results: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes FIGURE.svg and tables.md into `folder`."""
    folder.mkdir()
    command = [coppice, "report", results, "--pictures", folder, "--markdown", folder / "tables.md"]
    try:
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
            sys.exit(1)  # it has said why
    except OSError as error:
        sys.exit(f"{coppice}: {error.strerror}; --coppice names another program")


def take_picture(browser: Browser, svg: pathlib.Path, png: pathlib.Path, scheme: str) -> None:
    text = svg.read_text(encoding="utf-8")
    width, height = (round(float(side)) for side in re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text).groups())
    page = svg.with_suffix(".html")
    page.write_text(f'<!DOCTYPE html><meta charset="utf-8"><body style="margin:0;background:var(--paper)">{text}',
                    encoding="utf-8")
    tab = Tab(browser, page.as_uri(), width=width, height=height, scheme=scheme)
    tab.screenshot(png)
    tab.close()


def take_pictures(svgs: list[pathlib.Path], folder: pathlib.Path, scheme: str) -> None:
    program = find_browser()
    if program is None:
        sys.exit("no Chromium: tools/setup.sh web installs one, COPPICE_BROWSER names another")
    folder.mkdir(parents=True, exist_ok=True)
    browser = Browser(program)
    try:
        for svg in svgs:
            take_picture(browser, svg, folder / f"{svg.stem}.png", scheme)
    finally:
        browser.close()
    kept = sorted({png.stem for png in folder.glob("*.png")} - {svg.stem for svg in svgs})
    print(f"{folder}: {len(svgs)} pictures" + (f"; the run has no {', '.join(kept)}" if kept else ""))


def write_page(page: pathlib.Path, tables: str) -> None:
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        sys.exit(f"{page}: the tables' place is missing: {BEGIN} and {END}, once each")
    before, rest = text.split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{tables.strip()}\n{END}{rest.split(END)[1]}", encoding="utf-8", newline="\n")
    print(f"{page}: tables")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path, nargs="+", help="a folder of coppice eval, or a results.json")
    parser.add_argument("--sweeps", type=pathlib.Path, help="another one, for the figure along one setting")
    parser.add_argument("--save", type=pathlib.Path, help="a file that gets all rows, to make the same again from")
    parser.add_argument("--pictures", type=pathlib.Path, default=ROOT / "docs/img/eval")
    parser.add_argument("--no-pictures", action="store_true", help="write the tables alone; no browser is needed")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/quality-coppice-12.md")
    parser.add_argument("--no-page", action="store_true", help="make the pictures alone")
    parser.add_argument("--dark", action="store_true", help="pictures as a reader with a dark screen sees them")
    parser.add_argument("--coppice", default=str(ROOT / "build/coppice"), help="the program (build/coppice)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="coppice-docs-") as name:
        main_run, sweep_run = pathlib.Path(name, "main"), pathlib.Path(name, "sweeps")
        rows = pathlib.Path(name, "results.json")
        write_rows(rows_of(args.results), rows)
        report(args.coppice, rows, main_run)
        svgs = {svg.stem: svg for svg in main_run.glob("*.svg")}
        if args.sweeps:
            report(args.coppice, args.sweeps, sweep_run)
            svgs |= {svg.stem: svg for svg in sweep_run.glob(f"{SWEEPS}.svg")}
        if args.save:
            args.save.write_bytes(rows.read_bytes())
        if not args.no_page:
            write_page(args.page, (main_run / "tables.md").read_text(encoding="utf-8"))
        if not args.no_pictures:
            take_pictures([svgs[stem] for stem in sorted(svgs)], args.pictures, "dark" if args.dark else "light")
    return 0


if __name__ == "__main__":
    sys.exit(main())
