"""beside_megatron.py --train-moe PROGRAM --other COMMAND --json FILE: whole steps of train_moe and of another trainer, in turns.
beside_megatron.py --table FILE...: what was written, as tables for a page.

Both run forward and backward of the same microbatches at the same shapes on two GPUs; neither updates weights in the measured
time. COMMAND starts one rank of the other program and is run once for each rank, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR
and MASTER_PORT in its environment. In it {layers} {hidden} {heads} {ffn} {experts} {top_k} {seq} {batch} {microbatches} {vocab}
stand for the shape. Of what rank 0 prints these are read, the first for each of its ways to run the step:

    step NAME median MS ms ... peak GIB GiB
    ... params/rank BILLIONS B
    ... all-to-alls take MS ms

Ways of train_moe are policies; POLICY+slots has slots of a fixed number (--capacity), POLICY+graph replays that as a graph; +processes: ranks
are processes, not threads; +fast: with --attention fast, whose bits are not the same in every run; +none: every rank keeps its rows,
a copy on its own GPU in place of each exchange. What communication allows a way to gain is its own serial step less the same way with +none.
train_moe routes by random numbers (--force-load-balancing), as the other program should, so that no rank waits for one with
more rows. A vocabulary of 256 makes the heads equal, since train_moe predicts bytes. Communication is what the all-to-alls of a serial step take, with the
waits for the slower rank; peaks are of what a step makes, without parameters and gradients (of the other program 4 bytes a parameter are taken off).

Measured steps have no times of their ops, which cost two events an op. What communication takes is told by one further run of serial
ways with --trace; what its steps took is kept beside it and counts for nothing else.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import re
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile

import child
from arguments import Parser, above_0, at_least, command, existing, list_of, new_file, one_of, policy, program, refused, shell_words

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RANKS = 2
TRACED_STEPS = 2
SHAPES = {
    "coarse": dict(layers=4, hidden=4096, heads=32, ffn=4096, experts=8, top_k=2, seq=4096, batch=2, microbatches=8),
    "fine": dict(layers=4, hidden=4096, heads=32, ffn=1024, experts=16, top_k=8, seq=4096, batch=2, microbatches=8),
    "small": dict(layers=4, hidden=2048, heads=32, ffn=2048, experts=8, top_k=2, seq=2048, batch=1, microbatches=8),
}
STEP = re.compile(r"^step\s+(\S+)\s+median\s+([0-9.]+)\s*ms(?:.*peak\s+([0-9.]+)\s*GiB)?", re.M)
PARAMETERS = re.compile(r"params/rank\s+([0-9.]+)\s*B")
COMMUNICATION = re.compile(r"all-to-alls take\s+([0-9.]+)\s*ms")
# As train_moe has them: `fill_uninitialized_memory` would only cost time.
DETERMINISTIC = """try:
    import torch
except ImportError as problem:
    raise SystemExit(problem)
torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = False
torch.backends.cudnn.deterministic = True
torch.backends.cuda.enable_cudnn_sdp(False)
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def other_command(text: str, shape: dict, vocab: int) -> list[str]:
    try:
        return command(text.format(**shape, vocab=vocab))
    except (KeyError, IndexError, ValueError, AttributeError, MemoryError) as problem:
        raise refused(f"{problem or 'a width'} in braces; these stand for the shape: {', '.join([*shape, 'vocab'])}") from None


def other(given: argparse.Namespace, shape: dict, hooks: str) -> dict[str, dict]:
    """Of each way of the other program the milliseconds of a step, and its peak."""
    words = other_command(given.other, shape, given.vocab)
    common = {**os.environ, "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    if given.other_deterministic:
        pathlib.Path(hooks, "sitecustomize.py").write_text(DETERMINISTIC)
        common.update(CUBLAS_WORKSPACE_CONFIG=":4096:8", PYTHONPATH=os.pathsep.join(filter(None, (hooks, os.environ.get("PYTHONPATH")))))
    ranks = []
    try:
        for rank in range(RANKS):
            ranks.append(child.start(words, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stderr=subprocess.STDOUT,
                                     stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL))
        said, _ = ranks[0].communicate(timeout=given.limit)
        for one in ranks[1:]:
            one.wait(timeout=given.limit)
    except subprocess.TimeoutExpired:
        sys.exit(f"the other program did not end within --limit {given.limit:g} s")
    finally:
        for one in ranks:
            child.end(one)
    steps, parameters, communication = STEP.findall(said), PARAMETERS.search(said), COMMUNICATION.search(said)
    if not steps or any(one.returncode for one in ranks):
        sys.exit(f"the other program ended with {[one.returncode for one in ranks]} and told {len(steps)} ways to run a step:\n{said[-2000:]}")
    kept = 4e9 * float(parameters[1]) / 2**30 if parameters else 0.0
    return {name: dict(ms=[float(ms)], peak_gib=float(gib or "nan") - kept,
                       comm_ms=float(communication[1]) if communication and name == given.other_serial else None) for name, ms, gib in steps}


def communication_of(trace: dict) -> float:
    """Milliseconds that a rank spends in dispatch and combine, the mean of the ranks."""
    ops = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    return sum(op["dur"] for op in ops if re.match(r"\w\.(dispatch|combine) ", op["name"])) / 1e3 / len({op["pid"] for op in ops})


def is_serial(way: str) -> bool:
    """Whether the exchanges in it are what communication takes."""
    policy, *extra = way.split("+")
    return policy == "serial" and not {"none", "graph"} & set(extra)


def ours(given: argparse.Namespace, way: str, shape: dict, folder: str, steps: int, trace: pathlib.Path | None = None) -> dict:
    """What that many steps behind the warm ones take. With `trace` every op of theirs is timed, and the last step goes there."""
    policy, *extra = way.split("+")
    flags = [word for name, value in shape.items() for word in ("--" + name.replace("_", "-"), str(value))]
    if {"slots", "graph"} & set(extra):
        flags += ["--capacity", str(given.capacity)] + ["--graph"] * ("graph" in extra)
    if "fast" in extra:
        flags += ["--attention", "fast"]
    report = pathlib.Path(folder, "run.json")
    if trace:
        flags += ["--trace", str(trace)]
    # So small a rate leaves the weights where they began.
    more = shlex.split(given.more)
    if "none" in extra:
        at = more.index("--comm") if "--comm" in more else len(more)
        more[at:at + 2] = ["--comm", "none"]
    done = child.run([*(given.launch + [str(RANKS), "--"] if "processes" in extra else []), given.train_moe, "--text", given.text, "--device", "cuda", "--dtype", "bf16", "--ep", str(RANKS), "--policy", policy, "--steps",
                           str(given.warm_up + steps), "--lr", "1e-12", "--dense", "0", "--shared", "0", "--aux", "0", "--force-load-balancing", "--json", str(report), *flags,
                           *more], given.limit)
    if done.returncode:
        sys.exit(f"train_moe ended with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    if not report.exists():
        sys.exit(f"{given.train_moe} ended well and wrote no results; --train-moe takes train_moe or train_moe_cuda")
    told = json.loads(report.read_text())
    return dict(ms=[1e3 * seconds for seconds in told["schedule_seconds"][given.warm_up:]], peak_gib=told["peak_bytes"] / RANKS / 2**30)


def traced(given: argparse.Namespace, way: str, shape: dict, folder: str) -> dict:
    """A short run with times of ops: what communication takes, and what the steps took that were timed so."""
    trace = pathlib.Path(given.traces or folder, f"{way}.json")
    found = dict(traced_ms=ours(given, way, shape, folder, TRACED_STEPS, trace)["ms"])
    return found | (dict(comm_ms=communication_of(json.loads(trace.read_text()))) if is_serial(way) else {})


def note(runs: dict[str, dict], way: str, found: dict) -> None:
    """One more turn of a way, or what was found of it apart."""
    before = runs.setdefault(way, dict(ms=[], peak_gib=0.0, comm_ms=[], traced_ms=[]))
    before["ms"] += found.get("ms", [])
    before["peak_gib"] = max(before["peak_gib"], found.get("peak_gib", 0.0))
    before["comm_ms"] += [found["comm_ms"]] if found.get("comm_ms") is not None else []
    before["traced_ms"] += found.get("traced_ms", [])


def measure(given: argparse.Namespace) -> None:
    written = dict(date=datetime.date.today().isoformat(), other=given.other, other_serial=given.other_serial, other_without_comm=given.other_without_comm,
                   other_deterministic=given.other_deterministic, vocab_of_other=given.vocab, capacity=given.capacity, more=given.more, shapes={})
    for text, shape in given.shapes:
        one = written["shapes"][text] = dict(shape=shape, train_moe={}, other={})

        def tell(program: str, way: str, found: dict) -> None:
            note(one[program], way, found)
            said = f"{statistics.median(found['ms']):.1f} ms, {found['peak_gib']:.2f} GiB" if "ms" in found else f"with times of ops {statistics.median(found['traced_ms']):.1f} ms"
            print(f"{text}: {program}, {way}: {said}", file=sys.stderr, flush=True)
            given.json.write_text(json.dumps(written, indent=1) + "\n")

        with tempfile.TemporaryDirectory() as folder:
            for _ in range(given.rounds):
                for way, found in other(given, shape, folder).items() if given.other else ():
                    tell("other", way, found)
                for way in given.ways:
                    tell("train_moe", way, ours(given, way, shape, folder, given.steps))
            for way in given.ways:
                if is_serial(way) or (given.traces and "+graph" not in way):
                    tell("train_moe", way, traced(given, way, shape, folder))


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else "-"


def serial_of(way: str, runs: dict) -> str:
    """The serial step that is otherwise like it, as far as there is one."""
    like = "+".join(["serial", *(word for word in way.split("+")[1:] if word != "none")])
    return next((each for each in (like, "serial", *runs) if each in runs and each.startswith("serial")), "serial")


def table(told: dict) -> str:
    """Each program is compared with its own step without overlap, and with the other's best."""
    lines = []
    for text, one in told["shapes"].items():
        middle = {program: {way: statistics.median(run["ms"]) for way, run in one[program].items()} for program in ("train_moe", "other")}
        floor = told["other_without_comm"]
        best_other = min((ms for way, ms in middle["other"].items() if way != floor), default=None)
        lines += [f"**{text}**: " + ", ".join(f"{k} {v}" for k, v in one["shape"].items()), "",
                  "| program | step | median ms | least .. most | of own serial | communication, ms | gained, of communication | gained, of what it allows "
                  "| other's best / this | peak GiB a rank |", "| --- " * 10 + "|"]
        for program in ("train_moe", "other"):
            runs = one[program]
            for way, run in runs.items():
                ms, own = middle[program][way], told["other_serial"] if program == "other" else serial_of(way, runs)
                base = middle[program].get(own, math.nan)
                comm = statistics.median(runs.get(own, {}).get("comm_ms") or [math.nan])
                allowed = base - middle[program].get(floor if program == "other" else way + "+none", math.nan)
                is_way = way not in (own, floor) and not way.endswith("+none")
                lines.append(f"| {program} | {way} | {ms:.1f} | {min(run['ms']):.1f} .. {max(run['ms']):.1f} | {ms / base:.3f} | "
                             + (f"{comm:.1f}" if way == own and not math.isnan(comm) else "") + f" | {share(base - ms, comm) if is_way else ''} "
                             f"| {share(base - ms, allowed) if is_way else ''} | " + (f"{best_other / ms:.3f}" if best_other else "-") + f" | {run['peak_gib']:.2f} |")
        lines.append("")
    return "\n".join(lines)


def read_shape(text: str) -> tuple[str, dict]:
    name, *changes = text.split(":")
    made = dict(SHAPES[one_of(SHAPES)(name)])
    for change in changes:
        size, _, value = change.partition("=")
        if size not in made:
            raise refused(f"'{size}' is no size of a shape; they are {', '.join(made)}")
        made[size] = at_least(1)(value)
    return text, made


def read_way(text: str) -> str:
    how, *extra = text.split("+")
    policy(how)
    if unknown := set(extra) - {"slots", "graph", "fast", "processes", "none"}:
        raise refused(f"'{text}' has +{', +'.join(sorted(unknown))}; there are +slots, +graph, +fast, +processes and +none")
    if {"none", "processes"} <= set(extra):
        raise refused(f"'{text}': ranks that keep their rows (+none) are threads; leave out +processes")
    return text


def read_results(path: str) -> dict:
    """What a run wrote."""
    try:
        told = json.loads(pathlib.Path(existing(path)).read_text())
        table(told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise refused(f"{path} is nothing that --json wrote") from None
    return told


def main() -> None:
    arguments = Parser(__doc__)
    arguments.add_argument("--table", nargs="+", type=read_results, metavar="FILE")
    arguments.add_argument("--train-moe", type=program, metavar="PROGRAM")
    arguments.add_argument("--other", metavar="COMMAND")
    arguments.add_argument("--other-serial", default="off", metavar="NAME")
    arguments.add_argument("--other-without-comm", default="onhpnc", metavar="NAME", help="its overlapped step with nothing in place of the all-to-alls")
    arguments.add_argument("--other-deterministic", action="store_true", help="with torch's deterministic algorithms, which train_moe has but for the attention of +fast")
    arguments.add_argument("--shapes", type=list_of(read_shape), default=",".join(SHAPES), help="of " + ", ".join(SHAPES) + "; one may be changed: small:layers=2:seq=512")
    arguments.add_argument("--ways", type=list_of(read_way), default="serial,two_stream_1f1b,split_dw", help="of train_moe, each a run of its own, such as split_dw+graph")
    arguments.add_argument("--capacity", type=above_0, default=1.5, help="of +slots and +graph")
    arguments.add_argument("--rounds", type=at_least(1), default=2, help="turns of each program")
    arguments.add_argument("--steps", type=at_least(1), default=8, help="measured steps of train_moe in a round")
    arguments.add_argument("--warm-up", type=at_least(0), default=3)
    arguments.add_argument("--vocab", type=at_least(1), default=256, help="of the other program; train_moe has 256")
    arguments.add_argument("--text", default="/usr/include/c++")
    arguments.add_argument("--launch", type=command, default=f"sh {ROOT}/examples/launch.sh", metavar="COMMAND", help="takes a number of processes, -- and a program")
    arguments.add_argument("--more", type=shell_words, default="--comm peer", metavar="FLAGS", help="for train_moe")
    arguments.add_argument("--traces", type=existing, metavar="FOLDER", help="keeps a step of each way of train_moe but +graph, from a further run with times of ops")
    arguments.add_argument("--limit", type=above_0, default=300, metavar="SECONDS", help="for one run of one program")
    arguments.add_argument("--json", type=new_file)
    given = arguments.parse_args()
    if not given.table:
        if not (given.train_moe and given.json):
            arguments.error("give --train-moe, --json and, if train_moe is not to run alone, --other; or --table FILE")
        if not given.shapes:
            arguments.error("argument --shapes: name one")
        try:
            existing(given.text)
        except argparse.ArgumentTypeError as problem:
            arguments.error(f"argument --text: {problem}")
        try:
            for _, each in given.shapes if given.other else ():
                other_command(given.other, each, given.vocab)
        except argparse.ArgumentTypeError as problem:
            arguments.error(f"argument --other: {problem}")
        measure(given)
    for told in given.table or [json.loads(given.json.read_text())]:
        print(table(told))


if __name__ == "__main__":
    main()
