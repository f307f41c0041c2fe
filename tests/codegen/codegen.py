"""codegen.py FILE --include DIR [--must-differ NAME...] -- COMPILER...

Compiles FILE, which defines pairs of extern "C" functions hand_NAME and stretto_NAME, and compares their instructions
up to addresses and padding. With g++ 12 and clang 19 a difference is a failure; with other versions it is printed.
"""

import argparse
import difflib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ASSERTED = {"gcc": 12, "clang": 19}
LEVELS = ["-O1", "-O2", "-O3"]
# One section for each function, so that the padding inside of it does not depend on its neighbours.
FLAGS = ["-std=c++20", "-DNDEBUG", "-ffunction-sections", "-fno-jump-tables", "-fcf-protection=none", "-fno-stack-protector",
         "-fno-asynchronous-unwind-tables", "-fno-ident"]

SYMBOL = re.compile(r"^[0-9a-f]+ <(.+)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S.*)$")
RELOCATION = re.compile(r"^\s*[0-9a-f]+:\s+(R_\S+)\s+(\S+)$")
PADDING = re.compile(r"^((data16|cs|es|ds) )*(nop[wl]?\b.*|xchg\s+%ax,%ax)$")
TARGET = re.compile(r"\b([0-9a-f]+) <([^>+]+)(\+0x[0-9a-f]+)?>")


def disassemble(object_file: pathlib.Path) -> dict[str, list[str]]:
    """The normalised instructions of every function."""
    text = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", str(object_file)], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    functions: dict[str, list[list[str]]] = {}
    rows: list[list[str]] = []
    for line in text.splitlines():
        if match := SYMBOL.match(line):
            rows = functions.setdefault(match[1], [])
        elif match := RELOCATION.match(line):
            if rows:
                rows[-1].append(f"{match[1]} {match[2]}")
        elif match := INSTRUCTION.match(line):
            rows.append([match[1], re.sub(r"\s+", " ", match[2].split("#")[0]).strip()])
    return {name: normalise(name, rows) for name, rows in functions.items()}


def normalise(name: str, rows: list[list[str]]) -> list[str]:
    pair = re.sub(r"^(hand|stretto)_|\.cold$", "", name)
    kept, index_of = [], {}
    for row in rows:
        index_of[row[0]] = len(kept)
        if not PADDING.match(row[1]):
            kept.append(row)
    constants: dict[str, str] = {}

    def target(match: re.Match) -> str:
        if match[2] == name and match[1] in index_of:
            return f"instruction {index_of[match[1]]}"
        return "<" + re.sub(rf"^(hand|stretto)_{re.escape(pair)}\b", "SELF", match[2]) + ">"

    def relocation(text: str) -> str:
        text = re.sub(rf"\b(hand|stretto)_{re.escape(pair)}\b", "SELF", text)
        # The place of a constant among all constants says nothing; that two uses share it does.
        return re.sub(r"\.(rodata|LC)\S*", lambda m: constants.setdefault(m[0], f"CONSTANT{len(constants)}"), text)

    lines = []
    for row in kept:
        has_relocation = len(row) > 2
        # With a relocation the operand is a placeholder that the relocation replaces.
        instruction = re.sub(r" [0-9a-f]+ <.*>$", "", row[1]) if has_relocation else TARGET.sub(target, row[1])
        lines.append("; ".join([instruction, *map(relocation, row[2:])]))
    return lines


def identify(compiler: list[str]) -> tuple[str, int]:
    """The kind and the major version, from the compiler's own macros."""
    macros = subprocess.run([*compiler, "-dM", "-E", "-x", "c++", "/dev/null"], check=True, text=True,
                            stdout=subprocess.PIPE).stdout
    defined = dict(re.findall(r"^#define (\S+) (.*)$", macros, re.MULTILINE))
    if "__clang_major__" in defined:
        return "clang", int(defined["__clang_major__"])
    return "gcc", int(defined["__GNUC__"])


def main() -> int:
    split = sys.argv.index("--")
    compiler = sys.argv[split + 1:]
    arguments = argparse.ArgumentParser()
    arguments.add_argument("file", type=pathlib.Path)
    arguments.add_argument("--include", required=True)
    arguments.add_argument("--must-differ", nargs="*", default=[])
    options = arguments.parse_args(sys.argv[1:split])
    if not shutil.which("objdump"):
        print("skipped: needs objdump")
        return 77

    kind, version = identify(compiler)
    asserted = ASSERTED.get(kind) == version
    failed = 0
    for level in LEVELS:
        with tempfile.TemporaryDirectory() as scratch:
            object_file = pathlib.Path(scratch) / "out.o"
            subprocess.run([*compiler, *FLAGS, level, f"-I{options.include}", "-c", str(options.file), "-o", str(object_file)],
                           check=True)
            functions = disassemble(object_file)
        names = sorted(n.removeprefix("hand_") for n in functions if n.startswith("hand_"))
        others = sorted(n.removeprefix("stretto_") for n in functions if n.startswith("stretto_"))
        if names != others or not names:
            sys.exit(f"{options.file} must define pairs hand_NAME, stretto_NAME; found {names} and {others}")
        for name in names:
            hand, ours = functions[f"hand_{name}"], functions[f"stretto_{name}"]
            same, wanted = hand == ours, name not in options.must_differ
            print(f"{kind} {version} {level} {name}: {'identical' if same else 'different'}, {len(hand)} and {len(ours)} instructions")
            if same != wanted:
                failed += 1
                print("\n".join(difflib.unified_diff(hand, ours, "by hand", "stretto", lineterm="", n=2)))
    if not asserted:
        print(f"skipped: {kind} {version} is printed only, g++ 12 and clang 19 are asserted")
        return 77
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
