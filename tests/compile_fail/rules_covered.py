"""Every rule of rules.hpp has a case that breaks it when it is compiled and a test that breaks it on values, or a reason why
it has none. The good twin of a case is the case itself without STRETTO_COMPILE_FAIL, which compile_fail.py compiles."""

import functools
import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).parent.parent

# Rules about what is known only when a program runs.
NOT_AT_COMPILE_TIME = {
    "E22": "the list of layers is run-time data",
    "E41": "sizes are run-time data, and the proof of a pipeline type takes only those that it asks for",
    "E42": "sizes are run-time data",
    "E43": "sizes are run-time data",
    "E44": "sizes are run-time data",
    "E54": "messages are lowered from a plan, which is run-time data",
    "E55": "messages are lowered from a plan, which is run-time data",
    "E56": "messages are lowered from a plan, which is run-time data",
    "E57": "messages are lowered from a plan, which is run-time data",
    "E58": "two ranks compare the plans that they were given",
    "E59": "names on a command line; where the schedule is a type, E08 says it",
    "E60": "the rank is run-time data",
    "E61": "how many ranks there are is run-time data",
    "E63": "which microbatches have one slot depends on layers and plan, which are run-time data",
    "E66": "the list of layers is run-time data",
    "E67": "the list of layers is run-time data",
    "E74": "sizes are run-time data, and each rank knows its own",
}

# Rules about the code of a phase, of which nothing is left when a program runs.
NOT_AT_RUN_TIME = {
    "E10": "the code of a phase names a type",
    "E11": "the code of a phase names a type",
    "E12": "the code of a phase names a type",
    "E13": "the code of a phase names a type",
    "E32": "the code of a phase names a type",
    "E38": "the code of the caller names a type",
    "E62": "the code of the caller names a type",
    "E68": "the code of the caller names a type",
    "E69": "the code of a phase names a type",
    "E70": "the code of a phase declares a member",
    "E73": "the code of a phase names a type",
}


@functools.cache
def cases() -> dict[pathlib.Path, str]:
    """All cases: for each its text."""
    return {case: case.read_text() for case in [*TESTS.glob("compile_fail/*.cpp"), *TESTS.glob("*/compile_fail/*.cpp")]}


def cases_of(code: str) -> list[pathlib.Path]:
    """The cases that expect the sentence of the rule, the one named after it first."""
    expects = re.compile(rf"^// expect: .*stretto\\\[{code}\\\]", re.MULTILINE)
    name = rules()[code][0] if code in rules() else ""

    def order(case: pathlib.Path):
        return case.stem not in (name, "plan_" + name), case.stem.endswith("_executor"), case.stem

    return sorted((case for case, text in cases().items() if expects.search(text)), key=order)


@functools.cache
def rules() -> dict[str, tuple[str, str, str]]:
    """Name, sentence and remedy of every code."""
    text = (TESTS.parent / "include/stretto/rules.hpp").read_text()
    sentences = dict(re.findall(r'"stretto\[(E\d+)\]: ([^"]+)"', re.sub(r'"\s*\\\n\s*"', "", text)))
    listed = re.findall(r"rule\((E\d+), (\w+)\)", text)
    return {code: (name, *sentences.get(code, "").split("; ", 1)) for code, name in listed}


def main() -> int:
    table = rules()
    covered = {code for code in table if cases_of(code)}
    on_values = "".join(test.read_text() for test in TESTS.rglob("*.cpp") if "compile_fail" not in test.parts)

    expected = set(re.findall(r"^// expect: .*stretto\\\[(E\d+)\\\]", "".join(cases().values()), re.MULTILINE))

    faults = []
    if len(table) < 40:
        faults.append(f"found {len(table)} rules in rules.hpp; has its form changed?")
    for code, (name, *sentence) in table.items():
        if len(sentence) != 2:
            faults.append(f"{code}: no sentence and remedy, or its sentence does not begin with its code")
        if code in covered and code in NOT_AT_COMPILE_TIME:
            faults.append(f"{code} has a case, so it needs no reason why it has none")
        if code not in covered and code not in NOT_AT_COMPILE_TIME:
            faults.append(f"{code} ({name}) has no case")
        tested = f"fault::{name}" in on_values or f"stretto[{code}]" in on_values
        if tested == (code in NOT_AT_RUN_TIME):
            faults.append(f"{code} ({name}) has " + ("a test on values, so it needs no reason" if tested else "no test on values"))
    for code in sorted(expected | NOT_AT_RUN_TIME.keys() | NOT_AT_COMPILE_TIME.keys()):
        if code not in table:
            faults.append(f"{code} is no rule")
    for fault in faults:
        print(fault)
    print(f"{len(table)} rules, {len(covered)} with a case, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
