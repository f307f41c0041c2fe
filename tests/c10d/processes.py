"""processes.py TRAIN_MOE: ranks that are processes give the bits of ranks that are threads; what cannot work is refused by each
rank concerned with one line and exit code 2, and nothing is written."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

from launching import LAUNCH, TINY, environment, free_port, start, write_text

COMMON = ["--steps", "2", "--microbatches", "6", "--deadline", "60"]
GRIDS = [
    ("2", ["--ep", "2"]),
    ("4", ["--ep", "2", "--pp", "2", "--pipeline", "dual_pipe_v", "--capacity", "2"]),
    ("3", ["--ep", "1", "--pp", "3", "--pipeline", "zero_bubble_v", "--policy", "serial", "--dtype", "bf16"]),
    ("4", ["--ep", "1", "--pp", "4", "--pipeline", "interleaved_ep", "--policy", "two_stream_1f1b"]),
    ("2", ["--ep", "1", "--pp", "2", "--pipeline", "interleaved", "--chunks", "3", "--policy", "autograd"]),
    ("1", ["--ep", "1", "--pipeline", "gpipe"]),
]


def check_bits(program: str, text: str, folder: pathlib.Path) -> None:
    file = folder / "run.json"
    for count, grid in GRIDS:
        flags = ["--text", text, *TINY, *COMMON, *grid, "--json", str(file)]
        answer = subprocess.run([program, *flags], env=environment(), capture_output=True, text=True, timeout=120)
        assert answer.returncode == 0 and answer.stderr == "", answer
        threads = json.loads(file.read_text())
        assert len(threads["process_ids"]) == 1
        file.unlink()
        trace = folder / "trace.json"
        more = [] if "autograd" in grid else ["--trace", str(trace)]
        answer = subprocess.run(["sh", str(LAUNCH), count, "--", program, *flags, *more], env=environment(),
                                capture_output=True, text=True, timeout=200)
        assert answer.returncode == 0 and answer.stderr == "", answer
        found = json.loads(file.read_text())
        for key in ("losses", "grad_digest", "heldout_loss", "bigram_loss", "ranks", "pipeline", "policy"):
            assert found[key] == threads[key], (grid, key)
        ids = found["process_ids"]
        assert len(ids) == len(set(ids)) == int(count), ids
        if more:
            events = json.loads(trace.read_text())["traceEvents"]
            assert {e["pid"] for e in events} == set(range(int(count)))
        assert answer.stdout.count("held-out ") == 1, answer.stdout
    file.unlink()
    answer = subprocess.run(["sh", str(LAUNCH), "2", "--", program, "--text", text, *TINY, *COMMON, "--ep", "2", "--capacity", "0.3",
                             "--json", str(file)], env=environment(), capture_output=True, text=True, timeout=120)
    said = set(answer.stderr.splitlines())
    assert answer.returncode == 1 and len(said) == 1 and "found no slot" in said.pop(), answer
    assert not file.exists()


def ends(running: list[subprocess.Popen], words: list[str], seconds: float = 60) -> None:
    """Each ends with exit code 2 and one line that says the words."""
    for each, said in zip(running, words, strict=True):
        out, err = each.communicate(timeout=seconds)
        lines = err.splitlines()
        assert each.returncode == 2 and out == "" and len(lines) == 1 and lines[0].startswith("train_moe: "), (err, out)
        assert said in lines[0], (said, err)


def check_refusals(program: str, text: str, folder: pathlib.Path) -> None:
    def one(*more: str, **given: object) -> subprocess.Popen:
        flags = ["--text", text, *TINY, "--ep", "1", "--pp", "2", "--deadline", "20", "--json", str(folder / "no.json"), *more]
        return start(program, flags, **given)

    longer = folder / "longer.txt"
    longer.write_text(pathlib.Path(text).read_text() + "and more")
    before = sorted(folder.iterdir())
    ends([one(RANK=0)], ["RANK is set and WORLD_SIZE is not"])
    ends([one(WORLD_SIZE=2)], ["WORLD_SIZE is set and RANK is not"])
    ends([one(RANK=2, WORLD_SIZE=2)], ["RANK 2 is beyond WORLD_SIZE 2"])
    ends([one(RANK="x", WORLD_SIZE=2)], ["RANK must be a whole number"])
    ends([one(RANK=0, WORLD_SIZE=2, MASTER_PORT="99999")], ["MASTER_PORT must be a whole number from 1 to 65535"])
    ends([one(RANK=0, WORLD_SIZE=3)], ["--ep 1 times --pp 2 is 2 ranks and WORLD_SIZE is 3"])
    ends([one("--link-us", "5", RANK=0, WORLD_SIZE=2)], ["a modelled link is for ranks that are threads"])
    ends([one(RANK=1, WORLD_SIZE=2, MASTER_ADDR="no-such-host.invalid")], ["'no-such-host.invalid' does not resolve"])
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ends([one(RANK=0, WORLD_SIZE=2, MASTER_PORT=port)], [f"cannot listen at MASTER_PORT {port}"])
    port = free_port()
    ends([start(program, ["--text", text, *TINY, "--ep", "1", "--pp", "2", "--deadline", "2"], RANK=1, WORLD_SIZE=2,
                MASTER_PORT=port)], [f"rank 0 does not answer at 127.0.0.1:{port} within 2 s"])
    ends([start(program, ["--text", text, *TINY, "--ep", "1", "--pp", "2", "--deadline", "2"], RANK=0, WORLD_SIZE=2,
                MASTER_PORT=free_port())], ["rank 1 of 2 did not come within 2 s"])

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        ends([start(program, ["--text", text, *TINY, "--ep", "1", "--pp", "2", "--deadline", "2"], RANK=1, WORLD_SIZE=2,
                    MASTER_PORT=port)], [f"rank 0 does not answer at 127.0.0.1:{port} within 2 s"])

    # Ranks that differ: every rank names the one that is unlike most of the others.
    for odd, flags, said in ((1, ["--microbatches", "8"], "rank 1 has --microbatches 8 and others have --microbatches 4"),
                             (0, ["--pipeline", "gpipe"], "rank 0 has --pipeline gpipe and others have"),
                             (2, ["--policy", "serial"], "rank 2 has --policy serial and others have --policy split_dw")):
        port = free_port()
        three = [start(program, ["--text", text, *TINY, "--ep", "1", "--pp", "3", "--deadline", "20", *(flags if rank == odd else [])],
                       RANK=rank, WORLD_SIZE=3, MASTER_PORT=port) for rank in range(3)]
        ends(three, [said] * 3)

    port = free_port()
    ends([start(program, ["--text", str(longer) if rank == 1 else text, *TINY, "--ep", "1", "--pp", "3", "--deadline", "20"], RANK=rank,
                WORLD_SIZE=3, MASTER_PORT=port) for rank in range(3)], ["rank 1 has a --text with digest"] * 3)

    # Two launches on one port: the first goes on.
    port = free_port()
    flags = ["--text", text, *TINY, "--ep", "1", "--pp", "2", "--steps", "1", "--deadline", "40"]
    first = [start(program, flags, RANK=0, WORLD_SIZE=2, MASTER_PORT=port, TORCHELASTIC_RUN_ID="first")]
    other = start(program, flags, RANK=1, WORLD_SIZE=2, MASTER_PORT=port, TORCHELASTIC_RUN_ID="second")
    ends([other], [f"another launch has rank 1 at 127.0.0.1:{port}"])
    ends([start(program, flags, RANK=0, WORLD_SIZE=2, MASTER_PORT=port, TORCHELASTIC_RUN_ID="second")],
         [f"cannot listen at MASTER_PORT {port}"])
    first.append(start(program, flags, RANK=1, WORLD_SIZE=2, MASTER_PORT=port, TORCHELASTIC_RUN_ID="first"))
    for each in first:
        out, err = each.communicate(timeout=60)
        assert each.returncode == 0 and err == "", (out, err)
    assert sorted(folder.iterdir()) == before


def check_growth(program: str, text: str, folder: pathlib.Path) -> None:
    """500 steps take no more memory, files or threads than 100."""
    output, port = folder / "growth.txt", free_port()
    flags = ["--text", text, *TINY, "--ep", "2", "--pp", "2", "--pipeline", "dual_pipe_v", "--steps", "500", "--deadline", "60"]
    running = [start(program, flags, output if rank == 0 else folder / f"growth.{rank}", RANK=rank, WORLD_SIZE=4, MASTER_PORT=port)
               for rank in range(4)]

    def sample(step: int) -> list[tuple[int, int, int]]:
        while f"step {step:3}/500" not in output.read_text():
            assert all(each.poll() is None for each in running), output.read_text()
            time.sleep(0.1)
        found = []
        for each in running:
            place = pathlib.Path(f"/proc/{each.pid}")
            pages = int((place / "statm").read_text().split()[1])
            found.append((pages * os.sysconf("SC_PAGE_SIZE"), len(list((place / "fd").iterdir())), len(list((place / "task").iterdir()))))
        return found

    early, late = sample(100), sample(450)
    for each in running:
        _, err = each.communicate(timeout=120)
        assert each.returncode == 0 and err == "", err
    print("resident bytes, files, threads after 100 steps:", early, "and after 450:", late)
    for (bytes_before, *before), (bytes_after, *after) in zip(early, late, strict=True):
        assert after == before and bytes_after - bytes_before < (4 << 20), (early, late)


def main() -> None:
    program = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as place:
        check_refusals(program, write_text(pathlib.Path(place)), pathlib.Path(place))
    with tempfile.TemporaryDirectory() as place:
        check_bits(program, write_text(pathlib.Path(place)), pathlib.Path(place))
        if "STRETTO_EVERY_SIZE" in os.environ:
            check_growth(program, write_text(pathlib.Path(place)), pathlib.Path(place))
    usage = subprocess.run(["sh", str(LAUNCH), "x", "--", program], capture_output=True, text=True)
    assert usage.returncode == 2 and usage.stderr.startswith("usage: ")


if __name__ == "__main__":
    main()
