"""sanitizer.py BUILD: the GPU tests of a build folder under compute-sanitizer, as a table; exit 1 if anything was found.

Errors of API calls are not counted: tests make some on purpose. Left out are cases that take minutes under the tool, those
in which ranks are killed, and, under initcheck, those that read memory too early in order to be caught at it. What the kernels
of cuBLAS are said to read before it was written is counted apart: initcheck does not see all that they write to workspaces.
"""

import argparse
import concurrent.futures
import itertools
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import time

# Program and arguments, those that take long first. Without "two" it sees one of the GPUs.
RUNS = [
    ("train_moe_cuda_threads", ["every transport*"], "two"),
    ("train_moe_cuda_policies", ["with slots*"], ""),
    ("train_moe_cuda_policies", ["a GPU learns*,late ops and memory that is written over change no bit of a captured*"], ""),
    ("train_moe_cuda_kernels", [], ""),
    ("table_memory", ["~a thousand*"], ""),
    ("expert_products", [], ""),
    ("cublas", [], ""),
    ("cuda_peer_exchange", ["~*random delays*"], "two"),
    ("cuda_staged_exchange", [], "two"),
    ("cuda_process_exchange", [], "two"),
    ("cuda_process_peers", [], "two"),
    ("cuda_peers", [], "two"),
    ("cuda_step_graph", [], ""),
    ("cuda_lanes", [], ""),
    ("cuda_flags", [], ""),
    ("c10d_rows", [], "two"),
    ("nccl_rows", ["NCCL brings*"], "two"),
    ("nccl_peers", [], "two"),
]
# These show that a missing wait is seen, by reading what is not there yet.
TOO_EARLY = {"cuda_lanes": ["~device copies*"]}
FOUND = re.compile(r"ERROR SUMMARY: (\d+) error")
# Each with the kernel that it is in, if one.
ERROR = re.compile(r"^=+ (?:Invalid|Uninitialized|Host API|Misaligned|Out-of-bounds|Program hit)[^\n]*(?:\n=+ +at (?P<kernel>[^\n]*))?", re.M)
OF_CUBLAS = re.compile(r"cublas|cutlass|nvjet|gemm", re.I)
TESTS = re.compile(r"All tests passed \([^)]*\)|test cases:[^\n]*|No tests ran")


def run(sanitizer: str, tool: str, build: pathlib.Path, one: tuple, limit: float, ends: float, gpus: "queue.Queue[int]", log: pathlib.Path) -> dict:
    program, arguments, which = one
    if tool == "initcheck" and not arguments:
        arguments = TOO_EARLY.get(program, [])
    gpu = gpus.get()
    limit = min(limit, ends - time.monotonic())
    environment = dict(os.environ, CUDA_DEVICE_MAX_CONNECTIONS="32", **({} if which else {"CUDA_VISIBLE_DEVICES": str(gpu)}))
    command = [sanitizer, "--tool", tool, "--target-processes", "all", "--report-api-errors", "no", "--print-limit", "20000", build / "tests" / ("test_" + program),
               *arguments]
    start = time.monotonic()
    with open(log, "w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        try:
            code = process.wait(timeout=max(limit, 0))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
    gpus.put(gpu)
    said = log.read_text(errors="replace")
    found = [match["kernel"] or "" for match in ERROR.finditer(said)]
    of_cublas = sum(bool(OF_CUBLAS.search(kernel)) for kernel in found) if tool == "initcheck" else 0
    # More than are printed one by one.
    all_of_them = max(len(found), sum(int(n) for n in FOUND.findall(said)))
    return dict(program=program, cases=" ".join(arguments) or "all", tool=tool, seconds=time.monotonic() - start, code=code,
                errors=all_of_them - of_cublas, of_cublas=of_cublas, tests=", ".join(TESTS.findall(said)), log=log)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build", type=pathlib.Path)
    arguments.add_argument("--tools", default="memcheck,initcheck")
    arguments.add_argument("--only", default="", help="programs, by commas")
    arguments.add_argument("--gpus", type=int, default=2)
    arguments.add_argument("--at-once", type=int, default=8)
    arguments.add_argument("--limit", type=float, default=120, metavar="SECONDS", help="for one program")
    arguments.add_argument("--limit-of-all", type=float, default=3600, metavar="SECONDS")
    arguments.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("sanitizer"))
    given = arguments.parse_args()
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(sanitizer):
        sys.exit("no compute-sanitizer in PATH or /usr/local/cuda/bin")
    given.logs.mkdir(parents=True, exist_ok=True)
    only = set(filter(None, given.only.split(",")))
    runs = [one for one in RUNS if not only or one[0] in only]
    gpus: "queue.Queue[int]" = queue.Queue()
    for number in itertools.islice(itertools.cycle(range(given.gpus)), given.at_once):
        gpus.put(number)
    ends = time.monotonic() + given.limit_of_all
    with concurrent.futures.ThreadPoolExecutor(given.at_once) as pool:
        waits = [pool.submit(run, sanitizer, tool, given.build, one, given.limit, ends, gpus, given.logs / f"{tool}.{i}.{one[0]}.log")
                 for i, one in enumerate(runs) for tool in given.tools.split(",")]
        all_found = [wait.result() for wait in waits]
    print("| program | cases | tool | errors | in cuBLAS | tests | s |\n| --- | --- | --- | --- | --- | --- | --- |")
    for found in all_found:
        ended = found["tests"] if found["code"] is not None else "not at its end"
        print(f"| `{found['program']}` | {found['cases']} | {found['tool']} | {found['errors']} | {found['of_cublas']} | {ended or 'exit ' + str(found['code'])} | {found['seconds']:.0f} |")
    bad = [found for found in all_found if found["errors"] or found["code"] != 0]
    for found in bad:
        print(f"see {found['log']}: exit {found['code']}, {found['errors']} errors", file=sys.stderr)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
