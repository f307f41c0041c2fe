"""Budgets that are exact on any machine: instructions of a whole step, what bodies may not contain, length of symbols."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent.parent
COMPILER = os.environ.get("CXX", "g++").split()
COMMON = ["-std=c++20", f"-I{ROOT / 'include'}"]
WHOLE_STEP = 1.02
BODIES = 1.001
LONGEST_SYMBOL = 300


def run(*command: str | pathlib.Path) -> str:
    return subprocess.run([str(part) for part in command], check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout


def instructions(program: pathlib.Path, *arguments: str | int) -> int:
    said = run("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, *map(str, arguments))
    return int(re.search(r"Collected : (\d+)", said)[1])


def body_alone(work: pathlib.Path) -> list[str]:
    """The bodies beside those by hand, each run as often; the difference of two runs leaves the start-up out."""
    program = work / "run_bodies"
    run(*COMPILER, *COMMON, "-O2", ROOT / "bench/run/bodies.cpp", ROOT / "bench/run/bodies_work.cpp", "-o", program)
    each = {way: instructions(program, way, 1100) - instructions(program, way, 100) for way in ("hand", "stretto")}
    ratio = each["stretto"] / each["hand"]
    print(f"bodies, each once: {each['stretto'] / 1000} instructions, {each['hand'] / 1000} by hand, ratio {ratio:.4f}")
    return [] if each["hand"] > 100_000 and 0.9 < ratio <= BODIES else [f"bodies: ratio {ratio:.4f}, at most {BODIES}"]


def whole_step(work: pathlib.Path) -> list[str]:
    """A step of the executor beside a loop by hand; the difference of two runs leaves the start-up out."""
    program = work / "count"
    sources = [ROOT / "bench/run/count.cpp", ROOT / "bench/run/work.cpp"]
    run(*COMPILER, *COMMON, "-O2", *sources, "-o", program)
    faults = []
    # The fixed cost of a call shows where a chunk has one layer or two: printed, not asserted.
    for layers, asserted in ((1, False), (16, True), (64, True)):
        each = {}
        for way in ("hand", "executor"):
            each[way] = (instructions(program, way, layers, 30) - instructions(program, way, layers, 10)) // 20
        ratio = each["executor"] / each["hand"]
        print(f"{layers} layers: {each['executor']} instructions a step, {each['hand']} by hand, ratio {ratio:.4f}")
        if asserted and not 0.5 < ratio <= WHOLE_STEP:
            faults.append(f"{layers} layers: ratio {ratio:.4f}, at most {WHOLE_STEP}")
    return faults


def bodies(work: pathlib.Path) -> list[str]:
    """No call through a pointer and no allocation in the code of a body."""
    target = work / "bodies.o"
    run(*COMPILER, *COMMON, "-O2", "-fcf-protection=none", "-ffunction-sections", "-c", ROOT / "tests/codegen/bodies.cpp", "-o", target)
    faults, name, seen = [], "", set()
    for line in run("objdump", "-dr", "--no-show-raw-insn", target).splitlines():
        if header := re.match(r"^[0-9a-f]+ <(.+)>:$", line):
            name = header[1]
        if not name.startswith("stretto_"):
            continue
        seen.add(name)
        if re.search(r"\b(call|jmp)\s+\*", line) or re.search(r"_Zn[wa]|malloc", line):
            faults.append(f"{name}: {line.strip()}")
    print(f"{len(seen)} bodies")
    return faults + ([] if len(seen) >= 6 else ["the bodies were not found"])


def symbols(work: pathlib.Path) -> list[str]:
    target = work / "three_types.o"
    run(*COMPILER, *COMMON, "-O0", "-c", ROOT / "bench/compile/three_types.cpp", "-o", target)
    longest = max((line.split()[-1] for line in run("nm", target).splitlines()), key=len)
    print(f"longest symbol: {len(longest)} characters")
    return [f"{len(longest)} characters: {longest}"] if len(longest) > LONGEST_SYMBOL else []


def main() -> int:
    missing = [tool for tool in (COMPILER[0], "valgrind", "objdump", "nm") if not shutil.which(tool)]
    if missing:
        print(f"skipped: needs {', '.join(missing)}")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        faults = [fault for part in (bodies, symbols, body_alone, whole_step) for fault in part(pathlib.Path(scratch))]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
