"""sanitizer.py BUILD: the GPU tests of a build folder under compute-sanitizer, as a table; exit 1 if anything was found.

Errors of API calls are not counted: tests make some on purpose. Left out are cases that take minutes under the tool, those
in which ranks are killed, and, under initcheck, those that read memory too early in order to be caught at it.
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

# Program and arguments, the longest first. Without "two" it sees one of the GPUs.
RUNS = [
    ("train_moe_cuda_threads", ["every transport*"], "two"),
    ("train_moe_cuda_policies", ["with slots*"], ""),
    ("nccl_peers", [], "two"),
    ("nccl_rows", ["NCCL brings*"], "two"),
    ("train_moe_cuda_policies", ["late ops*"], ""),
    ("train_moe_cuda_policies", ["a captured*", "-c", "two ranks"], ""),
    ("train_moe_cuda_policies", ["the same with*", "-c", "one expert a rank"], ""),
    ("train_moe_cuda_policies", ["a GPU learns*,choices without*,runs in several*"], ""),
    ("cuda_staged_exchange", ["*random delays*"], "two"),
    ("cuda_staged_exchange", ["~*random delays*"], "two"),
    ("cuda_peer_exchange", ["~*random delays*"], "two"),
    ("cuda_process_exchange", [], "two"),
    ("nccl_rows", ["a captured*,the watchdog*"], "two"),
    ("c10d_rows", [], "two"),
    ("table_memory", ["~a thousand*"], ""),
    ("cuda_peers", [], "two"),
    ("cublas", [], ""),
    ("expert_products", [], ""),
    ("cuda_step_graph", [], ""),
    ("cuda_lanes", [], ""),
    ("cuda_flags", [], ""),
]
# These show that a missing wait is seen, by reading what is not there yet.
TOO_EARLY = {"cuda_lanes": ["~device copies*"]}
FOUND = re.compile(r"ERROR SUMMARY: (\d+) error")
ERROR = re.compile(r"^=+ (Invalid|Uninitialized|Host API|Misaligned|Out-of-bounds|Program hit)", re.M)
TESTS = re.compile(r"All tests passed \([^)]*\)|test cases:[^\n]*|No tests ran")


def run(sanitizer: str, tool: str, build: pathlib.Path, one: tuple, limit: float, ends: float, gpus: "queue.Queue[int]", log: pathlib.Path) -> dict:
    program, arguments, which = one
    if tool == "initcheck" and not arguments:
        arguments = TOO_EARLY.get(program, [])
    gpu = gpus.get()
    limit = min(limit, ends - time.monotonic())
    environment = dict(os.environ, CUDA_DEVICE_MAX_CONNECTIONS="32", **({} if which else {"CUDA_VISIBLE_DEVICES": str(gpu)}))
    command = [sanitizer, "--tool", tool, "--target-processes", "all", "--report-api-errors", "no", "--error-exitcode", "9", build / "tests" / ("test_" + program),
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
    summaries = [int(n) for n in FOUND.findall(said)]
    return dict(program=program, cases=" ".join(arguments) or "all", tool=tool, seconds=time.monotonic() - start, code=code,
                errors=sum(summaries) if summaries and code is not None else len(ERROR.findall(said)), tests=", ".join(TESTS.findall(said)), log=log)


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
    print("| program | cases | tool | errors | tests | s |\n| --- | --- | --- | --- | --- | --- |")
    for found in all_found:
        ended = found["tests"] if found["code"] is not None else "not at its end"
        print(f"| `{found['program']}` | {found['cases']} | {found['tool']} | {found['errors']} | {ended or 'exit ' + str(found['code'])} | {found['seconds']:.0f} |")
    bad = [found for found in all_found if found["errors"] or found["code"] != 0]
    for found in bad:
        print(f"see {found['log']}: exit {found['code']}, {found['errors']} errors", file=sys.stderr)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
