"""errors_doc.py [--write | PLAN]: docs/errors.md has a section for every rule, and its generated parts are those of today.

The sentence of a rule comes from rules.hpp; its program is the difference between a case that must not compile and its good
twin. What is written by hand is the text between them, which --write keeps. Where no case exists the text has the program.
With the path of the program `plan` the commands on the page are run: each must be refused with the sentence above it.
"""

import pathlib
import re
import shlex
import subprocess
import sys

import rules_covered

ROOT = rules_covered.TESTS.parent
PAGE = ROOT / "docs" / "errors.md"

HEAD = """\
# What is refused, and how to mend it

Every rule has a code that never changes. The compiler, an exception and this page say the same sentence: what is wrong and,
behind the semicolon, how to mend it. The compiler adds the names of your types as the arguments of `stretto::error::NAME`;
an exception (`std::invalid_argument`) puts rank, layer, pass, microbatch, lane and value before the semicolon.

The programs show what must not compile (`-`) and what does (`+`); the tests compile both. They stand on these phases:

```cpp
{layer}
```

and pipelines (from E40 on) on this:

```cpp
{pipeline}
```

"""


def shared(header: str) -> str:
    """What the cases of a folder share: all between the namespace's braces."""
    text = (rules_covered.TESTS / header).read_text()
    return re.search(r"^namespace (\w+) \{\n\n(.*)\n\} // namespace \1$", text, re.DOTALL | re.MULTILINE)[2].strip()


def layer() -> str:
    return shared("compile_fail/layer.hpp")


def pipeline() -> str:
    return shared("pipelines/compile_fail/one_chunk.hpp")


def program(case: pathlib.Path) -> str:
    """The case as a difference, without what all cases share."""
    text = re.sub(r"^// expect: .*\n", "", case.read_text(), flags=re.MULTILINE)
    text = re.sub(r"^#define STRETTO_WITH_EXECUTOR\n|^#include .*\n|^using stretto::call;\n|^(\} *// )?namespace \w+( \{)?\n", "", text,
                  flags=re.MULTILINE)
    text = re.split(r"^(?:void use\(|#ifndef STRETTO_WITH_EXECUTOR|template struct )", text, flags=re.MULTILINE)[0]
    lines, mark = [], " "
    for line in text.strip("\n").splitlines():
        if re.match(r"#ifn?def STRETTO_COMPILE_FAIL", line):
            mark = "-" if line.startswith("#ifdef") else "+"
        elif line == "#else":
            mark = "+" if mark == "-" else "-"
        elif line == "#endif":
            mark = " "
        elif line.strip() or lines and lines[-1].strip():
            lines.append((mark + " " + line).rstrip())
    return "\n".join(lines).rstrip()


def written() -> dict[str, str]:
    """The text by hand of every section."""
    if not PAGE.is_file():
        return {}
    parts = re.split(r"^## (E\d+) .*\n\n>.*\n\n", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {code: re.split(r"^(?:Refused|```diff)", text, flags=re.MULTILINE)[0].strip() for code, text in zip(parts[::2], parts[1::2])}


def section(code: str, name: str, sentence: str, remedy: str, text: str) -> str:
    cases = rules_covered.cases_of(code)
    when = "when it is compiled" if cases else "when it is made or run"
    if cases and code not in rules_covered.NOT_AT_RUN_TIME:
        when += ", and on values"
    body = f"## {code} {name}\n\n> stretto[{code}]: {sentence}; {remedy}\n\n{text}\n\nRefused {when}."
    if cases:
        body += " Cases: " + ", ".join(f"`{case.stem}`" for case in cases) + f".\n\n```diff\n{program(cases[0])}\n```"
    return body + "\n\n"


def run_commands(plan: str, texts: dict[str, str]) -> int:
    faults, count = 0, 0
    for code, text in texts.items():
        for command in re.findall(r"^plan .*", text, re.MULTILINE):
            result = subprocess.run([plan, *shlex.split(command)[1:]], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            count += 1
            if result.returncode != 2 or f"stretto[{code}]" not in result.stdout:
                faults += 1
                print(f"{code}: {command} ends with {result.returncode}: {result.stdout[:200]}")
    print(f"{count} commands, {faults} faults")
    return 1 if faults or count < 3 else 0


def main() -> int:
    table, texts = rules_covered.rules(), written()
    if sys.argv[1:] == ["--write"]:
        index = "| code | what is wrong |\n| --- | --- |\n" + "".join(
            f"| [{code}](#{code.lower()}-{name}) | {sentence} |\n" for code, (name, sentence, _) in table.items())
        PAGE.write_text(HEAD.replace("{layer}", layer()).replace("{pipeline}", pipeline()) + index + "\n" + "".join(
            section(code, *rule, texts.get(code, "")) for code, rule in table.items()).rstrip() + "\n")
        return 0
    if len(sys.argv) > 1:
        return run_commands(sys.argv[1], texts)
    faults = []
    page = PAGE.read_text()
    for code, rule in table.items():
        text = texts.get(code)
        if text is None:
            faults.append(f"{code} has no section in docs/errors.md; run errors_doc.py --write and write its text")
            continue
        if len(text) < 80:
            faults.append(f"{code}: its section says too little")
        if not rules_covered.cases_of(code) and "```" not in text:
            faults.append(f"{code}: its section shows no program")
        if section(code, *rule, text).rstrip() not in page:
            faults.append(f"{code}: its section is not of today; run errors_doc.py --write")
    faults += [f"{code} has a section and is no rule" for code in texts.keys() - table.keys()]
    if layer() not in page:
        faults.append("the phases at the top are not those of the cases; run errors_doc.py --write")
    if pipeline() not in page:
        faults.append("the pipeline at the top is not that of the cases; run errors_doc.py --write")
    for fault in faults:
        print(fault)
    print(f"{len(texts)} sections, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
