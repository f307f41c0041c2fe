"""grid.py --train-moe PROGRAM --plan PROGRAM: whole steps of train_moe over grids of GPUs, beside what plan says of them.

Three tables of Markdown on stdout; --json keeps all figures.

scaling     tokens a second on 1, 2, 4 ... GPUs, expert parallel, with as many tokens a GPU, without overlap and with it;
pipelines   for each grid of pipeline x expert ranks the step of every pipeline, and as a ratio to the first of --ways, beside the
            replay of its plan with op costs from serial runs at equal expert ranks (no constant is fitted);
memory      the peak of each pipeline rank beside the live layers of its plan times the size of a layer, which comes from two
            serial runs of different depth; what embedding, head and a single op take counts once, on every rank.

Ranks are processes, each with a GPU, started by examples/launch.sh; --threads lets them be threads of one process, --device cpu runs
on cores (with `train_moe` for PROGRAM). A rate of 1e-12 keeps the routing as it is initialised. Milliseconds are those of forward
and backward between two barriers, medians; tokens a second count the update too.
"""

import argparse
import concurrent.futures
import datetime
import functools
import itertools
import json
import math
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import child
from arguments import Parser, above_0, at_least, existing, list_of, new_file, policy, program, refused, shell_words

LAUNCH = pathlib.Path(__file__).resolve().parents[2] / "examples" / "launch.sh"
MODELS = {
    "cuda": dict(layers=16, hidden=2048, heads=16, ffn=2048, experts=8, top_k=2, seq=4096, batch=1, microbatches=16, dtype="bf16"),
    "cpu": dict(layers=16, hidden=128, heads=4, ffn=128, experts=8, top_k=2, seq=128, batch=2, microbatches=16, dtype="f32"),
}
WAYS = ["one_f_one_b:serial", "one_f_one_b_ep:split_dw", "interleaved_ep:two_stream_1f1b", "dual_pipe_v:split_dw", "zero_bubble_v:serial"]


class Trainer:
    """Runs of train_moe; what they write lies in a folder."""

    def __init__(self, given: argparse.Namespace, model: dict, folder: pathlib.Path) -> None:
        self.given, self.model, self.folder, self.runs = given, model, folder, itertools.count(1)

    def run(self, pp: int, ep: int, pipeline: str, policy: str, traces: bool = False, cores: tuple[int, ...] = (),
            steps: int | None = None, **changes: int) -> tuple[dict, pathlib.Path]:
        """The results, and where the trace is. It keeps to those cores, if any are named; `steps` are measured, as many as asked for if
        left out."""
        given, ranks, number = self.given, pp * ep, next(self.runs)
        results, trace = self.folder / f"{number}.json", self.folder / f"{number}.trace.json"
        flags = [word for name, value in {**self.model, **changes}.items() for word in ("--" + name.replace("_", "-"), str(value))]
        flags += ["--text", given.text, "--device", given.device, "--pp", str(pp), "--ep", str(ep), "--policy", policy, "--steps",
                  str(given.warm_up + (steps or given.steps)), "--lr", "1e-12", "--deadline", "120", "--json", str(results)]
        flags += ["--pipeline", pipeline] if pipeline else []
        flags += ["--chunks", "2"] if pipeline.startswith("interleaved") else []
        flags += ["--trace", str(trace)] if traces else []
        launch = ["sh", str(LAUNCH), *(["--share-gpu"] if given.share_gpu else []), str(ranks), "--"]
        keep = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        command = [*keep, *([] if given.threads or ranks == 1 else launch), given.train_moe, *flags, *shlex.split(given.more)]
        # No program here has a use for NVLink multicast.
        done = child.run(command, given.limit, env={"NCCL_NVLS_ENABLE": "0", **os.environ})
        if done.returncode:
            sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout[-500:]}{done.stderr[-2000:]}")
        if not results.exists():
            sys.exit(f"{given.train_moe} ended well and wrote no results; --train-moe takes train_moe or train_moe_cuda")
        told = json.loads(results.read_text())
        told["ms"] = [1e3 * seconds for seconds in told["schedule_seconds"][given.warm_up:]]
        told["whole_ms"] = [1e3 * seconds for seconds in told["step_seconds"][given.warm_up:]]
        # Null where ops are not timed: on GPUs without a trace.
        exposed = told["exposed_seconds"]
        told["exposed_ms"] = None if exposed is None else 1e3 * exposed / len(told["step_seconds"])
        where = f", cores {cores[0]} to {cores[-1]}" if cores else ""
        print(f"{pp} x {ep} ranks, {pipeline or 'no pipeline'}, {policy}{where}: {statistics.median(told['ms']):.1f} ms", file=sys.stderr, flush=True)
        return told, trace

    @functools.cache
    def serial(self, ep: int) -> tuple[dict, pathlib.Path]:
        return self.run(1, ep, "zero_bubble_h1", "serial", traces=True)

    def shares(self, pp: int, ep: int) -> list[tuple[int, ...]]:
        """The cores of each pipeline rank, those that `train_moe --own-cores` keeps its expert ranks to: as many for every rank. None on
        GPUs, nor where there are fewer cores than ranks."""
        cores = sorted(os.sched_getaffinity(0))
        each = len(cores) // (pp * ep) * ep
        return [tuple(cores[rank * each:(rank + 1) * each]) for rank in range(pp)] if self.given.device == "cpu" and each else []

    def serial_traces(self, pp: int, ep: int, policy: str) -> list[pathlib.Path]:
        """Of runs in which one op runs at a time. On GPUs one. On cores, which share caches, memory and clock, and may differ in speed, one
        for each pipeline rank, all at the same time, each on the cores of its rank, with the policy whose lanes the ops are for. Only the
        last step is traced: its microbatches take about as long as the measured steps of the pipeline together."""
        shares = self.shares(pp, ep)
        if not shares:
            return [self.serial(ep)[1]]
        microbatches = self.model["microbatches"] * math.ceil(self.given.steps / pp)
        with concurrent.futures.ThreadPoolExecutor(pp) as at_once:
            return list(at_once.map(lambda mine: self.run(1, ep, "zero_bubble_h1", policy, traces=True, cores=mine, steps=1,
                                                          microbatches=microbatches)[1], shares))

    def costs(self, runs: list[list[pathlib.Path]], ep: int) -> pathlib.Path:
        """One trace of all serial runs. Where ranks keep to cores, numbered as in a run of all ranks: each has its own costs. Else as one
        run, since any rank may be on any core. Runs of the same number follow each other."""
        keeps = self.given.threads and "--own-cores" in shlex.split(self.given.more)
        events, end, about = [], 0.0, {}
        for at_once in runs:
            start = end
            for pipeline_rank, trace in enumerate(at_once):
                start = start if keeps else end
                about = json.loads(trace.read_text())
                ops = [event for event in about["traceEvents"] if event["ph"] == "X"]
                shift = start - min(op["ts"] for op in ops)
                events += [{**op, "pid": op["pid"] + pipeline_rank * ep * keeps, "ts": op["ts"] + shift} for op in ops]
                end = max(end, *(op["ts"] + op["dur"] + shift for op in ops))
        file = self.folder / f"{next(self.runs)}.costs.json"
        file.write_text(json.dumps({**about, "traceEvents": events}))
        return file

    def plan(self, *words: object) -> dict:
        done = child.run([self.given.plan, *map(str, words), "--json"], self.given.limit)
        if done.returncode:
            sys.exit(f"plan {' '.join(map(str, words))}: {done.stderr}")
        return json.loads(done.stdout)


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)) + "\n"


def exposed_of(told: dict) -> str:
    return "-" if told["exposed_ms"] is None else f"{told['exposed_ms']:.2f}"


def scaling(trainer: Trainer, counts: list[int], policies: list[str]) -> tuple[str, list[dict]]:
    model, rows, found, alone = trainer.model, [], [], {}
    for count in counts:
        for policy in policies:
            told, _ = trainer.run(1, count, "", policy)
            middle = statistics.median(told["whole_ms"])
            each = model["microbatches"] * model["batch"] * model["seq"] / middle * 1e3
            alone.setdefault(policy, each)
            found.append(dict(gpus=count, policy=policy, step_ms=told["whole_ms"], tokens_per_second=count * each, exposed_ms=told["exposed_ms"],
                              of_the_first=each / alone[policy]))
            rows.append([str(count), policy, f"{middle:.1f}", f"{min(told['whole_ms']):.1f} .. {max(told['whole_ms']):.1f}",
                         f"{count * each:,.0f}", f"{each / alone[policy]:.3f}", exposed_of(told)])
    head = ["ranks", "policy", "step, ms", "least .. most", "tokens/s", f"a rank, to that with {counts[0]}", "exposed communication, ms"]
    return table(head, rows), found


@functools.cache
def sizes_of_memory(trainer: Trainer, ep: int) -> tuple[float, float]:
    """Bytes that a rank's step takes without its layers, and that a layer and microbatch keeps for its backward: of ranks in series,
    which keep one microbatch."""
    layers = trainer.model["layers"]
    whole, _ = trainer.serial(ep)
    half, _ = trainer.run(1, ep, "zero_bubble_h1", "serial", layers=layers // 2)
    deep, shallow = max(whole["process_peak_bytes"]), max(half["process_peak_bytes"])
    a_layer = (deep - shallow) / (layers - layers // 2)
    return deep - layers * a_layer, a_layer


def runs_with_costs(trainer: Trainer, pp: int, ep: int, ways: list[str]) -> Iterator[tuple[str, dict, pathlib.Path, pathlib.Path]]:
    """Each way, its results, its trace, and what its ops cost in serial runs before and behind it: cores of a machine that others use too
    change their speed by the minute."""
    for policy, of_policy in itertools.groupby(ways, lambda way: way.split(":")[1]):
        before = trainer.serial_traces(pp, ep, policy)
        for way in of_policy:
            told, trace = trainer.run(pp, ep, *way.split(":"), traces=True, cores=tuple(itertools.chain(*trainer.shares(pp, ep))))
            behind = trainer.serial_traces(pp, ep, policy)
            yield way, told, trace, trainer.costs([before, behind] if behind != before else [before], ep)
            before = behind


def pipelines(trainer: Trainer, pp: int, ep: int, ways: list[str], found: list[dict],
              save: Callable[[], None]) -> tuple[str, str]:
    """The table of times, and that of memory unless ranks are threads; `found` gets what they say, and is saved way by way."""
    model, first, rows, memory = trainer.model, None, [], []
    for way, told, trace, costs in runs_with_costs(trainer, pp, ep, ways):
        pipeline, policy = way.split(":")
        replay = trainer.plan("--measured", trace, "--costs", costs)
        middle = statistics.median(told["ms"])
        ops = [sum(rank[which]["compute"] for rank in replay["per_rank"]) for which in ("predicted", "measured")]
        one = dict(pp=pp, ep=ep, pipeline=pipeline, policy=policy, ms=told["ms"], predicted_ms=replay["predicted_makespan"],
                   traced_ms=replay["measured_makespan"], own_ops_ms=replay["makespan_of_own_ops"], compute=ops[1] / ops[0], exposed_ms=told["exposed_ms"],
                   serial_runs=replay["serial_runs"], per_rank=replay["per_rank"])
        found.append(one)
        first = first or one
        of_first = [one["predicted_ms"] / first["predicted_ms"], middle / statistics.median(first["ms"])]
        rows.append([pipeline, policy, f"{one['predicted_ms']:.1f}", f"{middle:.1f}", f"{min(told['ms']):.1f} .. {max(told['ms']):.1f}",
                     f"{middle / one['predicted_ms']:.3f}", f"{one['compute']:.3f}", f"{of_first[0]:.3f}", f"{of_first[1]:.3f}",
                     f"{of_first[1] / of_first[0]:.3f}", exposed_of(told)])
        one["peak_bytes"] = told["process_peak_bytes"]
        save()
        if trainer.given.threads:
            continue
        base, a_layer = sizes_of_memory(trainer, ep)
        live = trainer.plan("--pipeline", pipeline, "--ranks", pp, "--microbatches", model["microbatches"], "--replay", "phases", "--layers",
                            model["layers"], *(["--chunks", 2] if pipeline.startswith("interleaved") else []))
        for rank in range(pp):
            layers = live["per_rank"][rank]["peak_live"] * model["layers"] / pp
            planned, measured = base + layers * a_layer, max(one["peak_bytes"][rank * ep:(rank + 1) * ep])
            memory.append([pipeline, str(rank), f"{layers:g}", f"{planned / 2**20:.1f}", f"{measured / 2**20:.1f}", f"{measured / planned:.3f}"])
            one.setdefault("planned_bytes", []).append(planned)
        save()
    shown = table(["pipeline", "policy", "predicted, ms", "measured, ms", "least .. most", "measured / predicted", "compute of ops", f"of {ways[0]}, predicted",
                   f"of {ways[0]}, measured", "ratio of these", "exposed communication, ms"], rows)
    return shown, table(["pipeline", "rank", "live layers", "planned, MiB", "measured, MiB", "measured / planned"], memory) if memory else ""


def hardware(device: str) -> str:
    if device == "cuda":
        try:
            said = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], text=True, capture_output=True).stdout
        except OSError:
            said = ""
        return f"{len(said.splitlines())} x {said.splitlines()[0]}, {len(os.sched_getaffinity(0))} cores" if said else "no nvidia-smi"
    return f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def read_grid(text: str) -> tuple[int, int]:
    pp, _, ep = text.partition("x")
    try:
        return at_least(1)(pp), at_least(1)(ep)
    except argparse.ArgumentTypeError:
        raise refused(f"'{text}' is no grid such as 2x4, of 2 pipeline ranks and 4 expert ranks") from None


def read_way(text: str) -> str:
    pipeline, colon, how = text.partition(":")
    if not (pipeline and colon):
        raise refused(f"'{text}' is no way such as {WAYS[0]}, of a pipeline and a policy")
    policy(how)
    return text


def changed_model(changes: list[str], device: str) -> dict:
    """Raises `ValueError` with a sentence."""
    model = dict(MODELS[device])
    for change in changes:
        name, _, value = change.partition("=")
        if name not in model:
            raise ValueError(f"argument --set: knows {', '.join(model)}, not {name}")
        whole = isinstance(model[name], int)
        if whole and not (value.isdecimal() and len(value) <= 9 and int(value) > 0):
            raise ValueError(f"argument --set: {name} is a whole number above 0, not '{value}'")
        model[name] = int(value) if whole else value
    return model


def main() -> None:
    arguments = Parser(__doc__)
    arguments.add_argument("--train-moe", required=True, type=program, metavar="PROGRAM")
    arguments.add_argument("--plan", required=True, type=program, metavar="PROGRAM")
    arguments.add_argument("--device", choices=MODELS, default="cuda")
    arguments.add_argument("--threads", action="store_true", help="ranks are threads; their memory is not told apart")
    arguments.add_argument("--share-gpu", action="store_true", help="more ranks than GPUs, to try it out")
    arguments.add_argument("--ranks", type=list_of(at_least(1)), default="1,2,4,8", help="of the scaling; empty: no scaling")
    arguments.add_argument("--policies", type=list_of(policy), default="serial,split_dw", help="of the scaling")
    arguments.add_argument("--grids", type=list_of(read_grid), default="2x2,4x1,2x4,4x2,8x1", help="pipeline x expert ranks; empty: no pipelines")
    arguments.add_argument("--ways", type=list_of(read_way), default=",".join(WAYS), help="pipeline:policy, the first for comparison")
    arguments.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="sizes of the model, such as layers=8 hidden=1024")
    arguments.add_argument("--steps", type=at_least(1), default=7, help="measured")
    arguments.add_argument("--warm-up", type=at_least(0), default=3)
    arguments.add_argument("--text", type=existing, default="/usr/include/c++")
    arguments.add_argument("--more", type=shell_words, default="", metavar="FLAGS", help="for train_moe, such as '--comm peer'")
    arguments.add_argument("--limit", type=above_0, default=600, metavar="SECONDS", help="for one run")
    arguments.add_argument("--json", type=new_file)
    given = arguments.parse_args()

    try:
        model = changed_model(given.set, given.device)
    except ValueError as problem:
        arguments.error(str(problem))
    if given.ranks and not given.policies:
        arguments.error("--ranks is measured with each of --policies; name one")
    if given.grids and not given.ways:
        arguments.error("--grids is measured in each of --ways; name one")
    for pp, _ in given.grids:
        if model["layers"] % (2 * pp) != 0:
            arguments.error(f"layers={model['layers']} is no multiple of two chunks on each of {pp} pipeline ranks; set layers={2 * pp}, say")
    written = dict(date=datetime.date.today().isoformat(), hardware=hardware(given.device), command=sys.argv[1:], model=model, pipelines=[])
    print(f"{written['date']}, {written['hardware']}. " + ", ".join(f"{name} {value}" for name, value in model.items()) + "\n")

    def save() -> None:
        if given.json:
            given.json.write_text(json.dumps(written, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as place:
        trainer = Trainer(given, model, pathlib.Path(place))
        if given.ranks:
            shown, written["scaling"] = scaling(trainer, given.ranks, given.policies)
            print("### Scaling, with as many tokens a rank\n\n" + shown, flush=True)
        for pp, ep in given.grids:
            shown, memory = pipelines(trainer, pp, ep, given.ways, written["pipelines"], save)
            print(f"### {pp} pipeline ranks x {ep} expert ranks\n\n{shown}\n{memory}", flush=True)
    save()


if __name__ == "__main__":
    main()
