"""golden.py PLAN: `plan --format golden` prints the orders that the public generators printed, byte for byte."""

import pathlib
import re
import subprocess
import sys

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"

# Every file that must be there: pipeline, source, sizes.
WANTED = [
    ("dual_pipe_v", "deepseek.dualpipev", ["P2.M4", "P4.M8", "P4.M10"]),
    ("interleaved", "megatron.interleaved", ["P2.M4.V2", "P4.M8.V2"]),
    ("interleaved", "pytorch.Interleaved1F1B", ["P2.M4.V2", "P4.M8.V2"]),
    ("interleaved_ep", "megatron.interleaved_ep_overlap", ["P2.M4.V2", "P4.M8.V2"]),
    ("zero_bubble_v", "pytorch.ZBVZeroBubble", ["P2.M4", "P4.M8"]),
    ("zero_bubble_h1", "sail.zb1p", ["P2.M4", "P4.M8"]),
    ("one_f_one_b", "sail.basic1f1b", ["P2.M4", "P4.M8"]),
    ("gpipe", "pytorch.GPipe", ["P2.M4", "P4.M8"]),
]


def plan(program: str, *arguments: str) -> str:
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def check_orders(program: str) -> int:
    files = 0
    for pipeline, source, sizes in WANTED:
        for size in sizes:
            path = GOLDEN / f"{source}.{size}.txt"
            ranks, microbatches, chunks = re.fullmatch(r"P(\d+)\.M(\d+)(?:\.V(\d+))?", size).groups()
            arguments = ["--pipeline", pipeline, "--ranks", ranks, "--microbatches", microbatches, "--format", "golden"]
            arguments += ["--chunks", chunks] if chunks else []
            assert plan(program, *arguments) == path.read_text(), f"{pipeline} {size} differs from {path.name}"
            files += 1
    return files


def take(calls: list[str], pattern: str) -> None:
    """Drops the calls that the pattern, a sequence of passes such as `F0 B1+`, names from the front."""
    for wanted in pattern.split():
        assert calls and calls[0] == wanted, f"{calls[:3]} where {wanted} should be"
        calls.pop(0)


def check_counts(program: str) -> int:
    """MindSpeed's counts per step and rank, read off the printed order."""
    lines = (GOLDEN / "mindspeed.dualpipev_counts.txt").read_text().splitlines()
    for line in lines:
        given = dict(entry.split("=") for entry in line.split())
        ranks, microbatches, rank = int(given["P"]), int(given["M"]), int(given["rank"])
        printed = plan(program, "--pipeline", "dual_pipe_v", "--ranks", str(ranks), "--microbatches", str(microbatches),
                       "--format", "golden").splitlines()[rank]
        # Stage to chunk: the second half of the V is chunk 1.
        calls = re.sub(r"([FBIW])(\d+)\.\d+", lambda m: m[1] + ("0" if int(m[2]) < ranks else "1"), printed).split()
        take(calls, "F0 " * int(given["warmup"]))
        take(calls, "F0 F1 " * int(given["interleaved_forward"]))
        take(calls, "I1 W1 F1 " * int(given["1b1w1f"]))
        steady = ["F0+B1", "F1+B0"] * (int(given["overlap"]) // 2)
        if rank == ranks - 1:
            steady[0] = "F0 B1"  # the bend's first pair runs in turn
        take(calls, " ".join(steady))
        take(calls, "B1 F1+B0 " * (int(given["1b1overlap"]) // 2))
        split, cooldown, last = (int(number) for number in given["cooldown"].split(","))
        backwards = ["B1", "B0"] * int(given["interleaved_backward"])
        backwards[len(backwards) - split:] = [one.replace("B", "I") for one in backwards[len(backwards) - split:]]
        take(calls, " ".join(backwards))
        kinds = [call[0] for call in calls]
        assert kinds == ["W", "I"] * (cooldown // 2) + ["W"] * last, f"{line}: cool-down is {calls}"
    return len(lines)


def messages(text: str) -> list[list[str]]:
    """Per rank, what is sent and received, in any order: `sF:0.2:1`."""
    return [sorted(re.findall(r"[sr][FB]:\d+\.\d+:\d+", line)) for line in text.splitlines()]


def check_messages(program: str) -> int:
    """The same messages as DeepSeek's own lists; where they stand is each one's own choice."""
    files = 0
    for size in ("P2.M4", "P4.M8"):
        path = GOLDEN / f"deepseek.dualpipev.{size}.comm.txt"
        ranks, microbatches = re.fullmatch(r"P(\d+)\.M(\d+)", size).groups()
        printed = plan(program, "--pipeline", "dual_pipe_v", "--ranks", ranks, "--microbatches", microbatches, "--format",
                       "golden", "--comm")
        wanted = messages(path.read_text())
        assert sum(map(len, wanted)) > 0 and messages(printed) == wanted, f"messages differ from {path.name}"
        files += 1
    return files


def main() -> int:
    program = sys.argv[1]
    files, ranks = check_orders(program) + check_messages(program), check_counts(program)
    assert files == 19 and ranks >= 32, "golden files are missing"
    print(f"{files} golden orders and lists of messages, and the counts of {ranks} ranks agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
