"""words.py SOURCE_ROOT: what no file of the repository may contain, and no program that nothing builds or runs."""

import pathlib
import re
import shutil
import subprocess
import sys

# In pieces, so that this file does not contain them either.
BANNED = {
    "a package registry's host": [
        "pypi" + r"\.org", "python" + r"hosted\.org", "deb" + r"\.debian\.org", "archive" + r"\.ubuntu\.com",
        "registry" + r"\.npmjs", "crates" + r"\.io", "proxy" + r"\.golang", "download" + r"\.pytorch", "anaconda" + r"\.org"],
    "a path of one machine": ["/" + "work/", r"\." + "library/", "/" + r"root/\.", "/" + "home/[a-z]"],
    "unfinished work": [r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b", r"\bX" + r"XX\b"],
}
BUILT = ("examples", "tests", "bench")


def files_of(root: pathlib.Path) -> list[pathlib.Path]:
    listing = None
    if shutil.which("git"):
        listing = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if listing and listing.returncode == 0 and listing.stdout:
        files = [root / name for name in listing.stdout.decode().split("\0") if name]
    else:
        files = [p for p in root.rglob("*") if not any(part.startswith((".git", "build")) for part in p.relative_to(root).parts)]
    return [p for p in files if p.is_file()]


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    faults, texts = [], {}
    for path in files_of(root):
        data = path.read_bytes()
        if b"\0" not in data:
            texts[path.relative_to(root)] = data.decode(errors="replace")

    for path, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            for what, patterns in BANNED.items():
                if re.search("|".join(patterns), line):
                    faults.append(f"{path}:{number}: {what}: {line.strip()[:100]}")

    # A test that no list names is a test that never runs.
    builds = "\n".join(text for path, text in texts.items() if path.name == "meson.build")
    for path in texts:
        if path.parts[0] in BUILT and path.suffix in (".cpp", ".cu"):
            if not re.search(rf"(?<![\w]){re.escape(path.name)}'|'{re.escape(path.stem)}'", builds):
                faults.append(f"{path}: no meson.build names it")

    for fault in faults:
        print(fault)
    print(f"{len(texts)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
