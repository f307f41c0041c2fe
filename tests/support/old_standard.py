"""old_standard.py --include DIR [--every] -- COMPILER...

Under C++17 the umbrella and every adapter's (with --every: every header) must end with one sentence and little else.
version.hpp, which build systems ask under any standard, must compile.
"""

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys

SENTENCE = "stretto needs C++20: compile with -std=c++20 or later"
BUDGET = 20


def main() -> int:
    split = sys.argv.index("--")
    compiler = sys.argv[split + 1:]
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--include", type=pathlib.Path, required=True)
    arguments.add_argument("--every", action="store_true")
    options = arguments.parse_args(sys.argv[1:split])

    root = options.include
    found = root.rglob("*.hpp") if options.every else [root / "stretto/stretto.hpp", *root.glob("stretto/adapters/*.hpp")]
    headers = sorted(str(path.relative_to(root)) for path in found if path.name != "version.hpp")

    def compile_it(header: str) -> tuple[int, str]:
        how = ["-x", "cu", "-c", "-o", os.devnull] if "nvcc" in pathlib.Path(compiler[0]).name else ["-x", "c++", "-fsyntax-only"]
        result = subprocess.run([*compiler, "-std=c++17", f"-I{root}", *how, "-"], input=f"#include <{header}>\n", text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return result.returncode, result.stdout

    faults = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for header, (code, output) in zip(headers, pool.map(compile_it, headers)):
            lines = len(output.splitlines())
            if code == 0 or SENTENCE not in output or lines >= BUDGET:
                faults.append(f"{header} ends with {code} and {lines} lines under C++17; its first include must lead to "
                              f"detail/cxx20.hpp\n{output[:1000]}")
    code, output = compile_it("stretto/version.hpp")
    if code != 0:
        faults.append(f"version.hpp does not compile under C++17\n{output}")
    for fault in faults:
        print(fault)
    print(f"{len(headers)} headers under C++17, {len(faults)} faults")
    return 1 if faults or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
