"""measured.py PLAN [TRAIN_MOE]: a traced step beside its prediction, which takes the costs of ops from a serial run: exact sums
for steps written here, the step of docs/schedules.md, refusals in one line, and with TRAIN_MOE real steps of it."""

import copy
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

SVG = "{http://www.w3.org/2000/svg}"
PAGE = pathlib.Path(__file__).parent.parent.parent / "docs" / "measured"

# A model of two MoE layers: what its ops cost in the serial run, in milliseconds. Layer 0 is the embedding, 3 the head.
COSTS = {(0, "attn"): (1, 2), (3, "mlp"): (3, 7)}
for layer, scale in ((1, 1), (2, 10)):
    COSTS |= {(layer, "attn"): (2 * scale, 5 * scale), (layer, "dispatch"): (scale, 2 * scale),
              (layer, "mlp"): (3 * scale, 4 * scale), (layer, "combine"): (2 * scale, 3 * scale)}
ABOUT = {"program": "train_moe", "policy": "serial", "pipeline": "gpipe", "chunks": "1", "pp": "2", "ep": "1", "microbatches": "3",
         "batch": "1", "seq": "8", "layers": "2", "dense": "0", "hidden": "8", "heads": "2", "ffn": "4", "experts": "4", "top_k": "2",
         "shared": "1", "device": "cpu", "dtype": "f32", "link_gbps": "0", "link_us": "0"}
PHASES = ["attn", "dispatch", "mlp", "combine"]


def event(what: str, phase: str, layer: int, microbatch: int, rank: int, start: float, length: float) -> dict:
    return {"name": f"{what}.{phase} L{layer} mb{microbatch}", "cat": "compute", "ph": "X", "ts": 1000 * start, "dur": 1000 * length,
            "pid": rank, "tid": 0, "args": {"layer": layer, "microbatch": microbatch}}


def trace(events: list[dict], **about: str) -> dict:
    return {"otherData": {"note": "", **ABOUT, **about}, "traceEvents": [{"name": "process_name", "ph": "M", "pid": 0}, *events]}


def ops_of(stage_layers: list[int], backward: bool) -> list[tuple[int, str]]:
    """(layer of the model, phase) in the order in which one lane runs them."""
    ops = [(layer, phase) for layer in stage_layers for phase in PHASES if (layer, phase) in COSTS]
    return ops[::-1] if backward else ops


def serial_run(slower: tuple[float, ...] = (1,)) -> dict:
    """Three samples of each op, the mean being `slower` times the cost; one run for each of these."""
    events = []
    for rank, times in enumerate(slower):
        now = 0.0
        for microbatch, factor in enumerate((2.25, 0.5, 0.25)):
            for backward in (False, True):
                for layer, phase in ops_of([0, 1, 2, 3], backward):
                    length = times * factor * COSTS[layer, phase][backward]
                    events.append(event("FB"[backward], phase, layer, microbatch, rank, now, length))
                    now += length
    return trace(events, pipeline="serial", pp="1")


def pipeline_run(*slower: float) -> tuple[dict, list[list[float]], float]:
    """GPipe of two ranks and three microbatches whose ops take `slower` times their cost, a factor for each rank, from the recurrence
    of the schedule; the busy time of each rank, and the length of the step."""
    stages, count = [[0, 1], [2, 3]], 3
    length = [[times * sum(COSTS[op][backward] for op in ops_of(stage, False)) for backward in (False, True)]
              for stage, times in zip(stages, slower, strict=True)]
    forward = [[0.0] * count for _ in stages]
    done = [[0.0] * count for _ in stages]
    free = [0.0, 0.0]
    events = []

    def run(rank: int, backward: bool, microbatch: int, start: float) -> float:
        for layer, phase in ops_of(stages[rank], backward):
            took = slower[rank] * COSTS[layer, phase][backward]
            # In a trace layers count from 0 on each rank.
            events.append(event("FB"[backward], phase, layer - stages[rank][0], microbatch, rank, start, took))
            start += took
        return start

    for rank in (0, 1):
        for m in range(count):
            free[rank] = forward[rank][m] = run(rank, False, m, max(free[rank], forward[0][m] if rank else 0.0))
    for rank in (1, 0):
        for m in range(count):
            free[rank] = done[rank][m] = run(rank, True, m, max(free[rank], done[1][m] if rank == 0 else 0.0))
    busy = [count * sum(each) for each in length]
    return trace(events), busy, max(free)


class Plan:
    def __init__(self, program: str, folder: pathlib.Path):
        self.program, self.folder, self.files = program, folder, 0

    def write(self, content: dict | str) -> str:
        self.files += 1
        path = self.folder / f"{self.files}.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def run(self, measured: object, costs: object, *flags: str, most_memory: int | None = None) -> subprocess.CompletedProcess:
        named = [each if isinstance(each, str) else self.write(each) for each in (measured, costs)]
        return subprocess.run([self.program, "--measured", named[0], "--costs", named[1], *flags], capture_output=True, text=True,
                              timeout=60, preexec_fn=lambda: most_memory and resource.setrlimit(resource.RLIMIT_AS, (most_memory, most_memory)))

    def report(self, measured: object, costs: object) -> dict:
        answer = self.run(measured, costs, "--json")
        assert answer.returncode == 0, answer.stderr
        report = json.loads(answer.stdout)
        for rank in report["per_rank"]:
            for side in ("predicted", "measured"):
                times = rank[side]
                whole = times["compute"] + times["exposed_communication"] + times["bubble"]
                assert abs(whole - report[f"{side}_makespan"]) < 1e-6 * whole, (side, rank)
        return report

    def refuses(self, says: str, measured: object, costs: object, *flags: str) -> None:
        answer = self.run(measured, costs, *flags)
        lines = answer.stderr.splitlines()
        assert answer.returncode == 2 and answer.stdout == "" and len(lines) == 1 and len(lines[0]) < 600, (says, answer)
        assert lines[0].startswith("plan: ") and says in lines[0], (says, answer.stderr)


def near(a: float, b: float) -> bool:
    return abs(a - b) < 1e-6 * max(abs(a), abs(b), 1)


def check_sums(plan: Plan) -> None:
    """Prediction and measurement are each what the recurrence of GPipe says."""
    serial = serial_run()
    _, busy, length = pipeline_run(1, 1)
    slow, slow_busy, slow_length = pipeline_run(1.5, 1.5)
    report = plan.report(slow, serial)
    assert near(report["predicted_makespan"], length) and near(report["measured_makespan"], slow_length), report
    assert near(report["measured_to_predicted"], 1.5), report
    assert near(report["makespan_of_own_ops"], slow_length), report
    # The same ops with pauses between them.
    paused = copy.deepcopy(slow)
    for each in paused["traceEvents"]:
        if each["ph"] == "X":
            each["ts"] *= 1.25
    late = plan.report(paused, serial)
    assert late["measured_makespan"] > 1.05 * slow_length and near(late["makespan_of_own_ops"], slow_length), late
    for rank, each in enumerate(report["per_rank"]):
        for side, wanted, whole in (("predicted", busy, length), ("measured", slow_busy, slow_length)):
            assert near(each[side]["bubble"], whole - wanted[rank]), (side, each)
            assert near(each[side]["compute"] + each[side]["communication"], wanted[rank]), (side, each)
    table = plan.run(slow, serial).stdout
    assert f"makespan {length:g} ms predicted, {slow_length:g} ms measured: 1.500" in table, table
    text = plan.run(slow, serial, "--format", "text").stdout
    rows = [line.split("|")[1] for line in text.splitlines() if "predicted  |" in line or "measured   |" in line]
    assert len(rows) == 4 and all(set(row) <= set(" -#~") for row in rows), text
    # Two thirds of the width, and all of it; the first rank waits between its forwards and its backwards.
    assert 66 <= len(rows[0]) <= 70 and 100 <= len(rows[1]) <= 104 and " " * 30 in rows[0] and " " * 45 in rows[1], text
    assert rows[3].lstrip()[0] == "-" and rows[3].rstrip()[-1] == "#", text
    picture = xml.fromstring(plan.run(slow, serial, "--format", "svg").stdout)
    assert len(list(picture.iter(f"{SVG}title"))) == 2 * len([e for e in slow["traceEvents"] if e["ph"] == "X"])


def on_expert_ranks(run: dict, factors: tuple[float, ...]) -> dict:
    """Each rank of the run becomes as many as there are factors, whose ops take so many times as long."""
    spread = [{**each, "pid": each["pid"] * len(factors) + expert_rank, "ts": factor * each["ts"], "dur": factor * each["dur"]}
              for each in run["traceEvents"] if each["ph"] == "X" for expert_rank, factor in enumerate(factors)]
    return {"otherData": {**run["otherData"], "ep": str(len(factors))}, "traceEvents": spread}


def check_costs_of_ranks(plan: Plan) -> None:
    """With a serial run for each rank ops cost what they took in the run of theirs."""
    step, busy, length = pipeline_run(1, 3)
    runs = serial_run((1, 3))
    for costs, measured, ranks in ((runs, step, 1), (on_expert_ranks(runs, (0.5, 1.5)), on_expert_ranks(step, (1, 1)), 2)):
        report = plan.report(measured, costs)
        assert report["serial_runs"] == 2 and report["expert_ranks"] == ranks, report
        assert near(report["predicted_makespan"], length) and near(report["measured_to_predicted"], 1), report
        for rank, each in enumerate(report["per_rank"]):
            assert near(each["predicted"]["compute"] + each["predicted"]["communication"], busy[rank]), (rank, each)
    # One run, of as many ranks as there are expert ranks, is for all of them.
    one = plan.report(on_expert_ranks(step, (1, 1)), on_expert_ranks(serial_run(), (0.5, 1.5)))
    assert one["serial_runs"] == 1 and near(one["predicted_makespan"], pipeline_run(1, 1)[2]), one
    assert "in the serial runs, one for each rank, of" in plan.run(step, runs).stdout
    plan.refuses("has ops of 3 ranks; a step of 2 pipeline ranks and 1 expert rank takes one serial run, of 1, or one for each "
                 "pipeline rank, of 2 together", step, serial_run((1, 3, 1)))
    plan.refuses("has ops of 6 ranks; a step of 2 pipeline ranks and 2 expert ranks takes", on_expert_ranks(step, (1, 1)),
                 on_expert_ranks(serial_run((1, 3, 1)), (1, 1)))
    head_is_missing = {**runs, "traceEvents": [each for each in runs["traceEvents"] if (each["pid"], each["name"][:9]) != (1, "B.mlp L3 ")]}
    plan.refuses("has no time of B.mlp of layer 3 in the run of pipeline rank 1", step, head_is_missing)


def check_long_trace(plan: Plan) -> None:
    """Events that are no ops change nothing. To look through them all after each would take an hour, to hold them half a gigabyte."""
    serial, (step, *_) = serial_run(), pipeline_run(1, 1)
    wanted = plan.report(step, serial)
    start = '"traceEvents": ['
    assert json.dumps(step).count(start) == 1
    for nothing, times in (("{}", 1_000_000), ("0", 10_000_000)):
        long = plan.write(json.dumps(step).replace(start, start + f"{nothing}," * times))
        answer = plan.run(long, serial, "--json", most_memory=400 << 20)
        assert answer.returncode == 0, answer
        assert {**json.loads(answer.stdout), "trace": ""} == {**wanted, "trace": ""}, (nothing, answer.stdout, wanted)
    # What no trace has is not held without end either, and where even a short one has no room that is one sentence.
    plan.refuses("holds more than 1000000 values", plan.write('{"more": {"of": [' + "0," * 1_000_000 + "0]}}"), serial)
    answer = plan.run(plan.write(json.dumps(step) + " " * (200 << 20)), serial, most_memory=100 << 20)
    assert answer.returncode == 2 and answer.stderr == "plan: not enough memory for these traces; trace smaller steps\n", answer


def check_refusals(plan: Plan) -> None:
    serial, (step, *_) = serial_run(), pipeline_run(1, 1)

    def about(of: dict, **changes: str | None) -> dict:
        changed = copy.deepcopy(of)
        changed["otherData"] = {key: value for key, value in (changed["otherData"] | changes).items() if value is not None}
        return changed

    def without_last(of: dict) -> dict:
        return {**of, "traceEvents": of["traceEvents"][:-1]}

    assert plan.run(step, serial).returncode == 0
    same = plan.write(serial)
    plan.refuses("name the same file", same, same)
    for flag in (["--pipeline", "gpipe"], ["--ranks", "2"], ["--compare"], ["--comm"], ["--layer", "serial"], ["--replay", "phases"]):
        plan.refuses("--measured takes pipeline and sizes from its trace", step, serial, *flag)
    plan.refuses("--measured draws text and svg, not mermaid", step, serial, "--format", "mermaid")
    plan.refuses("--json reports", step, serial, "--format", "svg", "--json")
    plan.refuses("did you mean", step, serial, "--format", "svgs")
    # Another pipeline, other sizes, another model, another policy.
    plan.refuses("where its plan has", about(step, pipeline="one_f_one_b"), serial)
    plan.refuses("where its plan has", about(step, microbatches="4"), serial)
    plan.refuses("where its plan has", about(step, policy="two_stream_1f1b"), serial)
    plan.refuses("ran nothing where its plan has", without_last(step), serial)
    plan.refuses("has ops of rank 1 and is of 1 rank; trace", about(step, pp="1"), serial)
    plan.refuses("says dual_pipe_v, 2 ranks, 1 microbatch, 1 chunk, which is no plan", about(step, pipeline="dual_pipe_v", microbatches="1"), serial)
    plan.refuses("which is no plan", about(step, pipeline="of_my_own"), serial)
    plan.refuses("which is no plan", about(step, chunks="2"), serial)
    plan.refuses("which has no ops", about(step, policy="autograd"), serial)
    plan.refuses("ran with hidden 16 and", step, about(serial, hidden="16"))
    plan.refuses("ran with layers 3 and", step, about(serial, layers="3"))
    plan.refuses("ran with --pp 2", step, about(step, microbatches="3"))
    plan.refuses("ran with --policy split_dw", step, about(serial, policy="split_dw"))
    beside = copy.deepcopy(serial)
    beside["traceEvents"][3]["ts"] -= 500
    plan.refuses("ran F.dispatch L1 mb0 beside F.attn L1 mb0", step, beside)
    # Ratios of nothing are no numbers.
    at_once = {"ts": 0, "dur": 0}
    instant = {name: {**run, "traceEvents": [each | at_once for each in run["traceEvents"]]} for name, run in (("step", step), ("serial", serial))}
    plan.refuses("--costs: the ops in", step, instant["serial"])
    plan.refuses("--measured: the ops in", instant["step"], serial)
    plan.refuses("take no time; trace that run again", instant["step"], instant["serial"])
    plan.refuses("has no time of B.attn of layer 0", step, {**serial, "traceEvents": [
        each for each in serial["traceEvents"] if not each["name"].startswith("B.attn L0")]})
    whole = plan.run(about(step, pipeline="zero_bubble_h1"), serial)
    assert whole.returncode == 2 and "trace --policy serial --pipeline zero_bubble_h1 --pp 1" in whole.stderr, whole
    plan.refuses("holds at most", about(step, microbatches="1000", layers="4000"), about(serial, layers="4000"))
    # Files that are no traces.
    for content, says in (("", "is not JSON"), ("{}", "is no trace"), ('{"traceEvents": 3, "otherData": {}}', "is no trace"),
                          (about(step, pp=None), "does not say the pp"), (about(step, dtype=None), "does not say the dtype"),
                          (about(step, pp="two"), "does not say the pp"), (about(step, layers="0"), "does not say the layers"),
                          (trace([]), "has no ops"), ("[" * 100, "nests deeper")):
        plan.refuses(f"{says}", content if isinstance(content, dict) else plan.write(content), serial)
    for broken in ({"name": "F.rest L0 mb0"}, {"name": "x"}, {"pid": -1}, {"pid": 2**31 - 1}, {"tid": 7}, {"ts": None}, {"dur": -1}, {"args": {}},
                   {"ts": 1e300}, {"pid": 2**40}, {"pid": 0.5}, {"tid": 2**32}, {"args": {"layer": 2**32 + 1, "microbatch": 0}},
                   {"args": {"layer": 1.9, "microbatch": 0}}, {"args": {"layer": 1, "microbatch": 0.5}}):
        changed = copy.deepcopy(step)
        changed["traceEvents"][3] |= broken
        plan.refuses("has an event that is no op", changed, serial)
    plan.refuses("cannot read", str(plan.folder), serial)
    plan.refuses("cannot read", "no/such/file", serial)
    alone = subprocess.run([plan.program, "--measured", plan.write(step)], capture_output=True, text=True)
    assert alone.returncode == 2 and "--measured needs --costs" in alone.stderr, alone
    without = subprocess.run([plan.program, "--costs", plan.write(serial)], capture_output=True, text=True)
    assert without.returncode == 2 and "is a trace" in without.stderr and "--measured TRACE" in without.stderr, without
    for preset in ("unit", "deepseek_h800"):
        plan.refuses(f"no preset such as --costs {preset}; give --costs the trace of a serial run", step, preset)


def check_page(plan: Plan) -> None:
    """The steps that the page draws were measured, and are drawn from what was measured."""
    for prefix in ("", "gpus_"):
        files = [PAGE / f"{prefix}{name}.json" for name in ("step", "serial")]
        report = plan.report(*map(str, files))
        assert report["ranks"] * report["expert_ranks"] >= 2 and report["measured_makespan"] > 0
        step, serial = (json.loads(file.read_text()) for file in files)
        assert len({e["dur"] for e in step["traceEvents"] if e["ph"] == "X"}) > 50
        check_costs(report, serial)


def check_costs(report: dict, serial: dict) -> None:
    """The predicted work of all ranks is that of the serial run, as often as there are microbatches."""
    times: dict[str, list[float]] = {}
    for each in serial["traceEvents"]:
        if each["ph"] == "X":
            times.setdefault(each["name"].split(" mb")[0], []).append(each["dur"] / 1000)
    wanted = report["microbatches"] * sum(sum(all_of_it) / len(all_of_it) for all_of_it in times.values())
    found = sum(rank["predicted"]["compute"] + rank["predicted"]["communication"] for rank in report["per_rank"])
    # Ops of communication that run beside each other count once.
    assert found <= wanted * (1 + 1e-6) and found >= 0.9 * wanted, (found, wanted)


def check_runs(plan: Plan, train: str) -> None:
    """Every pipeline with a policy of each kind: what ran is what the plan replays."""
    text = plan.folder / "text.txt"
    text.write_text(" ".join(f"{n} times {n % 7} is {n * (n % 7)}," for n in range(1500)))

    def traced(name: str, *flags: str) -> str:
        file = plan.folder / f"{name}.trace"
        answer = subprocess.run([train, "--text", str(text), "--hidden", "8", "--heads", "2", "--ffn", "4", "--experts", "4", "--seq",
                                 "8", "--batch", "1", "--steps", "1", "--microbatches", "5", "--trace", str(file), *flags],
                                capture_output=True, text=True, timeout=120)
        assert answer.returncode == 0, answer
        return str(file)

    models = {"dense": ["--layers", "5", "--dense", "1", "--ep", "2"], "few": ["--layers", "3", "--ep", "1"]}
    serial = {name: traced(f"costs_{name}", *model, "--policy", "serial", "--pipeline", "zero_bubble_h1")
              for name, model in models.items()}
    for number, (pipeline, policy, more) in enumerate((
            ("serial", "serial", []), ("gpipe", "split_dw", []), ("one_f_one_b", "two_stream_1f1b", []),
            ("one_f_one_b_ep", "split_dw", []), ("interleaved", "serial", ["--chunks", "3"]),
            ("interleaved_ep", "two_stream_1f1b", []), ("zero_bubble_h1", "serial", []), ("zero_bubble_v", "two_stream_1f1b", []),
            ("dual_pipe_v", "split_dw", []))):
        # Three layers on four or six stages leave some without any.
        for name, ranks in (("dense", 2), ("few", 2 + number % 2)):
            step = traced(f"{pipeline}_{name}", *models[name], "--pp", str(ranks), "--pipeline", pipeline, "--policy", policy, *more)
            report = plan.report(step, serial[name])
            assert (report["pipeline"], report["policy"], report["ranks"]) == (pipeline, policy, ranks)
            assert report["measured_makespan"] > 0 and report["predicted_makespan"] > 0
            check_costs(report, json.loads(pathlib.Path(serial[name]).read_text()))
            # Alone, with communication on its lane.
            if policy != "serial" and name == "few":
                alone = traced("alone", *models[name], "--policy", policy, "--pipeline", "zero_bubble_h1")
                check_costs(plan.report(step, alone), json.loads(pathlib.Path(alone).read_text()))
    plan.refuses("trace both with the same model", step, serial["dense"])
    whole = traced("whole", *models["few"], "--policy", "serial", "--pipeline", "serial")
    plan.refuses("since its backward is whole", step, whole)
    even = traced("even", *models["few"], "--policy", "serial", "--pipeline", "zero_bubble_h1", "--force-load-balancing")
    plan.refuses("ran with force_load_balancing 1 and", step, even)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(sys.argv[1], pathlib.Path(folder))
        if len(sys.argv) > 2:
            check_runs(plan, sys.argv[2])
            print("what ran is what is replayed")
            return 0
        check_sums(plan)
        check_costs_of_ranks(plan)
        check_long_trace(plan)
        check_refusals(plan)
        check_page(plan)
    print("measured steps stand beside their predictions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
