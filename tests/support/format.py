"""format.py ROOT: every C++ and CUDA file is as clang-format makes it. Other versions break lines elsewhere, so that this is
skipped where there is no clang-format 14."""

import pathlib
import re
import shutil
import subprocess
import sys

VERSION = "14"
FOLDERS = ("bench", "examples", "include", "tests")
KINDS = {".hpp", ".cpp", ".cu", ".cuh"}


def find() -> str:
    for name in (f"clang-format-{VERSION}", "clang-format"):
        if program := shutil.which(name):
            said = subprocess.run([program, "--version"], text=True, capture_output=True).stdout
            if re.search(rf"version {VERSION}\.", said):
                return program
    print(f"skipped: needs clang-format {VERSION}")
    sys.exit(77)


def main() -> None:
    program, root = find(), pathlib.Path(sys.argv[1])
    files = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in KINDS)
    answer = subprocess.run([program, "--dry-run", *map(str, files)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    unlike = sorted(set(re.findall(r"^(.+?):\d+:\d+: warning: code should be clang-formatted", answer.stdout, re.M)))
    for path in unlike:
        print(f"{pathlib.Path(path).relative_to(root)} is not formatted; {pathlib.Path(program).name} -i mends it")
    if answer.returncode and not unlike:
        print(answer.stdout)
    print(f"{len(files)} files, {len(unlike)} faults")
    sys.exit(bool(unlike or answer.returncode or not files))


if __name__ == "__main__":
    main()
