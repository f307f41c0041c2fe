"""layer_pair.py PLAN: pictures of a layer pair show its program, row by row and wait by wait."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

SVG = "{http://www.w3.org/2000/svg}"

# Ops, waits, and how long the pair takes with the default costs, alone on two idle lanes.
POLICIES = {"serial": (8, 2, 59.8), "two_stream_1f1b": (8, 8, 35.4), "split_dw": (10, 8, 32.5)}
FORWARD = {"attn": 4.4, "dispatch": 6.7, "mlp": 4.6, "combine": 8.7}
INPUT = {"attn": 9.3, "dispatch": 7.5, "mlp": 5.3, "combine": 5.8}
WEIGHT = {"attn": 2.4, "mlp": 5.1}


def plan(program: str, *arguments: str) -> str:
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def cost_of(name: str) -> float:
    letter, phase = name.split(".")
    return {"F": FORWARD[phase], "I": INPUT[phase], "W": WEIGHT.get(phase, 0), "B": INPUT[phase] + WEIGHT.get(phase, 0)}[letter]


def times_of(rows: list[tuple[str, str, list[str]]]) -> dict[str, tuple[float, float]]:
    """Start and end of every op: in order on its lane, behind what it waits for."""
    free, times = {}, {}
    for lane, name, waits in rows:
        start = max([free.get(lane, 0)] + [times[wait][1] for wait in waits if wait in times])
        times[name] = (start, start + cost_of(name))
        free[lane] = times[name][1]
    return times


def check(program: str, policy: str, ops: int, waits: int, length: float) -> None:
    text = plan(program, "--layer", policy)
    rows = []
    for line in text.splitlines():
        if match := re.match(r" *\d+  (compute|comm) +([FBIW]\.\w+) *(.*)$", line):
            rows.append((match[1], match[2], match[3].split(", ") if match[3] else []))
    assert f"{ops} ops, {waits} waits" in text and len(rows) == ops, text
    times = times_of(rows)
    makespan = max(end for _, end in times.values())
    assert abs(makespan - length) < 1e-9, f"{policy}: {makespan}"
    assert f"{length:g} ms" in text

    bars = [bar for bar in json.loads(plan(program, "--layer", policy, "--format", "trace"))["traceEvents"] if bar["ph"] == "X"]
    drawn = {bar["name"].split()[0]: (bar["ts"] / 1000, (bar["ts"] + bar["dur"]) / 1000) for bar in bars}
    assert drawn.keys() == times.keys()
    for name, (start, end) in times.items():
        assert abs(drawn[name][0] - start) < 1e-5 and abs(drawn[name][1] - end) < 1e-5, f"{policy}: trace of {name}"

    picture = xml.fromstring(plan(program, "--layer", policy, "--format", "svg"))
    titles = [title.text.split(":") for title in picture.iter(f"{SVG}title")]
    assert [name for name, _ in titles] == [name for _, name, _ in rows], f"{policy}: svg"
    for name, when in titles:
        start, end = (float(number) for number in re.findall(r"[\d.]+", when))
        assert abs(start - times[name][0]) < 1e-3 and abs(end - times[name][1]) < 1e-3, f"{policy}: svg of {name}"
    arrows = [path for path in picture.iter(f"{SVG}path") if path.get("marker-end")]
    # One for every wait, two for what the pair hands on, one in the legend.
    assert len(arrows) == waits + 3, f"{policy}: {len(arrows)} arrows"
    words = {words.text for words in picture.iter(f"{SVG}text")}
    assert words >= {name for _, name, _ in rows} | {"compute", "ms"}, f"{policy}: a bar has no name"
    fills = {box.get("fill") for box in picture.iter(f"{SVG}rect")}
    letters = {name[0] for _, name, _ in rows}
    assert len(fills - {"#ffffff", "none"}) == len(letters), f"{policy}: colours"

    graph = plan(program, "--layer", policy, "--format", "mermaid")
    nodes = dict(re.findall(r'(n\d+)\["(\S+) [\d.]+"\]', graph)) | {"before": "the layer before", "behind": "the layer behind"}
    edges = sorted((nodes[a], nodes[b]) for a, b in re.findall(r"(\w+) -\.-> (\w+)", graph))
    assert edges == sorted((wait, name) for _, name, waited in rows for wait in waited), f"{policy}: mermaid"
    for lane in {lane for lane, _, _ in rows}:
        order = re.search(rf"subgraph {lane}\n.*?((?:n\d+ --> )*n\d+)\n  end", graph, re.DOTALL)
        assert [nodes[node] for node in order[1].split(" --> ")] == [name for on, name, _ in rows if on == lane]


def main() -> int:
    for policy, wanted in POLICIES.items():
        check(sys.argv[1], policy, *wanted)
    assert "3 units" in plan(sys.argv[1], "--layer", "serial", "--costs", "unit"), "costs are not used"
    print(f"{len(POLICIES)} layer pairs are drawn as their programs say")
    return 0


if __name__ == "__main__":
    sys.exit(main())
