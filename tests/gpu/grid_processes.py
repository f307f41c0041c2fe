"""grid_processes.py TRAIN_MOE_CUDA [KILLS]: grids of 4 and 8 processes, with a GPU each or several on one, joined by NCCL or by copies
into each other's memory, give the bits of threads on one GPU in series at equal expert ranks; when one of 8 is killed all others end
within the deadline with one line. On one GPU only those of 4. With STRETTO_EVERY_SIZE every pipeline with pairs or without bubbles on
every grid, and 10 kills; STRETTO_EVERY_SIZE=2/5 is the second of 5 parts of these. Skipped where there is no GPU. With
GRID_DEVICE=cpu and train_moe in place of train_moe_cuda the same over Gloo."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "c10d"))
from faults import fault  # noqa: E402
from launching import GPUS, LAUNCH, environment, share, sharing, write_text  # noqa: E402

DEVICE = os.environ.get("GRID_DEVICE", "cuda")
# As many experts as the most expert ranks; fewer layers than most stages. Sequences in large batches and few microbatches, since
# processes that share a GPU take turns on it: most of the time goes into their start all the same.
SIZES = ["--layers", "3", "--dense", "1", "--hidden", "16", "--heads", "2", "--ffn", "8", "--experts", "8", "--seq", "12", "--batch",
         "16", "--device", DEVICE]
# Pipeline ranks and expert ranks.
GRIDS = [(1, 4), (2, 2), (4, 1), (1, 8), (2, 4), (4, 2), (8, 1)]
PIPELINES = {"dual_pipe_v": "split_dw", "interleaved_ep": "two_stream_1f1b", "one_f_one_b_ep": "split_dw", "zero_bubble_v": "serial"}
COMMS = {"nccl": ["--comm", "nccl"], "peer": ["--comm", "peer"]} if DEVICE == "cuda" else {"host": []}
FIRST, LAST = list(COMMS)[0], list(COMMS)[-1]
SAMPLE = [((1, 4), "one_f_one_b_ep", FIRST), ((2, 2), "dual_pipe_v", FIRST), ((4, 1), "zero_bubble_v", FIRST),
          ((4, 2), "interleaved_ep", FIRST), ((2, 2), "interleaved_ep", LAST)]


def has_time_for(ranks: int) -> bool:
    """More than four on a GPU take minutes to start."""
    return DEVICE == "cpu" or ranks <= 4 * GPUS


def microbatches_of(pp: int) -> int:
    """As many as DualPipeV needs."""
    return max(2 * pp - 1, 3)


def part_of(ways: list) -> list:
    part, slash, parts = os.environ["STRETTO_EVERY_SIZE"].partition("/")
    if not slash:
        return ways
    return [ways[at] for at in range(int(part) - 1, len(ways), int(parts))]


def run(command: list[str], file: pathlib.Path) -> dict:
    answer = subprocess.run([*command, "--json", str(file)], env=environment(), capture_output=True, text=True, timeout=280)
    # Of lanes that share queues where many ranks share a GPU.
    said = [line for line in answer.stderr.splitlines() if not line.startswith("train_moe: warning: ")]
    assert answer.returncode == 0 and not said, answer
    found = json.loads(file.read_text())
    file.unlink()
    return found


def check_bits(program: str, text: str, folder: pathlib.Path, ways: list) -> None:
    file, yardsticks = folder / "run.json", {}
    staged = ["--comm", "staged"] if DEVICE == "cuda" else []
    for (pp, ep), pipeline, comm in ways:
        work = (ep, microbatches_of(pp))
        flags = ["--text", text, *SIZES, "--steps", "2", "--microbatches", str(work[1]), "--deadline", "60"]
        if work not in yardsticks:
            yardsticks[work] = run([program, *flags, "--ep", str(ep), "--pipeline", "serial", "--policy", "serial", *staged], file)
        grid = ["--pp", str(pp), "--ep", str(ep), "--pipeline", pipeline, "--policy", PIPELINES[pipeline]]
        found = run(["sh", str(LAUNCH), *(share(pp * ep) if DEVICE == "cuda" else []), str(pp * ep), "--", program, *flags, *grid, *COMMS[comm]], file)
        for key in ("losses", "grad_digest", "heldout_loss"):
            assert found[key] == yardsticks[work][key], (grid, comm, key, found[key], yardsticks[work][key])
        assert found["config"]["comm"] == comm, found
        assert len(set(found["process_ids"])) == pp * ep, found
        print(f"{pp * ep} processes, {pp} x {ep} ranks, {pipeline}, {comm}: the bits of one pipeline rank in series", flush=True)


def check_kills(program: str, text: str, folder: pathlib.Path, kills: int) -> None:
    ends = [fault(program, folder, text, seed, signal.SIGKILL, list(COMMS.values())[seed % len(COMMS)],
                  lambda rank: sharing(8, rank) if DEVICE == "cuda" else {}, starts=0.5, deadline=15,
                  grids=[(ep, pp) for pp, ep in GRIDS if pp * ep == 8], sizes=SIZES, microbatches=microbatches_of(8))
            for seed in range(kills)]
    if ends:
        print(f"{sum(named for named, _ in ends)} of {kills} kills of one of 8 were told with an op; the last survivor ended after at "
              f"most {max(seconds for _, seconds in ends):.1f} s")


def main() -> int:
    if DEVICE == "cuda" and GPUS == 0:
        print("skipped: needs a GPU")
        return 77
    program = str(pathlib.Path(sys.argv[1]).resolve())
    every = "STRETTO_EVERY_SIZE" in os.environ
    all_ways = [(grid, pipeline, comm) for grid in GRIDS for pipeline in PIPELINES for comm in COMMS]
    ways = part_of(all_ways) if every else [way for way in SAMPLE if has_time_for(way[0][0] * way[0][1])]
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 10 if every else int(has_time_for(8))
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        text = write_text(folder)
        print(f"{len(ways)} of {len(all_ways)} ways to run", flush=True)
        check_bits(program, text, folder, ways)
        check_kills(program, text, folder, kills)
    return 0


if __name__ == "__main__":
    sys.exit(main())
