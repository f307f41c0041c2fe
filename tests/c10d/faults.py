"""faults.py TRAIN_MOE: one of several processes is killed, stopped, or loses its network in the middle of a run. All others end
within the deadline, each with one line that names a rank and, if an op was running, the op and its microbatch. With
STRETTO_EVERY_SIZE set there are 50 kills."""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from launching import LAUNCH, TINY, free_port, start, write_text

# That of a start as well, which takes seconds on a machine with other work, and more for one process than for another.
DEADLINE = 10
# What an op that ran into the deadline at its end, and the telling of it, may add on a machine with other work.
SLACK = 30
PIPELINES = [("one_f_one_b_ep", "split_dw"), ("dual_pipe_v", "split_dw"), ("interleaved_ep", "two_stream_1f1b"),
             ("zero_bubble_v", "serial"), ("gpipe", "autograd"), ("zero_bubble_h1", "split_dw"), ("interleaved", "serial"),
             ("one_f_one_b", "two_stream_1f1b"), ("serial", "serial")]
# Expert ranks and pipeline ranks.
GRIDS = [(2, 2), (1, 4), (1, 3), (2, 1)]
NAMED = re.compile(r"^train_moe: rank \d+: .+, microbatch \d+ failed: .+$")
BETWEEN = re.compile(r"^train_moe: rank \d+ failed: .+$")


def require_running(running: list[subprocess.Popen], what: str) -> None:
    said = [each.communicate()[1] for each in running if each.poll() is not None]
    assert not said, f"{what}: ended before anything happened: {said}"


def fault(program: str, folder: pathlib.Path, text: str, seed: int, how: signal.Signals, more: list[str] | None = None,
          variables: Callable[[int], dict[str, object]] = lambda rank: {}, starts: float = 0.3, deadline: int = DEADLINE,
          grids: Sequence[tuple[int, int]] = GRIDS, sizes: list[str] = TINY, microbatches: int = 8,
          slack: float = SLACK) -> tuple[bool, float]:
    """Whether the survivors named an op, and after how long the last of them had ended. `more`: flags; `variables`: of a rank;
    `starts`: how many seconds after the first step something happens, at least; `grids`: of expert and pipeline ranks; `sizes`: of
    the model; `slack`: how long after the deadline everybody has ended."""
    chance = random.Random(seed)
    pipeline, policy = PIPELINES[seed % len(PIPELINES)]
    ep, pp = chance.choice(grids)
    ranks, port, output, results = ep * pp, free_port(), folder / "out.txt", folder / "results.json"
    output.write_text("")
    # Long before the end something happens.
    flags = ["--text", text, *sizes, "--ep", str(ep), "--pp", str(pp), "--pipeline", pipeline, "--policy", policy, "--microbatches",
             str(microbatches), "--steps", "10000", "--deadline", str(deadline), "--json", str(results), *(more or [])]
    running = [start(program, flags, output if rank == 0 else folder / f"out.{rank}", RANK=rank, WORLD_SIZE=ranks,
                     MASTER_PORT=port, **variables(rank)) for rank in range(ranks)]
    what = f"seed {seed}: {pipeline}, {policy}, {ep} x {pp} ranks"
    try:
        header = time.monotonic() + 120
        # Of all ranks: rank 0 is in the launch before others are, and who is lost then is told of in other words.
        while not re.search(r"step +1/", output.read_text()):
            assert time.monotonic() < header, what
            require_running(running, what)
            time.sleep(0.02)
        time.sleep(starts * (1 + chance.random()) + chance.random())
        victim = chance.randrange(ranks)
        what += f", {how.name} of rank {victim}"
        require_running(running, what)
        running[victim].send_signal(how)
        began = time.monotonic()
        named = 0
        for rank, each in enumerate(running):
            if rank == victim:
                continue
            _, err = each.communicate(timeout=max(0.1, deadline + slack - (time.monotonic() - began)))
            lines = err.splitlines()
            assert each.returncode == 1 and len(lines) == 1, (what, rank, each.returncode, err)
            assert NAMED.match(lines[0]) or BETWEEN.match(lines[0]), (what, rank, err)
            named += bool(NAMED.match(lines[0]))
        assert not results.exists() and not list(folder.glob("results*")), what
        return named == ranks - 1, time.monotonic() - began
    finally:
        for each in running:
            each.kill()
            each.wait()


def lost_while_joining(program: str, folder: pathlib.Path, text: str) -> None:
    """Rank 0 is killed while it waits for rank 2 with rank 1, which says so at once and not what it waited for."""
    port, deadline = free_port(), 60
    flags = ["--text", text, *TINY, "--ep", "1", "--pp", "3", "--steps", "1", "--deadline", str(deadline)]
    first, second = (start(program, flags, folder / f"out.{rank}", RANK=rank, WORLD_SIZE=3, MASTER_PORT=port) for rank in range(2))
    try:
        time.sleep(8)
        require_running([first, second], "joining")
        first.kill()
        said = second.communicate(timeout=deadline / 2)[1]
    finally:
        for each in (first, second):
            each.kill()
            each.wait()
    assert second.returncode == 2 and said == (f"train_moe: rank 0 at 127.0.0.1:{port} ended while this rank joined it; see what it says itself, "
                                               "and start all again\n"), (second.returncode, said)


def few_open_files(program: str, text: str) -> None:
    """Processes take what the system allows them beyond what their shell does; where that is too little they say so, be it for Gloo or
    for the connections of a group, which Gloo accepts where nobody can catch what it throws."""
    for most, code in ((1024, 0), (18, 1), (22, 1), (23, 1)):
        said = subprocess.run(["sh", str(LAUNCH), "2", "--", "sh", "-c", 'ulimit -Sn 18; ulimit -Hn "$0"; exec "$@"', str(most), program, "--text", text, *TINY,
                               "--ep", "2", "--steps", "1"], capture_output=True, text=True, timeout=120)
        assert said.returncode == code, said
        lines = said.stderr.splitlines()
        assert code == 0 or any("open files" in line and "raise ulimit -n" in line for line in lines), said
        # The other rank may say the same, or that it was left.
        assert all(line.startswith("launch.sh: ") or "open files" in line or "see what they say themselves" in line for line in lines), said


def main() -> None:
    program = str(pathlib.Path(sys.argv[1]).resolve())
    every = "STRETTO_EVERY_SIZE" in os.environ
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        text = write_text(folder)
        lost_while_joining(program, folder, text)
        few_open_files(program, text)
        named = [fault(program, folder, text, seed, signal.SIGKILL) for seed in range(50 if every else 6)]
        silent = [fault(program, folder, text, 100 + seed, signal.SIGSTOP) for seed in range(9 if every else 1)]
    for what, all_of_it in (("kills", named), ("stops", silent)):
        told = sum(found for found, _ in all_of_it)
        longest = max(seconds for _, seconds in all_of_it)
        print(f"{told} of {len(all_of_it)} {what} were told with an op; the last survivor ended after at most {longest:.1f} s")
    # The others met a rank between its steps.
    assert any(found for found, _ in named + silent)


if __name__ == "__main__":
    main()
