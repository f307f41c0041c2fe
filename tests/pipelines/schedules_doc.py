"""schedules_doc.py PLAN [--write]: docs/schedules.md and its pictures are what `plan` prints today.

Without --write the files are compared, with it they are written.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "schedules.md"
PICTURES = ROOT / "docs" / "schedules"
PAIR = ROOT / "docs" / "layer_pair.svg"
# Pictures of measured steps, each with its step and the serial run that costs come from.
MEASURED = {"measured": ("docs/measured/step.json", "docs/measured/serial.json"),
            "measured_gpus": ("docs/measured/gpus_step.json", "docs/measured/gpus_serial.json")}
INCLUDE = ROOT / "include" / "stretto"

HEAD = """\
# Pipeline schedules

Which chunk and microbatch a rank runs when. Every picture and number on this page comes from `plan`; a test prints them
again and compares.

P ranks, rank r, M microbatches, V chunks on a rank. F is the forward of a chunk, I its input gradients, W its weight
gradients, B = I and W together, F&B an overlapped pair. Times are per chunk. A chunk activation lives from its F to the end
of its W, because W reads the inputs of the layers; the bounds below count it so.

In the pictures numbers are microbatches. Light blue is F, orange I, brown B, violet W; a bar along the foot marks the second
chunk of a rank (odd chunks, where there are more); blank is bubble. Costs are F = I = W and no communication, at equal
layers per rank, so that all pictures share one scale. After the quick start `plan` is built by `ninja -C build-quickstart
examples/plan` and called as `build-quickstart/examples/plan`; a build of everything has it in `build/examples`. Try others with

    plan --pipeline dual_pipe_v --ranks 4 --microbatches 8 --costs deepseek_h800
    plan --ranks 8 --microbatches 32 --costs deepseek_h800 --compare
    plan --ranks 8 --microbatches 32 --replay phases --compare

Names may be written in any case and with any separators or none (`GPipe`, `DualPipeV`), and some as others call them: `1f1b`, `1f1b_ep`,
`interleaved_1f1b` or `vpp`, `zb_h1`, `zbv`. `train_moe` takes them too.

Live activations are counted in layers. With `--layer-bytes`, what one layer keeps of a microbatch between forward and backward, tables and JSON tell them in
bytes as well. A MoE layer of `train_moe` keeps, for each token, 7H + 2SF + K(H + 2F) numbers in its type and E floats (hidden size H, S shared
and E routed experts of width F, K of them for a token; `forecast.cpp` counts so before it refuses a run that cannot fit). In bf16, with 4096 tokens:

    plan --ranks 8 --microbatches 32 --replay phases --compare \\
         --layer-bytes $((4096 * (2 * (7*2048 + 2*1*1024 + 8*(2048 + 2*1024)) + 4*64)))
"""

LAYER_PAIR = """\
## A layer pair

What an overlapped pair is made of: the forward of one layer beside the backward of another, communication on a lane of its
own. `plan --layer split_dw --format svg` draws it with the published costs; arrows are the waits, which follow from what the
phases read and write.

![a layer pair with split_dw](layer_pair.svg)

```
{text}
```

The other policies as the same picture: `plan --layer two_stream_1f1b --format svg`, `plan --layer serial --format svg`.
"""

PHASES = """\
## Phase by phase

Whole calls joined by their ends are too coarse in one respect: the attention of the next call may run beside the last combine
of this one. `--replay phases` lowers the plan to the ops that the executor issues and keeps only what binds it: every lane is
in order, every op comes after what it waits for, every receive after its send. Pipelines without pairs then hide a little
too; where W runs apart in a call of its own there is nothing to hide it behind. The same sizes and costs as above:

```
{compare}
```

More sizes, makespan over ideal with {layers} layers (an embedding and a head cost nothing), and peak live activations in
units of a rank's layers:

{table}

A message takes no time here. Peak live is below the count of whole calls where pairs are: they give back the activation of one
layer as they make that of another. Without pairs the two are equal, and a rank that runs holds that many activations, to the
byte (`tests/array/pipeline_memory.cpp`); only what was sent on may go back before its backward, where the rank hears early that
the message has left.
"""

PREDICTED = """\
## Predicted and measured

`train_moe --trace` writes down the ops of its last step. `plan --measured` sets that step beside the replay of its plan. What an
op costs comes from the trace of another run of the same model, in which one op runs at a time: the mean over the microbatches.
That trace may be put together from one such run for each pipeline rank, with p times the expert ranks added to the `pid` of every
op in the run of rank p. An op then costs what it took in the run of its rank: cores of one machine differ in speed, and a
pipeline waits for its slowest rank. `bench/gpu/grid.py` does so where ranks keep to cores of their own.

The policy of a serial run is `serial`, or that of the step, which puts communication on the lane where it will run. So nothing is
fitted to the step that is predicted, and what the replay leaves out shows: messages, the time to wake a thread, and ops that slow each other down. The plan
replayed with the times of the step's own ops tells the last from the others.

    train_moe --text /usr/include/c++ --layers 6 --ep 1 --microbatches 6 --steps 3 --policy serial --pipeline zero_bubble_h1 \\
              --trace serial.json
    train_moe --text /usr/include/c++ --layers 6 --ep 1 --microbatches 6 --steps 3 --policy split_dw --pipeline dual_pipe_v --pp 2 \\
              --trace step.json
    plan --measured step.json --costs serial.json
    plan --measured step.json --costs serial.json --format svg > step.svg

Two ranks on two cores ([the traces](measured), and [other pipelines](../bench/results/pipeline_measured.md)):

![a step of dual_pipe_v with 2 ranks, predicted and measured](schedules/measured.svg)

```
{measured}
```

The same on two GPUs of one host (NVIDIA H200, NVLink; rows are pushed by copy engines), ops timed by events on their streams:

    run="train_moe_cuda --text /usr/include/c++ --device cuda --comm peer --dtype bf16 --ep 2 --attention fast --lr 1e-12 --steps 6"
    model="--layers 2 --hidden 4096 --heads 32 --ffn 4096 --experts 8 --top-k 2 --shared 0 --aux 0 --seq 4096 --batch 2 --microbatches 8"
    $run $model --policy serial --trace serial.json
    $run $model --policy two_stream_1f1b --trace step.json

![a step of two_stream_1f1b on two GPUs, predicted and measured](schedules/measured_gpus.svg)

```
{measured_gpus}
```

`--format text` draws the same with characters, `--json` reports it. The first serial run splits every backward (`zero_bubble_h1` on one
rank does), so that its costs serve pipelines that split and pipelines that do not. Traces of another model, of another size, or
with other ops than their plan has are refused.
"""

# Columns of the table: pipeline, chunks, what it is called there.
REPLAYED = [("zero_bubble_v", 2), ("dual_pipe_v", 2), ("interleaved_ep", 2), ("interleaved_ep", 4), ("one_f_one_b_ep", 1)]
REPLAYED_SIZES = [(4, 8), (4, 16), (4, 32), (8, 16), (8, 32), (8, 64), (16, 32), (16, 64)]

# Name, type, what it does, published or derived bubble, bound on live activations, least microbatches, source.
PIPELINES = [
    ("serial", "SerialPipeline",
     "One microbatch at a time: F, then its B. No two are in flight, so no rank works beside another. The reference that "
     "other orders are compared with bit by bit.",
     "M(P-1)(F+B)", "1", "1", "the definition"),
    ("gpipe", "GPipe", "Every forward, then every backward, both in microbatch order.",
     "(P-1)(F+B)", "M", "1", "arXiv 1811.06965"),
    ("one_f_one_b", "OneFOneB",
     "P-1-r warm-up forwards, then one forward and one backward in turn, then the backwards that are left.",
     "(P-1)(F+B)", "min(P-r, M)", "1", "arXiv 2006.09503, arXiv 2104.04473 section 2.2"),
    ("one_f_one_b_ep", "OneFOneBOverlapped",
     "1F1B whose steady step is an overlapped pair of different microbatches: 2(P-1-r)+1 warm-up forwards, since the outputs "
     "of a pair leave together at its end and a microbatch moves one rank per pair both ways. With one rank: F0, F1&B0, "
     "F2&B1, ..., B of the last. One chunk per rank, so the fewest messages of the pipelines with pairs.",
     "(P-1)(F+B) where F&B = F+B; else by simulation", "min(2(P-r), M)", "1",
     "this library; interleaved_ep with one chunk"),
    ("interleaved", "Interleaved<V>",
     "Stage s on rank s mod P. Microbatches go in groups of P, chunk after chunk; 2(P-1-r)+(V-1)P warm-up forwards. Where P "
     "does not divide M, groups are the smallest size that leaves no group below P.",
     "(P-1)(F+B) in chunk units, 1/V of 1F1B", "VP+P-1-2r", "1",
     "arXiv 2104.04473 section 2.2; Megatron-LM, PyTorch"),
    ("interleaved_ep", "InterleavedOverlapped<V>",
     "As interleaved with one more warm-up forward, so that the halves of every steady step are independent: all of them "
     "are overlapped pairs.",
     "(P-1)(F+B) in chunk units where F&B = F+B; else by simulation", "VP+P-2r", "1",
     "Megatron-LM `combined_1f1b`, MindSpeed `--moe-fb-overlap`"),
    ("zero_bubble_h1", "ZeroBubbleH1",
     "1F1B with B split; the weight gradients of rank r lag r microbatches behind and fill the cool-down.",
     "(P-1)(F+I-W)", "min(P, M)", "1", "arXiv 2401.10241"),
    ("zero_bubble_v", "ZeroBubbleV",
     "Two chunks on a V: stage s on rank s, and back. A fixed pattern for at least 2P-1 microbatches; with fewer, the steps "
     "of the missing ones fall out.",
     "none between the first and last call of a rank where F = I = W", "2P, on every rank", "1",
     "arXiv 2401.10241 section 6; PyTorch `ScheduleZBVZeroBubble`"),
    ("dual_pipe_v", "DualPipeV",
     "Two chunks on a V; the steady state pairs the forward of one chunk with the backward of the other, the cool-down "
     "splits B. Eight steps: 2(P-1-r) F0; r+1 times F0, F1; P-1-r times I1, W1, F1; M-2P+r+1 times F0&B1, F1&B0 (the first "
     "on the last rank in turn); P-1-r times B1, F1&B0; r+1 times B1, B0, the last r+1 of them split; P-1-r times W, I0; "
     "r+1 W.",
     "(P-1)(F&B+B-3W) where F = I = W", "2P+1, on every rank", "2P-1 (the source asks for 2P)",
     "deepseek-ai/DualPipe `dualpipev.py`; arXiv 2412.19437 section 3.2.1: the table there is of DualPipe, which has two "
     "directions, PP = 2P ranks and the parameters twice"),
]

# The figures of the preset deepseek_h800, as a user would write them down.
COSTS = {
    "name": "my cluster",
    "source": "deepseek-ai/profile-data train.json",
    "unit": "ms",
    "forward": {"attn": 4.4, "dispatch": 6.7, "mlp": 4.6, "combine": 8.7},
    "backward_input": {"attn": 9.3, "dispatch": 7.5, "mlp": 5.3, "combine": 5.8},
    "backward_weight": {"attn": 2.4, "mlp": 5.1},
    "message": 0,
    "layers_per_rank": 8,
}

COST_FILE = """\
## Costs

`--costs` takes a preset (`unit`, `deepseek_h800`) or a JSON file with the times of one layer. A chunk holds `layers_per_rank`
over V layers. attn and mlp are compute, dispatch and combine communication; a call alone takes the sum of its phases, a pair
its longer lane; `message` is one message between two ranks. `name`, `source`, `unit`, `message` and `layers_per_rank` may be
left out. The ideal is the busiest lane of a rank; exposed communication is time in which communication runs and compute does
not; bubble is time outside calls.

```json
{costs}
```
"""

MESSAGES = """\
## Messages

`plan --comm` prints each rank's list with its messages: `[sF:0.2:1]` sends the activation of stage 0, microbatch 2 to rank 1,
`[rB:3.0:2]` receives the gradient of stage 3, microbatch 0 from rank 2; both ends name the stage that
produced it. Stages of one rank exchange nothing.

A send stands right behind the call that writes it. A receive stands as late as two rules allow: before the call that reads
it, and before every message of the rank that is ready later, counted with F = I = W. All lists then follow one order of
messages. So the two ends of a pair of ranks agree; no circle of waits exists, even where every send blocks until its receive
is posted; and no receive stands in front of a send that is ready before it. The public record of the alternatives:
pytorch/pytorch issue 172668 (receives as late as possible deadlock) and 188833 (receives at the sender's time stall sends).
"""

REFUSED = """\
## What is refused

Sizes that a pipeline cannot serve, plans that drop, double or misplace a pass, and messages that do not match: the rules from
E40 on in [errors.md](errors.md).
"""

POLICIES = """\
## Layer policies

Pairs are overlapped where the pipeline emits them and the policy has bodies for them; all else runs alone. "split" asks for
phases with `backward_input` and `backward_weight`; autograd knows whole passes only.

"""


OWN = """\
## A policy of your own

The order of one layer's forward beside another's backward is a struct with one `static constexpr` function. That of
[own_policy.cpp](../examples/own_policy.cpp), which prints its program as above:

```cpp
{policy}
```

The verb is the lane, and the lines are in the order in which the host issues the ops. `p.f` is the forward layer. `p.b` is the backward
layer: `backward`, or `input` and `weight`, which are one op unless the schedule says `SplitDW` and the phase has weights. Kinds that a block does not
have vanish. Waits are not written. A lone forward or backward, at the ends of a step, is the same order without the other side;
`forward(pair_builder&)` and `backward(pair_builder&)` give others. What is forgotten, doubled or before what it needs does not compile.
`st::pair_program<Step>.waits()` counts the waits, `st::to_text<Step>()` prints the program.

## A pipeline of your own

Which call comes when is one function too, from which proofs, pictures and the executor read. [own_pipeline.cpp](../examples/own_pipeline.cpp),
which draws and simulates it:

```cpp
{pipeline}
```

It goes into a schedule like those above: `Schedule<Model, TwoStream1F1B, BreadthFirst>`. What each member means is said at `pipeline` in
`stretto/pipeline.hpp`; pairs are `call::pair(forward chunk, microbatch, backward chunk, microbatch)`, halves `call::backward_input` and `call::backward_weight`.
"""


def code(file: str, begin: str) -> str:
    """The lines of an example from the one that begins so to the end of its struct."""
    text = (ROOT / "examples" / file).read_text()
    start = text.index(begin)
    return text[start:text.index("\n};", start) + 3]


def own() -> str:
    return (OWN.replace("{policy}", code("own_policy.cpp", "struct EarlyAttention"))
            .replace("{pipeline}", code("own_pipeline.cpp", "struct BreadthFirst")))


def plan(program: str, *arguments: str) -> str:
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def section(program: str, name: str, type_name: str, rule: str, bubble: str, live: str, least: str, source: str) -> str:
    sizes = ["--pipeline", name, "--ranks", "4", "--microbatches", "8"]
    report = json.loads(plan(program, *sizes, "--json"))
    ranks = report["per_rank"]
    lives = ", ".join(str(rank["peak_live_chunks"]) for rank in ranks)
    bubbles = ", ".join(f"{rank['bubble']:g}" for rank in ranks)
    return f"""\
## {name}

{rule}

![{name} with 4 ranks and 8 microbatches](schedules/{name}.svg)

| | |
| --- | --- |
| type | `{type_name}` |
| bubble (makespan less work) | {bubble} |
| live chunk activations, at most | {live} |
| least microbatches | {least} |
| source | {source} |
| in the picture | makespan {report['makespan']:g}, {report['ratio_to_ideal']:.3f} of ideal; bubble by rank {bubbles}; live by rank {lives} |
"""


def policies() -> str:
    """The table of policies.hpp, crossed with what the pipeline types declare."""
    table = re.findall(r'\{"(\w+)", (true|false), (true|false), (true|false)\}', (INCLUDE / "pipelines/policies.hpp").read_text())
    declared = {}
    for header in (INCLUDE / "pipelines").glob("*.hpp"):
        declared.update(re.findall(r'name = "(\w+)";.*?pairs = (\w+), splits = (?:\w+);', header.read_text(), re.DOTALL))
    splits = {}
    for header in (INCLUDE / "pipelines").glob("*.hpp"):
        splits.update(re.findall(r'name = "(\w+)";.*?splits = (\w+);', header.read_text(), re.DOTALL))
    names = [name for name, *_ in PIPELINES]
    assert len(table) == 4 and set(names) == set(declared) == set(splits), "a policy or pipeline was not understood"
    lines = ["| pipeline | " + " | ".join(name for name, *_ in table) + " |", "| --- " * (len(table) + 1) + "|"]
    for name in names:
        cells = []
        for _, overlaps, split, whole in table:
            if splits[name] == whole == "true":
                cells.append("refused")
            else:
                how = "overlapped" if overlaps == declared[name] == "true" else "alone"
                cells.append(how + (", split" if "true" in (split, splits[name]) else ""))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return POLICIES + "\n".join(lines) + "\n"


def comparison(program: str) -> str:
    def table(costs: str) -> str:
        return plan(program, "--ranks", "8", "--microbatches", "32", "--costs", costs, "--compare").rstrip("\n")

    return ("## Side by side\n\nWith communication that takes as long as compute, pairs decide:\n\n```\n"
            f"{table('deepseek_h800')}\n```\n\nWithout any, the bubble does:\n\n```\n{table('unit')}\n```\n")


def phases(program: str) -> str:
    rows = ["| pipeline | " + " | ".join(f"P={p}, M={m}" for p, m in REPLAYED_SIZES) + " | live, P=4 / 8 / 16 |",
            "| --- |" + " --- |" * (len(REPLAYED_SIZES) + 1)]
    for name, chunks in REPLAYED:
        cells, live = [], {}
        for ranks, microbatches in REPLAYED_SIZES:
            report = json.loads(plan(program, "--pipeline", name, "--chunks", str(chunks), "--ranks", str(ranks), "--microbatches",
                                     str(microbatches), "--replay", "phases", "--json"))
            cells.append(f"{report['ratio_to_ideal']:.3f}")
            live[ranks] = f"{max(rank['peak_live'] for rank in report['per_rank']):.2f}"
        shown = name + (f", {chunks} chunks" if name == "interleaved_ep" else "")
        rows.append(f"| {shown} | " + " | ".join(cells) + " | " + " / ".join(live.values()) + " |")
    compare = plan(program, "--ranks", "8", "--microbatches", "32", "--replay", "phases", "--compare").rstrip("\n")
    return PHASES.format(compare=compare, layers=report["layers"], table="\n".join(rows))


def measured(program: str, which: str, *more: str) -> str:
    step, serial = MEASURED[which]
    return subprocess.run([program, "--measured", step, "--costs", serial, *more], check=True, capture_output=True, text=True,
                          cwd=ROOT).stdout


def cost_file(program: str) -> str:
    text = json.dumps(COSTS, indent=2)
    text = re.sub(r"\{\s+([^{}]*?)\s+\}", lambda m: "{" + re.sub(r"\s+", " ", m[1]) + "}", text)
    sizes = ["--ranks", "4", "--microbatches", "8", "--json"]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(text)
        file.flush()
        mine = json.loads(plan(program, *sizes, "--costs", file.name))
    preset = json.loads(plan(program, *sizes, "--costs", "deepseek_h800"))
    assert mine["per_rank"] == preset["per_rank"], "the cost file on the page is not the preset"
    return COST_FILE.replace("{costs}", text)


def files(program: str) -> dict[pathlib.Path, str]:
    sections = [section(program, *one) for one in PIPELINES]
    pair = LAYER_PAIR.format(text=plan(program, "--layer", "split_dw").rstrip("\n"))
    page = "\n".join([HEAD, *sections, pair, comparison(program), phases(program),
                      PREDICTED.format(**{which: measured(program, which).rstrip("\n") for which in MEASURED}), cost_file(program), MESSAGES, policies(), own(), REFUSED])
    result = {PAGE: page, PAIR: plan(program, "--layer", "split_dw", "--format", "svg")}
    for which in MEASURED:
        result[PICTURES / f"{which}.svg"] = measured(program, which, "--format", "svg")
    for name, *_ in PIPELINES:
        sizes = ["--pipeline", name, "--ranks", "4", "--microbatches", "8"]
        result[PICTURES / f"{name}.svg"] = plan(program, *sizes, "--format", "svg")
    return result


def main() -> int:
    wanted = files(str(pathlib.Path(sys.argv[1]).resolve()))
    if sys.argv[2:] == ["--write"]:
        PICTURES.mkdir(parents=True, exist_ok=True)
        for path, text in wanted.items():
            path.write_text(text)
        return 0
    stale = [str(path.relative_to(ROOT)) for path, text in wanted.items()
             if not path.is_file() or path.read_text() != text]
    stale += [str(path.relative_to(ROOT)) for path in PICTURES.glob("*") if path not in wanted]
    for path in stale:
        print(f"{path} is not what plan prints; run schedules_doc.py PLAN --write")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
