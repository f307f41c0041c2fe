"""models.py: the code in docs/models.md is code of the examples, line by line.

A fence is of the file that the text before it links last, or else of that of the fence before.
"""

import pathlib
import re
import sys

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "models.md"


def faults_of(page: str, folder: pathlib.Path) -> list[str]:
    faults, source, fences = [], None, 0
    for piece in re.split(r"^(```cpp\n.*?^```)$", page, flags=re.MULTILINE | re.DOTALL):
        if not piece.startswith("```cpp"):
            links = re.findall(r"\]\((\.\./examples/[^)#]+\.(?:cpp|hpp))\)", piece)
            source = folder / links[-1] if links else source
            continue
        fences += 1
        if source is None or not source.is_file():
            faults.append(f"a fence has no file: {piece.splitlines()[1]}")
            continue
        known = {line.strip() for line in source.read_text().splitlines()}
        faults += [f"{source.name} has no line '{line.strip()}'" for line in piece.splitlines()[1:-1] if line.strip() not in known]
    return faults if fences > 0 else ["the page has no code"]


def main() -> int:
    page = PAGE.read_text()
    # The check sees code that has changed.
    assert faults_of(page.replace("st::Detach, Combine", "Combine"), PAGE.parent), "a line that no example has was not seen"
    faults = faults_of(page, PAGE.parent)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
