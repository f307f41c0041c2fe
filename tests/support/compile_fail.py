"""compile_fail.py FILE --include DIR [--budget LINES] [--all-macros] -- COMPILER...

FILE must compile as it is (the good twin) and must not compile with -DSTRETTO_COMPILE_FAIL. The output of the failure
must match every regular expression of FILE's `// expect:` lines and be short. All this among macros such as N and T; with
--all-macros also among min and max, which the standard headers do not bear and so come first.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import headers


def main() -> int:
    split = sys.argv.index("--")
    compiler = sys.argv[split + 1:]
    arguments = argparse.ArgumentParser()
    arguments.add_argument("file", type=pathlib.Path)
    arguments.add_argument("--include", required=True)
    arguments.add_argument("--budget", type=int, default=20)
    arguments.add_argument("--all-macros", action="store_true")
    options = arguments.parse_args(sys.argv[1:split])

    expected = re.findall(r"^\s*//\s*expect:\s*(.+?)\s*$", options.file.read_text(), re.MULTILINE)
    if not expected:
        sys.exit(f"{options.file} has no line '// expect: REGEX'")

    nvcc = "nvcc" in pathlib.Path(compiler[0]).name
    root = pathlib.Path(options.include)
    macros = headers.poison(calls_too=options.all_macros)
    if options.all_macros:
        every = [pathlib.PurePosixPath(p.relative_to(root)) for p in sorted(root.rglob("*.hpp"))]
        core = [h for h in every if headers.part_of(h) == "core"]
        macros = "".join(f"#include {name}\n" for name in headers.foreign_includes(root, core)) + macros

    def compile_it(*more: str) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as scratch:
            prelude = pathlib.Path(scratch, "macros.hpp")
            prelude.write_text(macros)
            # Both g++ and clang instantiate everything without making an object; nvcc does not offer it.
            how = ["-x", "cu", "-c", "-o", f"{scratch}/out.o"] if nvcc else ["-fsyntax-only"]
            command = [*compiler, "-std=c++20", f"-I{root}", "-include", str(prelude), *more, *how, str(options.file)]
            return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    good = compile_it()
    if good.returncode != 0:
        print(f"the good twin (without STRETTO_COMPILE_FAIL) does not compile:\n{good.stdout}")
        return 1
    bad = compile_it("-DSTRETTO_COMPILE_FAIL")
    if bad.returncode == 0:
        print("it compiles with STRETTO_COMPILE_FAIL, but must not")
        return 1

    lines = [line for line in bad.stdout.splitlines() if line.strip()]
    faults = [f"nothing matches: {regex}" for regex in expected if not re.search(regex, bad.stdout)]
    if len(lines) > options.budget:
        faults.append(f"the message has {len(lines)} lines; the budget is {options.budget}")
    print(bad.stdout)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
