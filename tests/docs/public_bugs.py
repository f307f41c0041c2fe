"""public_bugs.py: docs/public_bugs.md and the tests name each other.

A test names a row by a tag of its TEST_CASE, a case of compile_fail by its last line `// public bug: ROW`. Every test of a row
carries it, every row that a test carries is on the page with that test, and verdicts are backed by tests.
"""

import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "public_bugs.md"

ROW = r"(?:megatron|pipelines|building-blocks|h200)-(?:\d\d|[a-z])"
VERDICTS = ("refused", "caught", "right value", "not applicable")
MOST_NOT_APPLICABLE = 6

Names = set[tuple[str, str]]  # row and test


def named_in(path: str, text: str) -> list[str]:
    """The rows that a test names."""
    if "compile_fail/" in path:
        return re.findall(rf"^// public bug: ({ROW})$", text, re.MULTILINE)
    cases = re.findall(r'TEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"[\s,]*)+)\)', text)
    # The last of the strings is the tags.
    tags = [re.findall(r'"((?:[^"\\]|\\.)*)"', case)[-1] for case in cases]
    return re.findall(rf"\[({ROW})\]", " ".join(tags))


def tests() -> dict[str, str]:
    return {str(p.relative_to(TESTS)): p.read_text() for p in sorted(TESTS.rglob("*.cpp"))}


def faults_of(page: str, files: dict[str, str]) -> list[str]:
    faults: list[str] = []
    rows, on_page, carried = [], set(), set()
    for line in page.splitlines():
        if not line.startswith("| `"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        row = cells[0].strip("` ")
        if not re.fullmatch(ROW, row) or len(cells) != 6 or not all(cells):
            faults.append(f"no row of six cells: {line[:80]}")
            continue
        rows.append(row)
        verdict, shown = cells[3], cells[5]
        of_row = re.findall(r"`([^`]+)`", shown)
        on_page.update((row, test) for test in of_row)
        if verdict not in VERDICTS:
            faults.append(f"{row}: '{verdict}' is no verdict")
        if verdict in VERDICTS[:3] and not of_row:
            faults.append(f"{row} is {verdict} and names no test")
        if verdict == "refused" and not any("compile_fail/" in test for test in of_row):
            faults.append(f"{row} is refused and names no case of compile_fail")
    if sum("| not applicable |" in line for line in page.splitlines() if line.startswith("| `")) > MOST_NOT_APPLICABLE:
        faults.append(f"more than {MOST_NOT_APPLICABLE} rows are not applicable")
    faults += [f"{row} stands on the page twice" for row in sorted(set(rows)) if rows.count(row) > 1]

    carried = {(row, path) for path, text in files.items() for row in named_in(path, text)}
    for row, test in sorted(on_page - carried):
        faults.append(f"{row}: {test} is no test" if test not in files else f"{row}: {test} does not carry its tag")
    for row, test in sorted(carried - on_page):
        faults.append(f"{test} carries {row}, which " + ("does not name it" if row in rows else "is not on the page"))
    return faults


def self_test(page: str, files: dict[str, str]) -> list[str]:
    """What must be noticed: each change of page or tests, with a part of what is said then."""
    spoilt = {
        "carries megatron-05, which is not on the page": (re.sub(r"\| `megatron-05`.*\n", "", page), files),
        "megatron-05: unit/body.cpp does not carry its tag":
            (page, {**files, "unit/body.cpp": files["unit/body.cpp"].replace("[megatron-05]", "")}),
        "megatron-05: unit/bodies.cpp is no test": (page.replace("`unit/body.cpp`", "`unit/bodies.cpp`"), files),
        "h200-03: compile_fail/no_backward_weight.cpp does not carry its tag":
            (page, {**files, "compile_fail/no_backward_weight.cpp": "int main() {}\n// public bug: h200-99\n"}),
        "carries h200-99, which is not on the page":
            (page, {**files, "compile_fail/no_backward_weight.cpp": "int main() {}\n// public bug: h200-99\n"}),
        "'fine' is no verdict": (page.replace("| refused |", "| fine |"), files),
        "megatron-05 is right value and names no test": (page.replace("| `unit/body.cpp` |", "| - |"), files),
        "megatron-05 stands on the page twice": (page + re.search(r"\| `megatron-05`.*\n", page)[0], files),
        "more than 6 rows are not applicable": (page.replace("| caught |", "| not applicable |"), files),
    }
    return [f"not noticed: {says}" for says, changed in spoilt.items() if not any(says in f for f in faults_of(*changed))]


def main() -> int:
    page, files = PAGE.read_text(), tests()
    faults = faults_of(page, files) or self_test(page, files)
    for fault in faults:
        print(fault)
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    counts = ", ".join(f"{sum(f'| {v} |' in row for row in rows)} {v}" for v in VERDICTS)
    print(f"{len(rows)} rows: {counts}; {len(faults)} faults")
    return 1 if faults or len(rows) < 60 else 0


if __name__ == "__main__":
    sys.exit(main())
