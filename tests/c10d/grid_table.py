"""grid_table.py TRAIN_MOE PLAN: bench/gpu/grid.py runs, on cores, and its tables have every row."""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

from launching import environment, write_text

GRID = pathlib.Path(__file__).resolve().parents[2] / "bench" / "gpu" / "grid.py"
sys.path.insert(0, str(GRID.parent))
import grid  # noqa: E402

SMALL = ["layers=4", "hidden=16", "heads=2", "ffn=8", "experts=4", "seq=12", "microbatches=3"]


def check_costs(folder: pathlib.Path) -> None:
    """Serial runs beside each other are told apart where ranks keep to cores, and are one long run elsewhere."""
    runs = []
    for at in range(4):
        runs.append(folder / f"serial{at}.json")
        op = dict(name="F.attn L0 mb0", ph="X", tid=0, dur=2.0 + at)
        runs[-1].write_text(json.dumps({"traceEvents": [dict(op, pid=pid, ts=100.0) for pid in (0, 1)], "otherData": {}}))
    for threads, more, pids in ((True, "--own-cores", {0, 1, 2, 3}), (True, "", {0, 1}), (False, "", {0, 1})):
        given = argparse.Namespace(threads=threads, more=more)
        ops = json.loads(grid.Trainer(given, {}, folder).costs([runs[:2], runs[2:]], 2).read_text())["traceEvents"]
        assert len(ops) == 8 and {op["pid"] for op in ops} == pids, ops
        for pid in pids:
            mine = sorted((op["ts"], op["dur"]) for op in ops if op["pid"] == pid)
            assert all(ts + dur <= behind for (ts, dur), (behind, _) in zip(mine, mine[1:])), mine


def main() -> None:
    train_moe, plan = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        file = folder / "grid.json"
        flags = ["--train-moe", train_moe, "--plan", plan, "--device", "cpu", "--text", write_text(folder), "--ranks", "1,2", "--policies", "split_dw",
                 "--grids", "2x1", "--ways", "one_f_one_b:serial,dual_pipe_v:split_dw", "--steps", "1", "--warm-up", "1", "--json", str(file)]
        answer = subprocess.run([sys.executable, str(GRID), *flags, "--set", *SMALL], env=environment(), capture_output=True, text=True, timeout=250)
        assert answer.returncode == 0, answer
        found = json.loads(file.read_text())
        assert [(one["gpus"], one["policy"]) for one in found["scaling"]] == [(1, "split_dw"), (2, "split_dw")], found
        assert found["scaling"][0]["of_the_first"] == 1
        assert [one["pipeline"] for one in found["pipelines"]] == ["one_f_one_b", "dual_pipe_v"], found
        for one in found["pipelines"]:
            assert all(math.isfinite(one[key]) and one[key] > 0 for key in ("predicted_ms", "traced_ms", "compute")), one
            # Processes keep to no cores of their own.
            assert one["serial_runs"] == 1 and len(one["per_rank"]) == 2, one
            assert len(one["planned_bytes"]) == len(one["peak_bytes"]) == 2 and min(one["planned_bytes"]) > 0, one
        # Warm-up and ramps of 1F1B keep more layers on the first rank than on the last.
        first, last = found["pipelines"][0]["planned_bytes"]
        assert first > last, found
        rows = [line for line in answer.stdout.splitlines() if line.startswith("| ") and "---" not in line]
        assert len(rows) == (1 + 2) + (1 + 2) + (1 + 4), answer.stdout
        check_costs(folder)
        wrong = subprocess.run([sys.executable, str(GRID), *flags, "--set", "layers=3"], env=environment(), capture_output=True, text=True, timeout=60)
        assert wrong.returncode == 2 and wrong.stderr.startswith("grid.py: layers=3 is no multiple of two chunks"), wrong

        # Ranks that do not end in time are gone with the driver.
        stuck = folder / "stuck"
        stuck.write_text(f"#!/bin/sh\necho $$ >> {folder}/ids\nexec sleep 300\n")
        stuck.chmod(0o755)
        for program, limit, words in ((stuck, "4", "did not end within --limit 4 s"), ("/bin/true", "4", "wrote no results"),
                                      (folder / "none", "4", "none")):
            late = subprocess.run([sys.executable, str(GRID), "--train-moe", str(program), "--plan", plan, "--device", "cpu", "--ranks", "2",
                                   "--grids", "", "--limit", limit], env=environment(), capture_output=True, text=True, timeout=60)
            assert late.returncode != 0 and words in late.stderr and "Traceback" not in late.stderr, late
        ids = (folder / "ids").read_text().split()
        assert len(ids) == 2 and not any(pathlib.Path("/proc", one).exists() for one in ids), ids


if __name__ == "__main__":
    main()
