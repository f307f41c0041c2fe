"""pictures.py PLAN: pictures, traces and reports hold every call of the plan and agree with each other."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

PIPELINES = ["serial", "gpipe", "one_f_one_b", "one_f_one_b_ep", "interleaved", "interleaved_ep", "zero_bubble_h1",
             "zero_bubble_v", "dual_pipe_v"]
PANEL = 104
SVG = "{http://www.w3.org/2000/svg}"


def plan(program: str, *arguments: str) -> str:
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def check_pictures(program: str, sizes: list[str], costs: str) -> None:
    calls = [line.split() for line in plan(program, *sizes, "--format", "golden").splitlines()]
    every = [call for rank in calls for call in rank]

    picture = xml.fromstring(plan(program, *sizes, "--costs", costs, "--format", "svg"))
    titles = [title.text.split(":")[0] for title in picture.iter(f"{SVG}title")]
    assert titles == every, f"{sizes}: svg"
    for box in picture.iter(f"{SVG}rect"):
        if box.get("width") != "100%":
            assert float(box.get("width")) > 0 and float(box.get("x")) + float(box.get("width")) <= float(picture.get("width"))

    trace = json.loads(plan(program, *sizes, "--costs", costs, "--format", "trace"))["traceEvents"]
    bars = [event for event in trace if event["ph"] == "X"]
    assert [bar["name"] for bar in bars] == every, f"{sizes}: trace"
    for rank in range(len(calls)):
        ends = [0] + [bar["ts"] + bar["dur"] for bar in bars if bar["tid"] == rank]
        starts = [bar["ts"] for bar in bars if bar["tid"] == rank]
        assert all(start >= end - 0.01 for start, end in zip(starts, ends)), f"{sizes}: bars of rank {rank} overlap"

    report = json.loads(plan(program, *sizes, "--costs", costs, "--json"))
    assert abs(max(bar["ts"] + bar["dur"] for bar in bars) / 1000 - report["makespan"]) < 1e-3 * report["makespan"]
    table = plan(program, *sizes, "--costs", costs)
    assert f"ratio to ideal {report['ratio_to_ideal']:.3f}" in table, f"{sizes}: table"
    rows = [line.split() for line in table.splitlines() if re.match(r"\d", line)]
    assert [int(row[-1]) for row in rows] == [rank["peak_live_chunks"] for rank in report["per_rank"]], f"{sizes}: table"

    mermaid = plan(program, *sizes, "--costs", costs, "--format", "mermaid").splitlines()
    assert [line.split(" : ")[0].strip() for line in mermaid if " : " in line] == every, f"{sizes}: mermaid"

    text = plan(program, *sizes, "--costs", costs, "--format", "text")
    margin, rows = len(f"rank {len(calls) - 1}") + 2, [""] * len(calls)
    for line in text.splitlines():
        if match := re.match(r"rank (\d+) ", line + " "):
            rows[int(match[1])] += line[margin:].ljust(PANEL)
    for rank, row in enumerate(rows):
        drawn = [re.match(r"[A-Z0-9.+]+", bar)[0] for bar in row.split("|") if bar.strip()]
        assert [name.rstrip("+") for name in drawn] == calls[rank], f"{sizes}: text of rank {rank}"


def check_messages(program: str, sizes: list[str], map_of: str, ranks: int) -> None:
    """The printed lists: every receive has its send, and a pair of ranks lists its messages in one order."""
    lines = [line.split() for line in plan(program, *sizes, "--comm").splitlines()]
    compute = [[word for word in line if not word.startswith("[")] for line in lines]
    assert compute == [line.split() for line in plan(program, *sizes, "--format", "golden").splitlines()]

    def owner(stage: int) -> int:
        lap, at = divmod(stage, ranks)
        return ranks - 1 - at if map_of == "vee" and lap % 2 else at

    between: dict[tuple[int, int], list[tuple[bool, str, int, int]]] = {}
    for rank, line in enumerate(lines):
        for word in line:
            if match := re.fullmatch(r"\[([sr])([FB]):(\d+)\.(\d+):(\d+)\]", word):
                sends, kind = match[1] == "s", match[2]
                producer, microbatch, peer = int(match[3]), int(match[4]), int(match[5])
                ends = (owner(producer), owner(producer + 1 if kind == "F" else producer - 1))
                assert (rank, peer) == (ends if sends else ends[::-1]) and rank != peer, f"{sizes}: {word} on rank {rank}"
                between.setdefault((rank, peer), []).append((sends, kind, producer, microbatch))
            else:
                assert not word.startswith("["), f"{sizes}: {word} is no message"
    for (rank, peer), mine in between.items():
        theirs = between[peer, rank]
        assert [(not sends, *rest) for sends, *rest in theirs] == mine, f"{sizes}: ranks {rank} and {peer} disagree"


def main() -> int:
    program = sys.argv[1]
    for pipeline in PIPELINES:
        for ranks, microbatches in ((1, 1), (2, 4), (3, 7), (4, 8)):
            sizes = ["--pipeline", pipeline, "--ranks", str(ranks), "--microbatches", str(microbatches)]
            for costs in ("unit", "deepseek_h800"):
                check_pictures(program, sizes, costs)
            check_messages(program, sizes, "vee" if pipeline in ("zero_bubble_v", "dual_pipe_v") else "looped", ranks)
    # DualPipe's own count: an interior rank has 8M ends of messages, the first and the last 4M.
    lines = plan(program, "--pipeline", "dual_pipe_v", "--ranks", "4", "--microbatches", "8", "--comm").splitlines()
    assert [line.count("[") for line in lines] == [32, 64, 64, 32]
    compared = json.loads(plan(program, "--compare", "--json", "--ranks", "4", "--microbatches", "5"))["pipelines"]
    assert [one["pipeline"] for one in compared] == PIPELINES
    assert [one["pipeline"] for one in compared if "refused" in one] == ["dual_pipe_v"]
    print("pictures, traces, reports and messages agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
