"""budget.py [--repeat N] [--write FILE]: what stretto costs to compile, beside its budgets.

Times are user CPU seconds of the compiler, the least of N runs, so that other work on the machine counts little; memory
is the peak of one run.
"""

import argparse
import datetime
import os
import pathlib
import platform
import re
import subprocess
import tempfile

HERE = pathlib.Path(__file__).parent
INCLUDE = HERE.parent.parent / "include"


def cost(command: list[str], repeat: int) -> tuple[float, float]:
    """User seconds and peak MB."""
    seconds, peak = float("inf"), float("inf")
    for _ in range(repeat):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"failed: {' '.join(command)}")
        seconds, peak = min(seconds, usage.ru_utime), min(peak, usage.ru_maxrss / 1024)
    return seconds, peak


def standard_includes() -> list[str]:
    """What the umbrella takes from the standard library."""
    seen, todo, found = set(), ["stretto/stretto.hpp"], set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for included in re.findall(r"^#include <([^>]+)>", (INCLUDE / name).read_text(), re.MULTILINE):
            if included.startswith("stretto/needs/"):
                continue  # No file, on purpose: detail/cxx20.hpp.
            (todo.append if included.startswith("stretto/") else found.add)(included)
    return sorted(found)


def longest_symbol(object_file: pathlib.Path) -> int:
    names = subprocess.run(["nm", str(object_file)], check=True, text=True, stdout=subprocess.PIPE).stdout
    return max(len(line.split()[-1]) for line in names.splitlines())


def version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], text=True, stdout=subprocess.PIPE).stdout.splitlines()[0]


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--write", type=pathlib.Path)
    options = arguments.parse_args()

    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        standard = work / "standard.cpp"
        standard.write_text("".join(f"#include <{name}>\n" for name in standard_includes()))
        umbrella = work / "umbrella.cpp"
        umbrella.write_text("#include <stretto/stretto.hpp>\n")
        common = ["-std=c++20", f"-I{INCLUDE}", "-c"]
        compilers = [c for c in ("g++-12", "clang++-19") if subprocess.run(["which", c], stdout=subprocess.DEVNULL).returncode == 0]
        for compiler in compilers:
            alone, _ = cost([compiler, *common, "-O0", str(standard), "-o", os.devnull], options.repeat)
            parsed, _ = cost([compiler, *common, "-O0", str(umbrella), "-o", os.devnull], options.repeat)
            budget = "0.2 s" if compiler == "g++-12" else ""
            rows.append((f"umbrella above its standard includes ({alone:.2f} s), {compiler} -O0", f"{parsed - alone:.2f} s", budget))
            for level in ("-O0", "-O2"):
                target = work / f"{compiler}{level}.o"
                command = [compiler, *common, level, str(HERE / "three_types.cpp")]
                seconds, peak = cost([*command, "-o", str(target)], options.repeat)
                unproved, _ = cost([*command, "-DUNPROVED", "-o", os.devnull], options.repeat)
                budget = "1.5 s, 200 MB" if (compiler, level) == ("g++-12", "-O2") else ""
                rows.append((f"executor over null, three block types, {compiler} {level}", f"{seconds:.2f} s, {peak:.0f} MB", budget))
                rows.append((f"of that its proofs, {compiler} {level}", f"{100 * (seconds / unproved - 1):.0f} % more than without", "30 %"))
            rows.append((f"longest symbol of that, {compiler} -O0", f"{longest_symbol(work / f'{compiler}-O0.o')} characters", "300"))
    rows.append(("constexpr limits", "default", "default"))

    cpu = re.search(r"^model name\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    lines = [
        "# Compile-time cost", "",
        f"{datetime.date.today()}, {cpu[1] if cpu else platform.processor()}, {os.cpu_count()} cores; "
        f"{'; '.join(version(c) for c in compilers)}.",
        "User CPU seconds of the compiler, least of "
        f"{options.repeat} runs. `python3 bench/compile/budget.py --repeat {options.repeat} --write bench/results/compile.md`", "",
        "| what | measured | budget |", "| --- | --- | --- |",
        *(f"| {what} | {measured} | {budget} |" for what, measured, budget in rows)]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.write:
        options.write.write_text(text)


if __name__ == "__main__":
    main()
