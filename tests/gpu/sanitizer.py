"""sanitizer.py BUILD: the GPU tests of a build folder under compute-sanitizer, as a table; exit 1 if anything was found or did not end, or if
initcheck does not see what it must.

Errors of API calls are not counted: tests make some on purpose. Left out are cases in which ranks are killed and those that leave waits out on
purpose; with STRETTO_UNDER_A_TOOL some cases take fewer sizes or steps. initcheck does not see what kernels write by copies that a tensor map describes, as those of cuBLAS and cuDNN for
Hopper do; a program shows that first, and what these libraries write is told to initcheck by modules that are loaded before the tests. Nor does it
see what another process writes, and it looks at the copies of a graph before the graph has run: there it does not look at copies.
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

POLICIES, THREADS = "train_moe_cuda_policies", "train_moe_cuda_threads"
# Program and cases, those that take long first. Without "two" it sees one of the GPUs.
RUNS = [
    (THREADS, ["stages of a pipeline that are threads*"], "two"),
    (POLICIES, ["late ops and memory that is written over as soon*"], ""),
    (THREADS, ["every transport*"], "two"),
    (POLICIES, ["a captured step*"], ""),
    (POLICIES, ["the same with experts*"], ""),
    (POLICIES, ["choices without a slot*"], ""),
    (POLICIES, ["with slots*"], ""),
    (POLICIES, ["on a GPU every policy*"], ""),
    (POLICIES, ["late ops and memory that is written over change*,runs in several threads*,a GPU learns*"], ""),
    (THREADS, ["*joined by NCCL*"], "two"),
    ("c10d_rows", [], "two"),
    ("nccl_rows", ["~when one of*"], "two"),
    ("cuda_staged_exchange", ["replays*"], "two"),
    ("cuda_peer_exchange", ["replays*"], "two"),
    ("cublas", ["the products of experts are right*"], ""),
    ("cublas", ["~the products of experts are right*"], ""),
    ("table_memory", [], ""),
    ("cuda_staged_exchange", ["~replays*"], "two"),
    ("cuda_peer_exchange", ["~replays*"], "two"),
    ("cuda_process_exchange", [], "two"),
    ("cuda_process_peers", [], "two"),
    ("nccl_peers", [], "two"),
    ("train_moe_cuda_kernels", [], ""),
    ("expert_products", [], ""),
    ("cuda_peers", [], "two"),
    ("cuda_step_graph", [], ""),
    ("cuda_lanes", [], ""),
    ("cuda_flags", [], ""),
]
# These show that a missing wait is seen, by reading what is not there yet.
TOO_EARLY = {"cuda_lanes": ["~device copies*"]}
# Under initcheck copies are not looked at: in graphs they are looked at too early, and other processes write what is copied.
COPIES_UNSEEN = {"a captured step*", "choices without a slot*", "late ops and memory that is written over change*,runs in several threads*,a GPU learns*",
                 "cuda_process_peers"}
# Cases of initcheck_sees.
SEES = ["nothing", "plain", "bulk", "tensor", "tensor_told", "tensor_half_told", "cublas_bf16", "cublas_bf16_told", "cublas_bf16_to_f32", "cublas_bf16_odd",
        "cublas_f32", "cublas_f64", "graph_kernel", "graph_kernel_copy", "graph_late_copy", "graph_lanes_copy", "graph_memset", "graph_memset_copy", "graph_tensor", "graph_tensor_copy"]
# Memory that nobody writes, or of which nobody tells all, and what is written plainly or told.
MUST_BE_REPORTED, MUST_NOT = ("nothing", "tensor_half_told"), ("plain", "tensor_told", "cublas_bf16_told", "graph_kernel", "graph_memset")
FOUND = re.compile(r"ERROR SUMMARY: (\d+) errors?$", re.M)
TESTS = re.compile(r"All tests passed \([^)]*\)|test cases:[^\n]*|No tests ran")
ENDED_CASE = re.compile(r"^\d+\.\d+ s: ", re.M)


def command_of(sanitizer: str, tool: str, number: int, *options: str) -> list:
    # Each with ports of its own: ten in common are too few for runs of several processes at once.
    return [sanitizer, "--tool", tool, "--target-processes", "all", "--port", str(50000 + 64 * number), "--max-connections", "64", *options]


def run(sanitizer: str, tool: str, number: int, one: tuple, given: argparse.Namespace, ends: float, gpus: "queue.Queue[int]") -> dict:
    program, arguments, which = one
    if tool == "initcheck" and not arguments:
        arguments = TOO_EARLY.get(program, [])
    gpu = gpus.get()
    limit = min(given.limit, ends - time.monotonic())
    environment = dict(os.environ, CUDA_DEVICE_MAX_CONNECTIONS="32", STRETTO_UNDER_A_TOOL="1")
    # Ranks of NCCL want a GPU each where there are several.
    if not which or given.one_each and not {"nccl", "c10d"} & set(program.split("_")):
        environment.update(CUDA_VISIBLE_DEVICES=str(gpu), STRETTO_GPUS="1")
    options = ["--report-api-errors", "no"]
    if tool == "initcheck":
        # The module for attention has that for products in it.
        module = given.build / "tests" / "gpu" / f"written_by_{'attention' if program == 'train_moe_cuda_kernels' else 'products'}.so"
        options += ["--preload-library", str(module.resolve())] if module.exists() else []
        options += ["--check-api-memory-access", "no"] if {program, *arguments} & COPIES_UNSEEN else []
    command = [*command_of(sanitizer, tool, number, *options), given.build / "tests" / ("test_" + program), "-d", "yes", *arguments]
    log = given.logs / f"{tool}.{number}.{program}.log"
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
    ended = ", ".join(TESTS.findall(said)) if code is not None else f"not at its end: {len(ENDED_CASE.findall(said))} cases ended"
    return dict(program=program, cases=" ".join(arguments) or "all", tool=tool, seconds=time.monotonic() - start, code=code, number=number,
                errors=sum(map(int, FOUND.findall(said))), ended=ended or f"exit {code}", log=log)


def what_it_sees(sanitizer: str, number: int, case: str, given: argparse.Namespace) -> tuple[str, bool]:
    """A row of the table, and whether it may be so."""
    program = given.build / "tests" / "gpu" / "initcheck_sees"
    if not program.exists():
        return f"| `{case}` | not built | |", True
    try:
        told = subprocess.run([*command_of(sanitizer, "initcheck", number), "--print-limit", "1", program, case], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=given.limit)
    except subprocess.TimeoutExpired:
        return f"| `{case}` | not at its end | |", False
    found, wrong = FOUND.search(told.stdout), re.search(r"(\d+) of the numbers wrong", told.stdout)
    reads = int(found[1]) if found else None
    row = f"| `{case}` | {'-' if reads is None else reads} | {wrong[1] if wrong else f'exit {told.returncode}'} |"
    return row, reads is not None and (reads > 0 if case in MUST_BE_REPORTED else reads == 0 or case not in MUST_NOT)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build", type=pathlib.Path)
    arguments.add_argument("--tools", default="memcheck,initcheck")
    arguments.add_argument("--only", default="", help="programs, by commas")
    arguments.add_argument("--gpus", type=int, default=2)
    arguments.add_argument("--at-once", type=int, default=8)
    arguments.add_argument("--one-each", action="store_true", help="ranks of a run share a GPU, except over NCCL")
    arguments.add_argument("--shortest-first", action="store_true")
    arguments.add_argument("--limit", type=float, default=300, metavar="SECONDS", help="for one run")
    arguments.add_argument("--limit-of-all", type=float, default=3600, metavar="SECONDS")
    arguments.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("sanitizer"))
    given = arguments.parse_args()
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(sanitizer):
        sys.exit("no compute-sanitizer in PATH or /usr/local/cuda/bin")
    given.logs.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + given.limit_of_all
    only = set(filter(None, given.only.split(",")))
    runs = [one for one in RUNS if not only or one[0] in only]
    if given.shortest_first:
        runs.reverse()
    gpus: "queue.Queue[int]" = queue.Queue()
    for number in itertools.islice(itertools.cycle(range(given.gpus)), given.at_once):
        gpus.put(number)
    with concurrent.futures.ThreadPoolExecutor(given.at_once) as pool:
        seen = pool.map(lambda case: what_it_sees(sanitizer, 100 + SEES.index(case), case, given), SEES if "initcheck" in given.tools else [])
        waits = [pool.submit(run, sanitizer, tool, number, one, given, ends, gpus)
                 for number, (one, tool) in enumerate(itertools.product(runs, given.tools.split(",")))]
        all_found = [wait.result() for wait in waits]
    print("| what wrote the memory that is read | reads that initcheck reports | wrong numbers |\n| --- | --- | --- |")
    seen = list(seen)
    print("\n".join(row for row, _ in seen) + "\n")
    print("| program | cases | tool | errors | tests | s |\n| --- | --- | --- | --- | --- | --- |")
    for found in all_found:
        print(f"| `{found['program']}` | {found['cases']} | {found['tool']} | {found['errors']} | {found['ended']} | {found['seconds']:.0f} |")
    bad = [found for found in all_found if found["errors"] or found["code"] not in (0, 4)]
    for found in bad:
        print(f"see {found['log']}: exit {found['code']}, {found['errors']} errors", file=sys.stderr)
    for row, is_right in seen:
        if not is_right:
            print(f"initcheck does not see what it must, or more: {row}", file=sys.stderr)
    sys.exit(bool(bad) or not all(is_right for _, is_right in seen))


if __name__ == "__main__":
    main()
