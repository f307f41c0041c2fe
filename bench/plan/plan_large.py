"""plan_large.py PLAN [REPEATS]: time and peak memory of `plan` with 64 ranks and 4096 microbatches, all pipelines and outputs."""

import os
import statistics
import sys
import time

SIZES = ["--ranks", "64", "--microbatches", "4096"]
RUNS = [
    ["--pipeline", "dual_pipe_v", "--costs", "deepseek_h800"],
    ["--pipeline", "interleaved_ep", "--costs", "deepseek_h800"],
    ["--pipeline", "dual_pipe_v", "--format", "golden"],
    ["--pipeline", "dual_pipe_v", "--comm"],
    ["--pipeline", "interleaved_ep", "--comm"],
    ["--compare", "--costs", "deepseek_h800"],
]


def measure(program: str, arguments: list[str]) -> tuple[float, float]:
    """Seconds and the most megabytes held, of one run with its output thrown away."""
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execv(program, [program, *arguments])
    _, status, usage = os.wait4(child, 0)
    assert status == 0, arguments
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def main() -> int:
    program, repeats = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    print("| plan --ranks 64 --microbatches 4096 ... | median s | MB |")
    print("| --- | --- | --- |")
    for arguments in RUNS:
        runs = [measure(program, SIZES + arguments) for _ in range(repeats)]
        print(f"| `{' '.join(arguments)}` | {statistics.median(t for t, _ in runs):.2f} | {max(m for _, m in runs):.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
