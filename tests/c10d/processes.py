"""processes.py TRAIN_MOE: ranks that are processes give the bits of ranks that are threads, under a launcher that serves the store
too; what cannot work is refused by each rank concerned with one line and exit code 2, and nothing is written."""

import itertools
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import time

from launching import LAUNCH, TINY, environment, free_port, start, write_text

COMMON = ["--steps", "2", "--deadline", "60"]
SIZES = TINY[TINY.index("--hidden"):]
# What a way to run is made of. Microbatches from the fewest to 12; layers fewer than stages, as many, more.
FACTORS = {
    "--pipeline": ["serial", "gpipe", "one_f_one_b", "one_f_one_b_ep", "interleaved", "interleaved_ep", "zero_bubble_h1",
                   "zero_bubble_v", "dual_pipe_v"],
    "--policy": ["serial", "two_stream_1f1b", "split_dw", "autograd"], "--pp": [1, 2, 3, 4], "--ep": [1, 2],
    "--microbatches": [1, 3, 7, 12], "--dtype": ["f32", "bf16"], "--layers": [1, 4, 7], "--chunks": [None, 1, 2, 3],
    "--capacity": [None, 2],
}


def is_legal(way: dict) -> bool:
    pipeline, splits = way["--pipeline"], way["--pipeline"] in ("zero_bubble_h1", "zero_bubble_v", "dual_pipe_v")
    return ((way["--chunks"] is not None) == pipeline.startswith("interleaved")
            and not (splits and way["--policy"] == "autograd")
            and (pipeline != "dual_pipe_v" or way["--microbatches"] >= 2 * way["--pp"] - 1))


def all_ways() -> list[dict]:
    return [way for values in itertools.product(*FACTORS.values()) if is_legal(way := dict(zip(FACTORS, values)))]


def pairwise() -> list[dict]:
    """Greedy: each next way has the most pairs of choices that are new."""
    ways = all_ways()
    pairs = [frozenset(itertools.combinations(way.items(), 2)) for way in ways]
    left = frozenset().union(*pairs)
    chosen = []
    while left:
        pairs = [each & left for each in pairs]
        best = max(range(len(ways)), key=lambda at: len(pairs[at]))
        chosen.append(ways[best])
        left -= pairs[best]
    return chosen


def ways_to_run() -> list[dict]:
    """STRETTO_EVERY_SIZE=PART/PARTS: that part of all ways, PART from 1, dealt out by chance, so that some parts are a sample of
    all; anything else: enough that any two choices meet. Without it one of each pipeline, where there is time for no more."""
    said = os.environ.get("STRETTO_EVERY_SIZE")
    if part := part_of(said):
        ways = all_ways()
        random.Random(1).shuffle(ways)
        chosen = ways[part[0] - 1::part[1]]
        print(f"{len(chosen)} of {len(ways)} ways to run")
        return chosen
    ways = pairwise()
    chosen = ways if said else list({way["--pipeline"]: way for way in reversed(ways) if way["--pp"] > 1}.values())
    print(f"{len(chosen)} of {len(ways)} ways to run that let any two choices meet")
    return chosen


def part_of(said: str | None) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d+)/(\d+)", said or "")
    if not found:
        return None
    part, parts = int(found[1]), int(found[2])
    assert 1 <= part <= parts, f"STRETTO_EVERY_SIZE={said}: PART is from 1 to PARTS"
    return part, parts


def check_bits(program: str, text: str, folder: pathlib.Path) -> None:
    file = folder / "run.json"
    for way in ways_to_run():
        count = str(way["--ep"] * way["--pp"])
        grid = [str(word) for name, value in way.items() if value is not None for word in (name, value)]
        flags = ["--text", text, *SIZES, "--dense", str(min(1, way["--layers"] - 1)), *COMMON, *grid, "--json", str(file)]
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
        peaks = found["process_peak_bytes"]
        assert len(peaks) == int(count) and min(peaks) > 0 and sum(peaks) == found["peak_bytes"], peaks
        assert threads["process_peak_bytes"] == [threads["peak_bytes"]], threads
        if more:
            events = json.loads(trace.read_text())["traceEvents"]
            assert {e["pid"] for e in events} == set(range(int(count)))
        assert answer.stdout.count("held-out ") == 1, answer.stdout
        file.unlink()


def check_slots(program: str, text: str, folder: pathlib.Path) -> None:
    """What does not fit its slots ends all ranks, and nothing is written."""
    file = folder / "full.json"
    answer = subprocess.run(["sh", str(LAUNCH), "2", "--", program, "--text", text, *TINY, *COMMON, "--ep", "2", "--capacity", "0.3",
                             "--json", str(file)], env=environment(), capture_output=True, text=True, timeout=120)
    said = {line for line in answer.stderr.splitlines() if line.startswith("train_moe: ")}
    assert answer.returncode == 1 and len(said) == 1 and "found no slot" in said.pop(), answer
    assert not file.exists()


def check_served_store(program: str, text: str, folder: pathlib.Path) -> None:
    """As under torchrun, whose agent serves the store: all ranks connect to it, and start anew in the same one."""
    port, file = free_port(), folder / "served.json"
    # Rank 0 of a launch whose rank 1 never comes serves a store for as long as it waits.
    agent = start(program, ["--text", text, *TINY, "--ep", "1", "--pp", "2", "--deadline", "200"], RANK=0, WORLD_SIZE=2,
                  MASTER_PORT=port, TORCHELASTIC_RUN_ID="agent")
    try:
        flags = ["--text", text, *TINY, "--ep", "1", "--pp", "2", "--steps", "1", "--deadline", "60", "--json", str(file)]
        digests = []
        for attempt in (0, 0, 1):
            given = {"WORLD_SIZE": 2, "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "served", "TORCHELASTIC_USE_AGENT_STORE": "True",
                     "TORCHELASTIC_RESTART_COUNT": attempt}
            ranks = [start(program, flags, RANK=rank, **given) for rank in range(2)]
            if len(digests) == 1 and attempt == 0:
                # The same attempt once more is not one of the launcher's.
                ends(ranks, ["another launch has rank 0", "another launch has rank 1"])
                continue
            for each in ranks:
                out, err = each.communicate(timeout=120)
                assert each.returncode == 0 and err == "", (out, err)
            digests.append(json.loads(file.read_text())["grad_digest"])
        assert len(digests) == 2 and digests[0] == digests[1], digests
        assert agent.poll() is None
        ends([start(program, flags, RANK=0, TORCHELASTIC_RESTART_COUNT="x", **{key: value for key, value in given.items()
                                                                             if key != "TORCHELASTIC_RESTART_COUNT"})],
             ["TORCHELASTIC_RESTART_COUNT must be a whole number"])
    finally:
        agent.kill()
        agent.communicate()
    nobody = free_port()
    ends([start(program, ["--text", text, *TINY, "--ep", "1", "--pp", "2", "--deadline", "2"], RANK=0, WORLD_SIZE=2, MASTER_PORT=nobody,
                TORCHELASTIC_USE_AGENT_STORE="True")], [f"no store of a launcher answers at 127.0.0.1:{nobody} within 2 s"])


def check_launch(program: str, text: str) -> None:
    """A rank that refuses at once ends the launch, which else would wait for it."""
    flags = ["--text", text, *TINY, "--ep", "1", "--pp", "2", "--deadline", "200"]
    script = '[ "$RANK" = 0 ] || exec "$@" --layers x; exec "$@"'
    answer = subprocess.run(["sh", str(LAUNCH), "2", "--", "sh", "-c", script, "sh", program, *flags], env=environment(),
                            capture_output=True, text=True, timeout=60)
    lines = answer.stderr.splitlines()
    assert answer.returncode == 2 and answer.stdout == "" and len(lines) == 2, answer
    assert lines[0].startswith("train_moe: ") and lines[1] == "launch.sh: rank 1 ended with exit code 2; ending the others", answer


def check_patience(program: str, text: str, folder: pathlib.Path) -> None:
    """A rank may wait longer than the deadline for others that work."""
    file = folder / "patience.json"
    flags = ["--text", text, "--ep", "1", "--pp", "3", "--pipeline", "serial", "--microbatches", "1", "--batch", "128",
             "--hidden", "64", "--ffn", "64", "--seq", "64", "--steps", "1", "--json", str(file)]

    def waits(deadline: int, layers: int) -> float:
        """Of the first rank, in seconds: for the other two thirds of the layers of the one microbatch."""
        answer = subprocess.run(["sh", str(LAUNCH), "3", "--", program, *flags, "--layers", str(layers), "--deadline", str(deadline)],
                                env=environment(), capture_output=True, text=True, timeout=280)
        assert answer.returncode == 0 and answer.stderr == "", answer
        return json.loads(file.read_text())["schedule_seconds"][0] * 2 / 3

    # How long it waits here and now; with half of that for a deadline an op of those that work may take many times as long as it does.
    layers = 20
    while (waited := waits(60, layers)) < 2.5:
        layers *= 2
    for _ in range(4):
        deadline = max(1, int(waited / 2))
        waited = waits(deadline, layers)
        if waited > deadline:
            return
    raise AssertionError(f"no rank waited longer than the deadline: {waited:.1f} s, {deadline} s")


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
    # However few cores there are.
    ends([one("--own-cores", RANK=0, WORLD_SIZE=2)], ["--own-cores shares the cores of a process among its ranks"])
    ends([one(RANK=1, WORLD_SIZE=2, MASTER_ADDR="no-such-host.invalid")], ["'no-such-host.invalid' does not resolve"])
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ends([one(RANK=0, WORLD_SIZE=2, MASTER_PORT=port)], [f"cannot listen at MASTER_PORT {port}"])
    # An address that belongs to nobody (RFC 5737).
    ends([start(program, ["--text", text, *TINY, "--ep", "1", "--pp", "2", "--deadline", "2"], RANK=0, WORLD_SIZE=2,
                MASTER_ADDR="192.0.2.1", MASTER_PORT=free_port())], ["cannot reach itself at MASTER_ADDR '192.0.2.1'"])
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
    if part_of(os.environ.get("STRETTO_EVERY_SIZE")):
        with tempfile.TemporaryDirectory() as place:
            check_bits(program, write_text(pathlib.Path(place)), pathlib.Path(place))
        return
    with tempfile.TemporaryDirectory() as place:
        check_refusals(program, write_text(pathlib.Path(place)), pathlib.Path(place))
    with tempfile.TemporaryDirectory() as place:
        check_served_store(program, write_text(pathlib.Path(place)), pathlib.Path(place))
        check_launch(program, write_text(pathlib.Path(place)))
        check_patience(program, write_text(pathlib.Path(place)), pathlib.Path(place))
        check_bits(program, write_text(pathlib.Path(place)), pathlib.Path(place))
        check_slots(program, write_text(pathlib.Path(place)), pathlib.Path(place))
        if "STRETTO_EVERY_SIZE" in os.environ:
            check_growth(program, write_text(pathlib.Path(place)), pathlib.Path(place))


if __name__ == "__main__":
    main()
