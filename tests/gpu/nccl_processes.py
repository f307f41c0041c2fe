"""nccl_processes.py TRAIN_MOE_CUDA [KILLS [faults]]: ranks that are processes joined by NCCL, with a GPU each or several on one, give the bits
of threads on one GPU, and those of ordinary steps when steps are captured; when one is killed or stopped all others end within the
deadline with one line, and no GPU memory stays taken; what cannot work is refused with one line by every rank. Skipped where there
is no GPU. With `faults` only what is killed or stopped."""

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "c10d"))
from faults import PIPELINES, fault  # noqa: E402
from launching import GPUS, LAUNCH, TINY, environment, memory_of_gpus, share, sharing, write_text  # noqa: E402

CUDA = ["--device", "cuda"]
COMMON = ["--microbatches", "4", "--deadline", "60"]
# Ranks, flags of one pipeline rank or more, policies.
GRIDS = [
    (2, ["--ep", "2"], ["autograd", "serial", "two_stream_1f1b", "split_dw"]),
    (2, ["--ep", "1", "--pp", "2", "--pipeline", "dual_pipe_v"], ["split_dw"]),
    (2, ["--ep", "1", "--pp", "2", "--pipeline", "one_f_one_b"], ["autograd", "serial"]),
    (4, ["--ep", "2", "--pp", "2", "--pipeline", "one_f_one_b_ep"], ["split_dw"]),
]


def at_once(work: Callable, items: Iterable) -> list:
    """Three at a time: most of the time of one goes into its start."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        return list(pool.map(work, items))


def run(command: list[str], **given: object) -> dict:
    with tempfile.TemporaryDirectory() as place:
        file = pathlib.Path(place) / "run.json"
        answer = subprocess.run([*command, "--json", str(file)], env=environment(**given), capture_output=True, text=True, timeout=200)
        assert answer.returncode == 0 and answer.stderr == "", answer
        return json.loads(file.read_text())


def check_bits(program: str, text: str) -> None:
    flags = ["--text", text, *CUDA, *TINY, *COMMON, "--steps", "2"]
    ways = [(ranks, grid, policy) for ranks, grid, policies in GRIDS for policy in policies]
    eps = sorted({grid[1] for _, grid, _ in ways})
    threads = [[program, *flags, "--ep", ep, "--policy", "serial", "--comm", "staged"] for ep in eps]
    processes = [["sh", str(LAUNCH), *share(ranks), str(ranks), "--", program, *flags, *grid, "--policy", policy]
                 for ranks, grid, policy in ways]
    ended = at_once(run, threads + processes)
    yardsticks = dict(zip(eps, ended))
    for (ranks, grid, policy), found in zip(ways, ended[len(eps):]):
        for key in ("losses", "grad_digest", "heldout_loss"):
            assert found[key] == yardsticks[grid[1]][key], (grid, policy, key)
        assert found["config"]["comm"] == "nccl" and len(set(found["process_ids"])) == ranks, found
        print(f"{ranks} processes, {' '.join(grid)} {policy}: the bits of threads")


def check_captured(program: str, text: str) -> None:
    """Steps that are replayed, the third and fourth, beside ordinary ones."""
    flags = ["--text", text, *CUDA, *TINY, *COMMON, "--steps", "4", "--ep", "2", "--capacity", "2"]
    launched = ["sh", str(LAUNCH), *share(2), "2", "--", program, *flags]
    ways = [("nccl", policy) for policy in ("autograd", "serial", "two_stream_1f1b", "split_dw")]
    # Graphs that wait for each other by flags need a GPU each.
    ways += [("peer", policy) for policy in ("serial", "split_dw") if GPUS >= 2]
    captured = [[*launched, "--comm", comm, "--policy", policy, "--graph"] for comm, policy in ways]
    ordinary, *ended = at_once(run, [[*launched, "--policy", "serial"], *captured])
    for (comm, policy), found in zip(ways, ended):
        for key in ("losses", "grad_digest", "heldout_loss"):
            assert found[key] == ordinary[key], (comm, policy, key, found[key], ordinary[key])
        assert found["config"]["comm"] == comm and found["config"]["graph"] and len(found["losses"]) == 4, found
        print(f"2 processes, {comm}, captured {policy}: the bits of ordinary steps")


def lose_rank(program: str, text: str, folder: pathlib.Path, number: int, ranks: int, what: str, seed: int,
              how: signal.Signals) -> tuple[bool, float]:
    own = folder / str(number)
    own.mkdir()
    more = {"captured": [*CUDA, "--capacity", "2", "--graph"], "ordinary": CUDA}[what]
    grids = {2: [(2, 1)] if what == "captured" else [(2, 1), (1, 2)], 4: [(2, 2), (1, 4)]}[ranks]
    # What is captured is one_f_one_b_ep always. Ranks that share a GPU take turns on it, so that meetings last: the first step of
    # four, while two other runs start, has been quiet for more than 10 s.
    return fault(program, own, text, seed * len(PIPELINES) if what == "captured" else seed, how, more,
                 lambda rank: sharing(ranks, rank), starts=0.5, deadline=6 if ranks <= GPUS else 20, grids=grids,
                 slack=12)


def check_faults(program: str, text: str, folder: pathlib.Path, kills: int) -> None:
    before = memory_of_gpus()
    stops = (kills + 3) // 4
    # The longest first.
    worlds = [(ranks, what, seed, how)
              for how, count in ((signal.SIGSTOP, stops), (signal.SIGKILL, kills))
              for ranks, what, times in ((4, "ordinary", count), (2, "ordinary", count), (2, "captured", (count + 3) // 4))
              for seed in range(times)]

    def end_of(numbered: tuple) -> tuple[bool, float] | Exception:
        number, (ranks, what, seed, how) = numbered
        try:
            end = lose_rank(program, text, folder, number, ranks, what, seed, how)
        except (AssertionError, subprocess.TimeoutExpired) as problem:
            end = problem
        # As they come: a run that is stopped has told of those that ended.
        print(f"{how.name} {seed} of one of {ranks} in {what} steps:", f"{end[1]:.1f} s" if isinstance(end, tuple) else end, flush=True)
        return end

    ends = at_once(end_of, enumerate(worlds))
    wrong = [str(end) for end in ends if isinstance(end, Exception)]
    for how, ranks, what in sorted({(how, ranks, what) for ranks, what, _, how in worlds}):
        mine = [end for end, world in zip(ends, worlds) if (world[3], *world[:2]) == (how, ranks, what)]
        ended = [end for end in mine if not isinstance(end, Exception)]
        print(f"{how.name} of one of {ranks} in {what} steps: {len(ended)} of {len(mine)} ended as they must, {sum(named for named, _ in ended)} "
              f"of these with an op; the last survivor after at most {max((seconds for _, seconds in ended), default=0):.1f} s", flush=True)
    assert not wrong, "\n".join(wrong)
    for _ in range(50):
        if all(now <= then + 16 for now, then in zip(memory_of_gpus(), before)):
            return
        time.sleep(0.2)
    raise AssertionError(f"GPU memory in MiB, before and after: {before}, {memory_of_gpus()}")


def check_refusals(program: str, text: str) -> None:
    flags = ["--text", text, *CUDA, *TINY, *COMMON, "--steps", "2", "--ep", "2"]

    def check(case: tuple[str, list[str], dict[str, object]]) -> None:
        words, command, given = case
        answer = subprocess.run(command, env=environment(**given), capture_output=True, text=True, timeout=120)
        lines = [line for line in answer.stderr.splitlines() if not line.startswith("launch.sh: ")]
        assert answer.returncode == 2 and lines and all(words in line for line in lines), (words, answer)

    two = ["sh", str(LAUNCH), "2", "--", program, *flags]
    one = {"CUDA_VISIBLE_DEVICES": "0"}
    uneven = 'if [ "$RANK" = 1 ]; then export NCCL_MAX_CTAS=2; fi; exec "$@"'
    at_once(check, [
        ("set NCCL_HOSTID=<rank> NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo", two, one),
        ("--graph over --comm peer takes a GPU for each rank that is a process",
         [*two, "--comm", "peer", "--capacity", "2", "--graph"], one),
        ("--comm staged is for ranks that are threads", [*two, "--comm", "staged"], {}),
        ("say --comm staged, or start processes that share a GPU", [program, *flags, "--comm", "nccl"], one),
        ("NCCL_MAX_CTAS differs: rank 0 does not set it, rank 1 has '2'",
         ["sh", str(LAUNCH), *share(2), "2", "--", "sh", "-c", uneven, "sh", program, *flags], {}),
    ])


def main() -> int:
    if GPUS == 0:
        print("skipped: needs a GPU")
        return 77
    program = str(pathlib.Path(sys.argv[1]).resolve())
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 20 if "STRETTO_EVERY_SIZE" in os.environ else 1
    only_faults = len(sys.argv) > 3 and sys.argv[3] == "faults"
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        text = write_text(folder)
        if not only_faults:
            check_refusals(program, text)
            check_bits(program, text)
            check_captured(program, text)
        check_faults(program, text, folder, kills)
    return 0


if __name__ == "__main__":
    sys.exit(main())
