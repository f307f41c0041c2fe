"""Every rule of rules.hpp has a case here that breaks it, or a reason why none can."""

import pathlib
import re
import sys

# Rules that only run-time sizes and lists can break; tests/unit/executor_faults.cpp breaks those that an executor sees.
NOT_AT_COMPILE_TIME = {
    "E18": "a body holds the weight gradients of one microbatch; across bodies the rules of plans come first",
    "E22": "the list of layers is run-time data",
}


def main() -> int:
    here = pathlib.Path(__file__).parent
    rules = (here.parent.parent / "include/stretto/rules.hpp").read_text()
    rows = re.findall(r"\{fault::(\w+), \"(\w+)\", \"(E\d+)\", STRETTO_(E\d+)\}", rules)
    covered = set()
    for case in here.glob("*.cpp"):
        covered.update(re.findall(r"^// expect: .*stretto\\\[(E\d+)\\\]", case.read_text(), re.MULTILINE))

    faults = []
    if len(rows) < 20:
        faults.append(f"found {len(rows)} rows in rules.hpp; has its form changed?")
    for fault, name, code, sentence in rows:
        if name != fault or sentence != code:
            faults.append(f"{code}: the row of {fault} says {name} and STRETTO_{sentence}")
        if f'"stretto[{code}]: ' not in rules:
            faults.append(f"{code}: its sentence does not begin with its code")
        if code in covered and code in NOT_AT_COMPILE_TIME:
            faults.append(f"{code} has a case, so it needs no reason why it has none")
        if code not in covered and code not in NOT_AT_COMPILE_TIME:
            faults.append(f"{code} ({fault}) has no case")
    codes = [code for _, _, code, _ in rows]
    for code in sorted(covered | NOT_AT_COMPILE_TIME.keys()):
        if code not in codes:
            faults.append(f"{code} is no rule")
    if len(set(codes)) != len(codes):
        faults.append("a code is used twice")
    for fault in faults:
        print(fault)
    print(f"{len(rows)} rules, {len(covered)} with a case, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
