"""tally.py [--failed WHAT...] [--skipped WHAT...] [--logs BUILD=TESTLOG_JSON...]

Prints what failed with its log and what was skipped with its reason, over the builds of one run; the last line counts.
"""

import argparse
import json
import pathlib
import re
import sys


def reason(output: str) -> str:
    match = re.search(r"^skipped: (.+)$", output, re.MULTILINE)
    return match[1] if match else "no reason given"


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--failed", nargs="*", default=[])
    arguments.add_argument("--skipped", nargs="*", default=[])
    arguments.add_argument("--logs", nargs="*", default=[])
    options = arguments.parse_args()

    passed, failed, skipped = 0, list(options.failed), list(options.skipped)
    for item in options.logs:
        build, path = item.split("=", 1)
        if not pathlib.Path(path).exists():
            continue
        for line in pathlib.Path(path).read_text().splitlines():
            test = json.loads(line)
            name = f"{build}: {test['name'].split(' / ')[-1]}"
            output = test.get("stdout", "") + test.get("stderr", "")
            if test["result"] == "SKIP":
                skipped.append(f"{name}: {reason(output)}")
            elif test["result"] in ("OK", "EXPECTEDFAIL"):
                passed += 1
            else:
                failed.append(f"{name}: {test['result'].lower()} after {test['duration']:.0f} s")
                print(f"\n--- {name}\n{output.rstrip()}\n")

    for line in skipped:
        print(f"skipped: {line}")
    for line in failed:
        print(f"failed: {line}")
    print(f"{passed} passed, {len(failed)} failed" + (f", {len(skipped)} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
