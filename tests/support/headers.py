"""Compiles every header of one part alone, included twice, and all of them together, among hostile macros.

The flags are those of a target of the build (read from compile_commands.json).
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

# An adapter belongs to the part of the longest name here that its file or folder name starts with; all others need
# no third party and are tested with the core.
ADAPTER_PARTS = ["torch_cuda", "torch", "c10d", "cuda", "nccl", "cublas"]

# Real macros of complex.h, termios.h, windows.h, sys/sysmacros.h and of careless programs.
WORD_MACROS = ["I", "N", "T", "P", "B0", "small", "near", "far"]
CALL_MACROS = ["min", "max", "major", "minor"]


def part_of(header: pathlib.PurePosixPath) -> str:
    if header.parts[:2] != ("stretto", "adapters"):
        return "core"
    name = header.parts[2].removesuffix(".hpp")
    for part in ADAPTER_PARTS:
        if name == part or name.startswith(part + "_"):
            return part
    return "plain"


def foreign_includes(root: pathlib.Path, headers: list[pathlib.PurePosixPath]) -> list[str]:
    found = {}
    for header in headers:
        for line in (root / header).read_text().splitlines():
            if match := re.match(r"\s*#\s*include\s*(<(?!stretto/)[^>]+>)", line):
                found[match[1]] = None
    return list(found)


def poison(calls_too: bool) -> str:
    lines = [f"#define {name} @{name}_is_a_common_macro" for name in WORD_MACROS]
    if calls_too:
        lines += [f"#define {name}(...) @{name}_is_a_common_macro" for name in CALL_MACROS]
    return "\n".join(lines) + "\n"


def twice(header: pathlib.PurePosixPath) -> str:
    return f"#include <{header}>\n" * 2


def flags_of(build_root: pathlib.Path, target: str) -> tuple[list[str], list[str], str]:
    for entry in json.loads((build_root / "compile_commands.json").read_text()):
        if f"/{target}.p/" not in entry.get("output", ""):
            continue
        words = shlex.split(entry["command"])
        start = next(i for i, word in enumerate(words) if word.startswith("-"))
        compiler, flags, skip = words[:start], [], False
        for word in words[start:]:
            if skip:
                skip = False
            elif word in ("-o", "-MF", "-MQ", "-MT"):
                skip = True
            elif word not in ("-c", "-MD", "-MMD", "-g", entry["file"]) and not re.fullmatch(r"-O.|-I[^/].*\.p", word):
                flags.append(word)
        one_error = "-ferror-limit=1" if "clang" in pathlib.Path(compiler[-1]).name else "-fmax-errors=1"
        return compiler, [*flags, "-fdiagnostics-color=never", one_error], entry["directory"]
    sys.exit(f"compile_commands.json has no target {target}")


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--include-root", type=pathlib.Path, required=True)
    arguments.add_argument("--part", required=True, choices=["core", "plain", *ADAPTER_PARTS])
    arguments.add_argument("--build-root", type=pathlib.Path)
    arguments.add_argument("--flags-of", help="a target whose compiler and flags to use")
    arguments.add_argument("--nvcc", help="this nvcc instead, all headers in one file")
    options = arguments.parse_args()

    root = options.include_root.resolve()
    every = sorted(pathlib.PurePosixPath(p.relative_to(root)) for p in root.rglob("*.hpp"))
    headers = [h for h in every if part_of(h) == options.part]
    if not headers:
        print(f"skipped: there is no header of the part {options.part}")
        return 77

    core = [h for h in every if part_of(h) == "core"]
    includes = foreign_includes(root, headers if options.part == "core" else [*core, *headers])
    together = "".join(f"#include {i}\n" for i in includes) + poison(calls_too=True) + "".join(map(twice, headers))

    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        if options.nvcc:
            compiler, flags, where = [options.nvcc], ["-x", "cu", "-std=c++20", f"-I{root}"], folder
            sources = {"every header of the core": together}
        else:
            compiler, flags, where = flags_of(options.build_root, options.flags_of)
            flags = [*flags, f"-I{root}", "-O0"]
            if options.part in ("core", "plain"):
                sources = {str(h): poison(calls_too=False) + twice(h) for h in headers} | {"all together": together}
            else:
                # Third parties' headers use these names themselves and take seconds to parse: so all headers in two
                # orders, in which one that leans on another comes first once.
                sources = {"all together": together, "all in reverse order": "".join(map(twice, reversed(headers)))}

        def compile_one(number: int, name: str, text: str) -> tuple[str, subprocess.CompletedProcess]:
            source = scratch / f"header_{number}.cpp"
            source.write_text(text)
            what = ["-c", "-o", str(scratch / "together.o")] if text is together else ["-fsyntax-only"]
            return name, subprocess.run([*compiler, *flags, *what, str(source)], cwd=where, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            done = list(pool.map(lambda item: compile_one(item[0], *item[1]), enumerate(sources.items())))
        # A fault shows again in every header that includes the faulty one.
        faults: dict[str, list[str]] = {}
        for name, result in done:
            if result.returncode != 0:
                essence = [line for line in result.stdout.splitlines() if not re.match(r"In file included|\s+from", line)]
                faults.setdefault(re.sub(r"\S*header_\d+\.cpp", "HEADER.cpp", "\n".join(essence[:20])), []).append(name)
        for output, names in faults.items():
            print(f"does not compile on its own, twice, among hostile macros: {', '.join(names)}\n{output}\n")
        if faults:
            return 1

        # Two objects of the same headers find what lacks an inline; a relocatable link needs no third party's libraries.
        if not options.nvcc:
            shutil.copy(scratch / "together.o", scratch / "again.o")
            link = subprocess.run([*compiler, "-r", "-nostdlib", "-o", "linked.o", "together.o", "again.o"], cwd=scratch,
                                  text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if link.returncode != 0:
                print(f"the headers define something twice (a missing inline?):\n{link.stdout}")
                return 1
    print(f"{len(headers)} headers of the part {options.part}: fine")
    return 0


if __name__ == "__main__":
    sys.exit(main())
