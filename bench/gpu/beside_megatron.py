"""beside_megatron.py --train-moe PROGRAM --other COMMAND: whole steps of train_moe and of another trainer, in turns.

Both run forward and backward of the same microbatches at the same shapes on two GPUs; neither updates weights in the measured
time. COMMAND starts one rank of the other program and is run once for each rank, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR
and MASTER_PORT in its environment. In it {layers} {hidden} {heads} {ffn} {experts} {top_k} {seq} {batch} {microbatches} {vocab}
stand for the shape. Rank 0 prints a line for each of its ways to run the step, in milliseconds and GiB:

    step NAME median MS ms ... peak GIB GiB

train_moe routes by its router as it is initialised, which is less even than a forced balance; its peak is that of what a step makes,
without parameters. The way named by --other-serial is the one without overlap. Megatron-Core's `overlap_moe_expert_parallel_comm` on and off are two
such ways. A vocabulary of 256 makes the heads equal, since train_moe predicts bytes.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile

RANKS = 2
SHAPES = {
    "coarse": dict(layers=4, hidden=4096, heads=32, ffn=4096, experts=8, top_k=2, seq=4096, batch=2, microbatches=8),
    "fine": dict(layers=4, hidden=4096, heads=32, ffn=1024, experts=16, top_k=8, seq=4096, batch=2, microbatches=8),
    "small": dict(layers=4, hidden=2048, heads=32, ffn=2048, experts=8, top_k=2, seq=2048, batch=1, microbatches=8),
}
LINE = re.compile(r"^step\s+(\S+)\s+median\s+([0-9.]+)\s*ms(?:.*peak\s+([0-9.]+)\s*GiB)?")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def other(command: str, shape: dict, vocab: int, limit: float) -> dict[str, tuple[float, float]]:
    """Milliseconds of a step and peak GiB, by the names that the other program gives its ways."""
    port = str(free_port())
    words = [word.format(**shape, vocab=vocab) for word in shlex.split(command)]
    ranks = []
    try:
        for rank in range(RANKS):
            where = dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            ranks.append(subprocess.Popen(words, env={**os.environ, **where}, text=True, stderr=subprocess.STDOUT,
                                          stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL))
        said, _ = ranks[0].communicate(timeout=limit)
        for one in ranks[1:]:
            one.wait(timeout=limit)
    finally:
        for one in ranks:
            if one.poll() is None:
                one.kill()
                one.wait()
    found = {name: (float(ms), float(gib or "nan")) for name, ms, gib in (m.groups() for m in map(LINE.match, said.splitlines()) if m)}
    if not found or any(one.returncode for one in ranks):
        sys.exit(f"the other program ended with {[one.returncode for one in ranks]} and told {len(found)} ways to run a step:\n{said[-2000:]}")
    return found


def ours(program: str, text: str, policy: str, shape: dict, steps: int, warm_up: int, more: list[str], limit: float) -> tuple[list[float], float]:
    """Milliseconds of each step, and peak GiB of what a step makes."""
    flags = [word for name, value in shape.items() for word in ("--" + name.replace("_", "-"), str(value))]
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "run.json"
        # So small a rate leaves the router where it began: the same routing in all steps.
        done = subprocess.run([program, "--text", text, "--device", "cuda", "--dtype", "bf16", "--ep", str(RANKS), "--policy", policy, "--steps",
                               str(steps + warm_up), "--lr", "1e-12", "--dense", "0", "--shared", "0", "--aux", "0", "--json", str(report), *flags, *more],
                              text=True, capture_output=True, timeout=limit)
        if done.returncode:
            sys.exit(f"train_moe ended with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
        told = json.loads(report.read_text())
    return [1e3 * seconds for seconds in told["schedule_seconds"][warm_up:]], told["peak_bytes"] / 2**30


def table(name: str, shape: dict, our_ms: dict, our_peak: dict, other_ms: dict, other_peak: dict, other_serial: str) -> tuple[str, dict]:
    """Markdown, and the same as data. Each program is compared with its own step without overlap, and with the other's best."""
    best_other = min(statistics.median(v) for v in other_ms.values())
    lines = [f"### {name}: " + ", ".join(f"{k} {v}" for k, v in shape.items()), "",
             "| program | step | median ms | least .. most | to own serial | other's best / this | peak GiB |", "| --- | --- | --- | --- | --- | --- | --- |"]
    data = {}
    for program, all_ms, peak, serial in (("train_moe", our_ms, our_peak, "serial"), ("the other", other_ms, other_peak, other_serial)):
        base = statistics.median(all_ms[serial]) if serial in all_ms else float("nan")
        data[program] = {}
        for way, ms in all_ms.items():
            middle = statistics.median(ms)
            lines.append(f"| {program} | {way} | {middle:.1f} | {min(ms):.1f} .. {max(ms):.1f} | {middle / base:.3f} | {best_other / middle:.3f} | {peak[way]:.2f} |")
            data[program][way] = dict(median_ms=middle, ms=ms, of_own_serial=middle / base, faster_than_others_best=best_other / middle, peak_gib=peak[way])
    return "\n".join(lines) + "\n", data


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--train-moe", required=True, metavar="PROGRAM")
    arguments.add_argument("--other", required=True, metavar="COMMAND")
    arguments.add_argument("--other-serial", default="off", metavar="NAME")
    arguments.add_argument("--shapes", default=",".join(SHAPES), help="of " + ", ".join(SHAPES) + "; one may be changed: small:layers=2:seq=512")
    arguments.add_argument("--policies", default="serial,two_stream_1f1b,split_dw", help="of train_moe, each a run of its own")
    arguments.add_argument("--rounds", type=int, default=2, help="turns of each program")
    arguments.add_argument("--steps", type=int, default=8, help="measured steps of train_moe in a round")
    arguments.add_argument("--warm-up", type=int, default=3)
    arguments.add_argument("--vocab", type=int, default=256, help="of the other program; train_moe has 256")
    arguments.add_argument("--text", default="/usr/include/c++")
    arguments.add_argument("--more", default="", metavar="FLAGS", help="for train_moe, such as '--comm peer'")
    arguments.add_argument("--limit", type=float, default=300, metavar="SECONDS", help="for one run of one program")
    arguments.add_argument("--json", type=pathlib.Path)
    given = arguments.parse_args()

    written = dict(date=datetime.date.today().isoformat(), other=given.other, vocab_of_other=given.vocab, more=given.more, shapes={})
    for text in given.shapes.split(","):
        name, *changes = text.split(":")
        if name not in SHAPES:
            sys.exit(f"--shapes knows {', '.join(SHAPES)}, not {name}")
        shape = {**SHAPES[name], **{k: int(v) for k, v in (change.split("=") for change in changes)}}
        our_ms: dict[str, list[float]] = {}
        our_peak: dict[str, float] = {}
        other_ms: dict[str, list[float]] = {}
        other_peak: dict[str, float] = {}
        for _ in range(given.rounds):
            for way, (ms, gib) in other(given.other, shape, given.vocab, given.limit).items():
                other_ms.setdefault(way, []).append(ms)
                print(f"{text}: the other, {way}: {ms:.1f} ms", file=sys.stderr, flush=True)
                other_peak[way] = max(gib, other_peak.get(way, 0.0))
            for policy in given.policies.split(","):
                all_ms, gib = ours(given.train_moe, given.text, policy, shape, given.steps, given.warm_up, shlex.split(given.more), given.limit)
                our_ms.setdefault(policy, []).extend(all_ms)
                print(f"{text}: train_moe, {policy}: {statistics.median(all_ms):.1f} ms", file=sys.stderr, flush=True)
                our_peak[policy] = max(gib, our_peak.get(policy, 0.0))
        shown, data = table(name, shape, our_ms, our_peak, other_ms, other_peak, given.other_serial)
        print(shown, flush=True)
        written["shapes"][text] = dict(shape=shape, **data)
        if given.json:
            given.json.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
