"""results.py: the index of bench/results leads to every page, and the pages name every file of figures."""

import fnmatch
import pathlib
import re
import sys

RESULTS = pathlib.Path(__file__).parents[2] / "bench" / "results"


def faults_of(index: str, pages: dict[str, str], figures: list[str]) -> list[str]:
    linked = set(re.findall(r"\]\((\w+\.md)(?:#[\w-]+)?\)", index))
    named = [name for text in pages.values() for name in re.findall(r"`([\w*]+\.json)`", text)]
    return ([f"README.md does not lead to {name}" for name in sorted(pages.keys() - linked)]
            + [f"README.md leads to {name}, which is not there" for name in sorted(linked - pages.keys())]
            + [f"no page names {name}" for name in figures if not any(fnmatch.fnmatchcase(name, one) for one in named)])


def main() -> int:
    texts = {p.name: p.read_text() for p in sorted(RESULTS.glob("*.md"))}
    index = texts.pop("README.md")
    figures = [p.name for p in sorted(RESULTS.glob("*.json"))]
    assert len(faults_of("[a](gone.md)", {"page.md": "`some_*.json`"}, ["some_1.json", "other.json"])) == 3
    faults = faults_of(index, texts, figures)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
