"""Whether sanitizer.py has every case of every GPU test, and what it does with runs that end, are cut or find something, over a compute-sanitizer
that is none."""

import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from sanitizer import RUNS, RUNS_OF_NCCL, SEES, Run, all_runs

SCRIPT = pathlib.Path(__file__).parent / "sanitizer.py"
# Runs the program behind its options, and says what the tool says.
TOOL = """#!/bin/sh
echo "========= COMPUTE-SANITIZER"
tool=$2
for each; do case $each in */test_*) break;; esac; shift; done
echo "$tool $(basename $1)${STRETTO_GPUS:+ on one}" >> "$STAND_IN/runs"
"$@"
code=$?
[ -e "$STAND_IN/finds" ] && echo "========= Invalid __global__ read of size 4 bytes" && echo "========= ERROR SUMMARY: 1 error" && exit $code
[ -e "$STAND_IN/says_nothing" ] || echo "========= ERROR SUMMARY: 0 errors"
exit $code
"""
PASSES = """#!/bin/sh
[ -n "$STRETTO_UNDER_A_TOOL" ] || exit 9
echo "0.001 s: a case"
echo "test cases: 2 | 1 passed | 1 skipped"
"""
# Until it is told to go on.
HANGS = PASSES.replace('echo "test', '[ -e "$STAND_IN/goes_on" ] || { echo "========= Uninitialized access to 0x7f"; echo $$ >> "$STAND_IN/hang"; sleep 300; }\necho "test')


# Ranks are killed, or read on purpose what is not there yet.
LEFT_OUT = ["when one of*", "lanes that forget to wait*"]


def check_that_all_are_in() -> None:
    """Each case is in one part of its program."""
    here = SCRIPT.parent
    programs = re.findall(r"test_programs \+= \[\['(\w+)', files\('([\w.]+)'\)", (here / "meson.build").read_text())
    assert {name for name, _ in programs} == {one[0] for one in RUNS + RUNS_OF_NCCL}
    for name, file in programs:
        literals = re.findall(r'TEST_CASE\(\s*((?:"[^"]*"\s*)+)', (here / file).read_text())
        cases = ["".join(re.findall(r'"([^"]*)"', each)) for each in literals]
        assert cases, name
        parts = [one[1] for one in RUNS + RUNS_OF_NCCL if one[0] == name]
        for case in cases:
            takes = [part for part in parts
                     if not part or (not fnmatch.fnmatchcase(case, part[1:]) if part[0] == "~" else any(map(lambda each: fnmatch.fnmatchcase(case, each), part.split(","))))]
            assert len(takes) == (0 if any(fnmatch.fnmatchcase(case, each) for each in LEFT_OUT) else 1), (name, case, takes)


def check_what_is_told() -> None:
    """How runs without a look at copies differ, and that a program learns its tool."""
    with tempfile.TemporaryDirectory() as place:
        build = pathlib.Path(place)
        module = build / "tests" / "gpu" / "written_by_products.so"
        module.parent.mkdir(parents=True)
        module.touch()
        captured = "a captured step*"
        for run, copies_unseen, preloaded, case in ((Run(SEES, "graph_late_copy", 1, "initcheck"), False, False, "graph_late_copy"),
                                                    (Run(SEES, "graph_late_copy unseen", 1, "initcheck"), True, False, "graph_late_copy"),
                                                    (Run(SEES, "graph_late_copy told", 1, "initcheck"), True, True, "graph_late_copy"),
                                                    (Run("train_moe_cuda_policies", captured, 1, "initcheck"), True, True, captured),
                                                    (Run("train_moe_cuda_policies", captured, 1, "memcheck"), False, False, captured),
                                                    (Run("cublas", "", 1, "initcheck"), False, True, "yes")):
            command, environment = run.command("compute-sanitizer", 1, build), run.environment()
            told = (" ".join(map(str, command)).count("--check-api-memory-access no"), str(module.resolve()) in command, command[-1])
            assert told == (copies_unseen, preloaded, case), (run, command)
            assert ("STRETTO_COPIES_UNSEEN" in environment) == copies_unseen, (run, environment)
            assert environment["STRETTO_UNDER_A_TOOL"] == run.tool, (run, environment)
        assert len({run.log() for run in all_runs(set())}) == len(all_runs(set()))


def is_running(process: str) -> bool:
    try:
        # Empty if it has ended and nobody has asked how.
        return bool(pathlib.Path("/proc", process, "cmdline").read_bytes())
    except OSError:
        return False


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        there = pathlib.Path(place)
        (there / "build" / "tests").mkdir(parents=True)

        def program(path: pathlib.Path, text: str) -> None:
            path.write_text(text)
            path.chmod(0o755)

        program(there / "compute-sanitizer", TOOL)
        for name, text in (("cuda_flags", PASSES), ("cuda_lanes", PASSES), ("cuda_peers", HANGS)):
            program(there / "build" / "tests" / f"test_{name}", text)
        environment = dict(os.environ, PATH=f"{place}:{os.environ['PATH']}", STAND_IN=place)

        def start(only: str, *options: str) -> subprocess.Popen:
            return subprocess.Popen([sys.executable, SCRIPT, there / "build", "--only", only, "--logs", there / "logs", *options], env=environment,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def table(only: str, *options: str) -> tuple[int, dict, str]:
            running = start(only, *options)
            out, err = running.communicate(timeout=60)
            rows = [[cell.strip(" `") for cell in line.split(" | ")] for line in out.splitlines()[2:]]
            return running.returncode, {(row[0].strip("| `"), row[2]): (row[3], row[4]) for row in rows}, err

        def runs() -> list:
            told = (there / "runs").read_text().splitlines()
            (there / "runs").unlink()
            return sorted(told)

        passed = ("0", "test cases: 2, 1 passed, 1 skipped")
        both = [(name, tool) for name in ("cuda_flags", "cuda_peers") for tool in ("initcheck", "memcheck")]

        # One program ends, the other is cut by its limit; what was found before that is counted.
        code, rows, err = table("cuda_flags,cuda_peers", "--limit", "4")
        cut = ("1", "not at its end: 1 cases ended")
        assert (code, rows) == (1, dict(zip(both, [passed, passed, cut, cut]))), (code, rows)
        assert err.count("see ") == 2 and "cuda_peers.memcheck.log" in err, err
        # initcheck fails where GPUs reach each other's memory, so that it sees one.
        assert runs() == ["initcheck test_cuda_flags on one", "initcheck test_cuda_peers on one", "memcheck test_cuda_flags on one", "memcheck test_cuda_peers"]
        (there / "hang").unlink()

        # Rows come as runs end, so that who is ended meanwhile has said them; nothing that it started goes on.
        running = start("cuda_flags,cuda_peers")
        said = [running.stdout.readline() for _ in range(4)]
        assert "cuda_flags" in said[2] and "cuda_flags" in said[3], said
        hang: list = []
        for _ in range(400):
            hang = (there / "hang").read_text().split() if (there / "hang").exists() else []
            if len(hang) == 2:
                break
            time.sleep(0.05)
        running.terminate()
        assert running.wait(timeout=20) == 1
        time.sleep(0.5)
        assert len(hang) == 2 and not any(is_running(each) for each in hang), hang
        assert runs() == ["initcheck test_cuda_peers on one", "memcheck test_cuda_peers"]

        # The next call takes up what is missing, and the one after that nothing.
        (there / "goes_on").touch()
        for expected in (["initcheck test_cuda_peers on one", "memcheck test_cuda_peers"], []):
            code, rows, err = table("cuda_flags,cuda_peers")
            assert (code, rows, err) == (0, dict.fromkeys(both, passed), ""), (code, rows, err)
            assert (runs() if expected else (there / "runs").exists()) == (expected or False)

        # Without time nothing is started.
        code, rows, _ = table("cuda_lanes", "--seconds", "1e-9")
        assert (code, set(rows.values())) == (1, {("0", "not started")}), rows
        assert not (there / "runs").exists()

        # What was found, or that the tool said nothing, is no success and is run again.
        for problem, row in (("finds", ("1", passed[1])), ("says_nothing", ("0", passed[1] + ", no summary of the tool"))):
            (there / problem).touch()
            code, rows, _ = table("cuda_lanes")
            assert (code, set(rows.values())) == (1, {row}), rows
            (there / problem).unlink()
            assert len(runs()) == 2
        code, rows, _ = table("cuda_lanes")
        assert (code, set(rows.values())) == (0, {passed}), rows


check_that_all_are_in()
check_what_is_told()
main()
