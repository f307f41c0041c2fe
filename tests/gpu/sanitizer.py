"""sanitizer.py BUILD: the GPU tests of a build folder under compute-sanitizer, as a table of which each row is printed when its run has ended;
exit 1 if anything was found or did not end, or if initcheck does not see what it must.

What has ended is not run again: a second call with the same --logs goes on where the time of the first was over. Delete a log to run it again.

Errors of API calls are not counted: tests make some on purpose. Left out are cases in which ranks are killed and those that leave waits out on
purpose; with STRETTO_UNDER_A_TOOL a case takes each of its ways to copy or compute once. initcheck does not see what kernels write by copies that a tensor map
describes, as those of cuBLAS and cuDNN for Hopper do; initcheck_sees shows that, and tools_take what else the tools make of what is right. What these libraries write is told to initcheck by modules that are loaded
before the tests. Nor does it see what another process writes, and it looks at the copies of a graph before the graph has run: there it does not look at copies,
and is told what those of graphs write.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "gpu"))
from arguments import Parser, above_0, at_least, existing, list_of, one_of, refused

POLICIES, THREADS = "train_moe_cuda_policies", "train_moe_cuda_threads"
# Program, cases and GPUs that it sees, those that take long first. Only what takes minutes is cut into parts, since each loads torch or NCCL anew.
RUNS = [
    ("cuda_process_exchange", "", 2),
    ("cuda_process_peers", "", 2),
    (POLICIES, "the same with experts*", 1),
    (POLICIES, "the same with one choice*", 1),
    (THREADS, "stages of a pipeline that are threads*", 2),
    (POLICIES, "on a GPU every policy*,with slots*", 1),
    (POLICIES, "a captured step*", 1),
    (POLICIES, "late ops and memory that is written over change*,runs in several threads*,choices without a slot*", 1),
    (POLICIES, "late ops and memory that is written over as soon*,a GPU learns*", 1),
    (THREADS, "every transport*,of ranks that keep*", 2),
    ("cublas", "~the products of experts are right*", 1),
    ("cublas", "the products of experts are right*", 1),
    ("cuda_peer_exchange", "", 2),
    ("cuda_staged_exchange", "", 2),
    ("table_memory", "", 1),
    ("cuda_step_graph", "", 1),
    ("cuda_peers", "", 2),
    ("train_moe_cuda_kernels", "", 1),
    ("expert_products", "", 1),
    ("cuda_lanes", "", 1),
    ("cuda_flags", "", 1),
]
# First with memcheck, since each process loads all kernels of NCCL, for half a minute and more.
RUNS_OF_NCCL = [
    ("c10d_rows", "", 2),
    (THREADS, "threads with a GPU each*", 2),
    (THREADS, "stages with a GPU each*", 2),
    ("nccl_rows", "the smallest budget*", 2),
    ("nccl_rows", "NCCL brings rows*,what NCCL cannot serve*", 2),
    ("nccl_rows", "a captured call*", 2),
    ("nccl_rows", "the watchdog*,a rank that does not come*", 2),
    ("nccl_peers", "nccl::peers keeps*", 2),
    ("nccl_peers", "rows and messages*", 2),
]
# Of whole programs, cases that initcheck cannot take: they show that a missing wait is seen, by reading what is not there yet.
TOO_EARLY = {"cuda_lanes": "~device copies*"}
# Not under initcheck: there a call may wait for what its stream had to do before, and in the first that needs what the rank would issue next;
# in the others, threads of one process, it takes buffers of NCCL's own for not written that the other GPU writes.
NOT_INITCHECK = {"rows and messages*", "threads with a GPU each*", "stages with a GPU each*"}
# With two GPUs initcheck itself fails in these ("failed to handle a hardware exception"), and with one it does not.
ON_ONE_GPU = {"cuda_peer_exchange", "cuda_peers"}
# Under initcheck copies are not looked at: in graphs they are looked at too early, and other processes write what is copied.
COPIES_UNSEEN = {"a captured step*", "late ops and memory that is written over change*,runs in several threads*,choices without a slot*",
                 "cuda_process_peers"}
# In a graph NCCL registers the buffers of its calls, and its kernels then write those of another process, which memcheck takes for out of bounds.
OF_NCCL = {"NCCL_GRAPH_REGISTER": "0"}
# Cases of initcheck_sees: memory that nobody writes, or of which nobody tells all, what is written plainly or told, and the others. Behind a blank:
# copies are not looked at, and those of graphs are told.
SEES, UNSEEN, TOLD = "initcheck_sees", "unseen", "told"
MUST_BE_REPORTED = ("nothing", "tensor_half_told")
MUST_NOT = ("plain", "plain_copy", "from_host", "tensor_told", "cublas_bf16_told", "graph_kernel", "graph_memset", "graph_from_host told",
            "graph_kernel_copy told", "graph_late_copy told")
OTHERS = ("bulk", "tensor", "cublas_bf16", "cublas_bf16_to_f32", "cublas_bf16_odd", "cublas_f32", "cublas_f64", "graph_kernel_copy", "graph_late_copy",
          "graph_lanes_copy", "graph_memset_copy", "graph_tensor", "graph_tensor_copy", "graph_from_host", "plain_copy unseen", "from_host unseen", "graph_from_host unseen",
          "graph_kernel_copy unseen", "graph_late_copy unseen")
# Cases of tools_take and the GPUs that they see. All are right, so that what is said of them is the tool's.
TAKES = "tools_take"
TAKEN = [("gate", 1), *((case, 2) for case in ("peer_kernel_reads", "peer_kernel_writes", "peer_copy", "peer_copy_then_free", "process_writes",
                                               "process_graph_writes"))]
SUMMARY = re.compile(r"^=+ ERROR SUMMARY: (\d+) errors?$", re.M)
# Printed at once, by ranks that are processes too; a run that is cut has no summary.
FOUND = re.compile(r"^=+ (?:Invalid|Uninitialized|Misaligned|Out-of-range|Host API memory access error)", re.M)
TESTS = re.compile(r"All tests passed \([^)]*\)|test cases:[^\n]*|No tests ran|\d+ of the numbers wrong|issued behind [^\n]*|Internal Sanitizer Error[^\n]*")
ENDED_CASE = re.compile(r"^\d+\.\d+ s: ", re.M)
# The last line of a log, if its run came to an end by itself.
END = re.compile(r"^ended: exit (-?\d+) after (\d+) s$", re.M)


class Run(NamedTuple):
    program: str
    cases: str
    gpus: int
    tool: str

    def log(self) -> str:
        name = f"{self.program} {self.cases}".lower().replace("~", "not ")
        return re.sub(r"[^a-z0-9]+", "_", name).strip("_") + f".{self.tool}.log"

    def copies_unseen(self) -> bool:
        if self.program == SEES:
            return self.cases.endswith((" " + UNSEEN, " " + TOLD))
        return self.tool == "initcheck" and bool({self.program, self.cases} & COPIES_UNSEEN)

    def environment(self) -> dict:
        more = {"STRETTO_COPIES_UNSEEN": "1"} if self.copies_unseen() else {}
        return {"CUDA_DEVICE_MAX_CONNECTIONS": "32", "STRETTO_UNDER_A_TOOL": self.tool, **OF_NCCL, **more}

    def command(self, sanitizer: str, port: int, build: pathlib.Path) -> list:
        # Each with ports of its own: ten in common are too few for runs of several processes at once.
        start = [sanitizer, "--tool", self.tool, "--target-processes", "all", "--port", str(port), "--max-connections", "64"]
        unseen = ["--check-api-memory-access", "no"] if self.copies_unseen() else []
        # The module for attention has that for products in it.
        module = build / "tests" / "gpu" / f"written_by_{'attention' if self.program == 'train_moe_cuda_kernels' else 'products'}.so"
        told = ["--preload-library", str(module.resolve())] if module.exists() else []
        if self.program in (SEES, TAKES):
            case, *how = self.cases.split()
            return [*start, *unseen, *(told if TOLD in how else []), "--print-limit", "1", build / "tests" / "gpu" / self.program, case]
        options, cases = ["--report-api-errors", "no"], self.cases
        if self.tool == "initcheck":
            options += [*told, *unseen]
            cases = cases or TOO_EARLY.get(self.program, "")
        return [*start, *options, build / "tests" / f"test_{self.program}", "-d", "yes", *filter(None, [cases])]


class Found:
    """What a log says."""

    def __init__(self, run: Run, log: pathlib.Path):
        self.run, said = run, log.read_text(errors="replace") if log.exists() else ""
        end, summaries = END.search(said), SUMMARY.findall(said)
        self.ended, self.code, self.seconds = bool(end), int(end[1]) if end else None, end[2] if end else "-"
        self.errors = max(sum(map(int, summaries)), len(FOUND.findall(said)))
        if not end:
            self.tests = f"not at its end: {len(ENDED_CASE.findall(said))} cases ended" if said else "not started"
        else:
            self.tests = ", ".join(TESTS.findall(said)) or f"exit {self.code}"
            if not summaries:
                self.tests += ", no summary of the tool"
        if run.program == SEES:
            is_right = self.errors > 0 if run.cases in MUST_BE_REPORTED else self.errors == 0 or run.cases not in MUST_NOT
        elif run.program == TAKES:
            is_right = True
        else:
            is_right = self.code in (0, 4) and self.errors == 0
        self.is_sound = self.ended and bool(summaries) and is_right

    def row(self) -> str:
        tests = self.tests.replace(" | ", ", ")
        return f"| `{self.run.program}` | `{self.run.cases or '*'}` | {self.run.tool} | {self.errors} | {tests} | {self.seconds} |"


class Runner:
    def __init__(self, sanitizer: str, given: argparse.Namespace):
        self.sanitizer, self.given, self.ends = sanitizer, given, time.monotonic() + given.seconds
        self.lock, self.on_gpu, self.running = threading.Lock(), [0] * given.gpus, set()

    def __call__(self, run: Run, port: int) -> Found:
        log = self.given.logs / run.log()
        limit = min(self.given.limit, self.ends - time.monotonic(), 120 if run.program in (SEES, TAKES) else self.given.limit)
        if limit > 0:
            with self.lock:
                gpus = range(self.given.gpus) if run.gpus > 1 else [min(range(self.given.gpus), key=self.on_gpu.__getitem__)]
                for gpu in gpus:
                    self.on_gpu[gpu] += 1
            self.start(run, log, port, limit, gpus)
            with self.lock:
                for gpu in gpus:
                    self.on_gpu[gpu] -= 1
        found = Found(run, log)
        with self.lock:
            print(found.row(), flush=True)
        return found

    def start(self, run: Run, log: pathlib.Path, port: int, limit: float, gpus: list) -> None:
        environment = dict(os.environ, **run.environment())
        if run.gpus == 1:
            environment.update(CUDA_VISIBLE_DEVICES=str(gpus[0]), STRETTO_GPUS="1")
        start = time.monotonic()
        with open(log, "w") as out:
            process = subprocess.Popen(run.command(self.sanitizer, port, self.given.build), stdout=out, stderr=subprocess.STDOUT, env=environment,
                                       start_new_session=True)
            self.running.add(process.pid)
            try:
                code = process.wait(timeout=limit)
                with open(log, "a") as end:
                    end.write(f"\nended: exit {code} after {time.monotonic() - start:.0f} s\n")
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self.running.discard(process.pid)

    def stop(self, *_) -> None:
        for group in list(self.running):
            os.killpg(group, signal.SIGKILL)
        os._exit(1)


def all_runs(only: set, gpus: int = 2) -> list:
    tools = ("memcheck", "initcheck")
    nccl = [Run(*one, tool) for tool in tools for one in RUNS_OF_NCCL if tool == "memcheck" or one[1] not in NOT_INITCHECK]
    tests = [Run(program, cases, 1 if tool == "initcheck" and program in ON_ONE_GPU else wants, tool) for program, cases, wants in RUNS for tool in tools]
    sees = [Run(SEES, case, 1, "initcheck") for case in (*MUST_BE_REPORTED, *MUST_NOT, *OTHERS)]
    takes = [Run(TAKES, *one, tool) for one in TAKEN for tool in tools if one[1] <= gpus]
    # initcheck's with NCCL last: what the tool makes of another GPU's memory may end them at once.
    runs = [run for run in nccl if run.tool == "memcheck"] + tests + sees + takes + [run for run in nccl if run.tool == "initcheck"]
    return [run for run in runs if not only or run.program in only]


def build_folder(text: str) -> pathlib.Path:
    if not pathlib.Path(existing(text), "tests").is_dir():
        raise refused(f"{text} has no tests; name a build folder")
    return pathlib.Path(text)


def main() -> None:
    arguments = Parser(__doc__)
    arguments.add_argument("build", type=build_folder)
    programs = sorted({run.program for run in all_runs(set())})
    arguments.add_argument("--only", type=list_of(one_of(programs)), default="", help="programs, by commas")
    arguments.add_argument("--gpus", type=at_least(1), default=2)
    arguments.add_argument("--at-once", type=at_least(1), default=8, help="runs; beside 13 others one found no memory on two GPUs of 140 GB")
    arguments.add_argument("--limit", type=above_0, default=300, metavar="SECONDS", help="for one run")
    arguments.add_argument("--seconds", type=above_0, default=3600, help="for all")
    arguments.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("sanitizer"))
    given = arguments.parse_args()
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(sanitizer):
        arguments.error("there is no compute-sanitizer in PATH or /usr/local/cuda/bin; install it with the CUDA toolkit")
    try:
        given.logs.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        arguments.error(f"argument --logs: {given.logs} cannot be a folder: {problem.strerror}")
    runs = all_runs(set(given.only), given.gpus)
    before = [Found(run, given.logs / run.log()) for run in runs]
    print("| program | cases | tool | errors | tests | s |\n| --- | --- | --- | --- | --- | --- |")
    found = [each for each in before if each.is_sound]
    for each in found:
        print(each.row(), flush=True)
    runner = Runner(sanitizer, given)
    signal.signal(signal.SIGTERM, runner.stop)
    signal.signal(signal.SIGINT, runner.stop)
    # What ended and was not as it should be comes last.
    todo = sorted(((each.ended, place) for place, each in enumerate(before) if not each.is_sound))
    with concurrent.futures.ThreadPoolExecutor(given.at_once) as pool:
        found += pool.map(lambda place: runner(runs[place], 50000 + 64 * place), [place for _, place in todo])
    bad = [each for each in found if not each.is_sound]
    for each in bad:
        print(f"see {given.logs / each.run.log()}: {each.tests}, {each.errors} errors", file=sys.stderr)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
