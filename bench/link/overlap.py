"""overlap.py TRAIN_MOE [--rounds N] [--steps N] [--batch N] [--write FILE]: what overlap hides of a modelled link.

Two expert-parallel ranks, eight microbatches. First the policies without a link, then with one of such a bandwidth that its
modelled time is as long as the measured compute of a serial step (20 us of latency besides). Policies take turns, so that a
drift of the machine meets all of them; each figure is the median over the steps of all rounds but the first steps of each.
"""

import argparse
import datetime
import json
import pathlib
import platform
import statistics
import subprocess
import tempfile

MICROBATCHES, LAYERS, RANKS = 8, 4, 2
LATENCY_US = 20
WARM_UP = 2


def run(program: str, policy: str, count: int, batch: int, gigabits: float) -> tuple[list[float], float]:
    """Seconds of each step, and the modelled link time of a step."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "run.json"
        link = ["--link-gbps", f"{gigabits:.4f}", "--link-us", str(LATENCY_US)] if gigabits else []
        subprocess.run([program, "--text", "/usr/include/c++", "--policy", policy, "--ep", str(RANKS), "--microbatches",
                        str(MICROBATCHES), "--layers", str(LAYERS), "--batch", str(batch), "--steps", str(count), "--json", report, *link],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        told = json.loads(report.read_text())
        return told["step_seconds"][WARM_UP:], told["link_seconds"] / count


def medians(program: str, policies: list[str], rounds: int, count: int, batch: int,
            gigabits: float) -> tuple[dict[str, tuple[float, float]], float]:
    """Median and half the distance of the quartiles, in seconds; and the modelled link time of a step."""
    all_steps: dict[str, list[float]] = {policy: [] for policy in policies}
    for _ in range(rounds):
        for policy in policies:
            seconds, link = run(program, policy, count, batch, gigabits)
            all_steps[policy] += seconds
    spread = {}
    for policy, seconds in all_steps.items():
        low, middle, high = statistics.quantiles(seconds, n=4)
        spread[policy] = (middle, (high - low) / 2)
    return spread, link


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("program")
    arguments.add_argument("--rounds", type=int, default=4)
    arguments.add_argument("--steps", type=int, default=16)
    arguments.add_argument("--batch", type=int, default=8, help="sequences of a microbatch and rank")
    arguments.add_argument("--write", type=pathlib.Path)
    given = arguments.parse_args()

    bare, _ = medians(given.program, ["serial", "autograd", "two_stream_1f1b", "split_dw"], given.rounds, given.steps, given.batch, 0)
    compute = bare["serial"][0]
    trial = 10
    gigabits = trial * run(given.program, "serial", given.steps, given.batch, trial)[1] / compute
    linked, link = medians(given.program, ["serial", "two_stream_1f1b", "split_dw"], given.rounds, given.steps, given.batch, gigabits)
    serial = linked["serial"][0]

    lines = ["# Overlap of a modelled link", "",
             f"{datetime.date.today()}, {platform.processor() or platform.machine()}, {RANKS} expert-parallel ranks on 2 cores, "
             f"{MICROBATCHES} microbatches of {given.batch} sequences, else default sizes. `python3 bench/link/overlap.py TRAIN_MOE "
             f"--rounds {given.rounds} --steps {given.steps} --batch {given.batch}`", "",
             f"The link is modelled: {gigabits:.3f} Gb/s and {LATENCY_US} us, {link * 1e3:.1f} ms a step, {link / compute:.2f} of the "
             f"{compute * 1e3:.1f} ms of compute (a serial step without a link).", "",
             "| policy | step without link | of serial | step with link | of serial |", "| --- | --- | --- | --- | --- |"]
    for policy, (middle, spread) in bare.items():
        row = f"| {policy} | {middle * 1e3:.1f} ± {spread * 1e3:.1f} ms | {middle / compute:.3f} "
        if policy in linked:
            middle, spread = linked[policy]
            row += f"| {middle * 1e3:.1f} ± {spread * 1e3:.1f} ms | {middle / serial:.3f} |"
        else:
            row += "| | |"
        lines.append(row)
    lines += ["", f"Serial with the link over compute plus link: {serial / (compute + link):.3f}. "
                  f"Serial over autograd, both without: {compute / bare['autograd'][0]:.3f}.", ""]
    text = "\n".join(lines)
    print(text)
    if given.write:
        given.write.write_text(text)


if __name__ == "__main__":
    main()
