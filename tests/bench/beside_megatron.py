"""What bench/gpu/beside_megatron.py starts, reads and keeps, with programs that only say what was asked of them."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

DRIVER = pathlib.Path(__file__).resolve().parents[2] / "bench" / "gpu" / "beside_megatron.py"
# Step n takes n ms, ten times that with times of ops; `split_dw` does not come to its end.
TRAIN_MOE = """#!{python}
import json, sys, time
words = sys.argv[1:]
words.remove("--force-load-balancing")
given = dict(zip(words[::2], words[1::2]))
open("{folder}/asked", "a").write(json.dumps(given) + "\\n")
if given["--policy"] == "split_dw":
    time.sleep(60)
slower = 10 if "--trace" in given else 1
steps = [slower * 1e-3 * n for n in range(1, int(given["--steps"]) + 1)]
json.dump(dict(schedule_seconds=steps, peak_bytes=2**31), open(given["--json"], "w"))
if "--trace" in given:
    ops = [dict(ph="X", name=name, dur=dur, pid=rank) for rank in (0, 1) for name, dur in (("F.dispatch layer 0", 2000), ("B.combine layer 0", 1000), ("F.mlp layer 0", 9000))]
    json.dump(dict(traceEvents=ops), open(given["--trace"], "w"))
"""
OTHER = """#!/bin/sh
echo "step off median 12.5 ms peak 3.0 GiB"; echo "params/rank 0.0 B"; echo "all-to-alls take 4.5 ms"
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        for name, text in (("train_moe", TRAIN_MOE.format(python=sys.executable, folder=folder)), ("other", OTHER)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        words = [sys.executable, DRIVER, "--train-moe", folder / "train_moe", "--other", folder / "other", "--json", folder / "out.json", "--text", folder / "other",
                 "--shapes", "small", "--steps", "4", "--warm-up", "3"]

        def start(*more: object) -> subprocess.Popen:
            (folder / "asked").write_text("")
            return subprocess.Popen([*map(str, [*words, *more])], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        def asked() -> list[dict]:
            return [json.loads(line) for line in (folder / "asked").read_text().splitlines()]

        def kept() -> dict:
            return json.loads((folder / "out.json").read_text())["shapes"]["small"]

        # Measured steps are not traced; what communication takes comes from a run behind all of them.
        done = start("--ways", "serial+fast,two_stream_1f1b+fast,two_stream_1f1b+fast+none", "--rounds", "2")
        shown, said = done.communicate(timeout=60)
        assert done.returncode == 0, said
        runs = asked()
        assert [run["--policy"] for run in runs] == ["serial", "two_stream_1f1b", "two_stream_1f1b"] * 2 + ["serial"], runs
        assert ["--trace" in run for run in runs] == [False] * 6 + [True], runs
        assert [run["--steps"] for run in runs] == ["7"] * 6 + ["5"], runs
        assert [run["--comm"] for run in runs] == ["peer", "peer", "none"] * 2 + ["peer"], runs
        serial, two = kept()["train_moe"]["serial+fast"], kept()["train_moe"]["two_stream_1f1b+fast"]
        assert [round(ms) for ms in serial["ms"]] == [4, 5, 6, 7] * 2 and [round(ms) for ms in serial["traced_ms"]] == [40, 50], serial
        assert serial["comm_ms"] == [3.0] and serial["peak_gib"] == 1.0, serial
        assert [round(ms) for ms in two["ms"]] == [4, 5, 6, 7] * 2 and two["traced_ms"] == two["comm_ms"] == [], two
        assert kept()["other"]["off"]["ms"] == [12.5, 12.5] and kept()["other"]["off"]["comm_ms"] == [4.5, 4.5], kept()
        assert "| train_moe | serial+fast | 5.5 | 4.0 .. 7.0 | 1.000 | 3.0 |" in shown, shown
        assert "serial+fast: with times of ops 45.0 ms" in said, said

        # Other ways are traced if their traces are asked for, but for graphs, whose ops have no times.
        done = start("--ways", "two_stream_1f1b,two_stream_1f1b+graph", "--rounds", "1", "--traces", folder)
        assert done.wait(timeout=60) == 0, done.stderr.read()
        assert [("--graph" in run, "--trace" in run) for run in asked()] == [(False, False), (True, False), (False, True)], asked()
        assert (folder / "two_stream_1f1b.json").exists() and not (folder / "two_stream_1f1b+graph.json").exists()
        assert kept()["train_moe"]["two_stream_1f1b"]["comm_ms"] == [], kept()

        # What was measured before a way hits the limit, or before the driver is told to end, stays; nothing is left running.
        for limit, how in (("2", None), ("50", signal.SIGTERM)):
            (folder / "out.json").unlink()
            ended = start("--ways", "serial,split_dw", "--rounds", "1", "--limit", limit)
            until = time.monotonic() + 30
            while how and len(asked()) < 2:
                assert time.monotonic() < until, "it does not come to its second way"
                time.sleep(0.05)
            if how:
                ended.send_signal(how)
            assert ended.wait(timeout=40) == (128 + how if how else 1), ended.stderr.read()
            assert "Traceback" not in ended.stderr.read() and [run["--policy"] for run in asked()] == ["serial", "split_dw"]
            assert [round(ms) for ms in kept()["train_moe"]["serial"]["ms"]] == [4, 5, 6, 7] and "split_dw" not in kept()["train_moe"], kept()
            assert subprocess.run(["pgrep", "-f", f"{os.fspath(folder)}/train_moe"], capture_output=True).returncode == 1, "train_moe still runs"


if __name__ == "__main__":
    main()
