"""bad_input.py PLAN: every kind of bad input gets one line on stderr, exit code 2, and nothing on stdout."""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

GOOD = {
    "forward": {"attn": 1, "dispatch": 1, "mlp": 1, "combine": 1},
    "backward_input": {"attn": 1, "dispatch": 1, "mlp": 1, "combine": 1},
    "backward_weight": {"attn": 1, "mlp": 1},
}


def changed(**members: object) -> str:
    return json.dumps({**GOOD, **members})


def run(program: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)


def refused(program: str, says: str, *arguments: str) -> None:
    answer = run(program, *arguments)
    lines = answer.stderr.splitlines()
    shown = f"plan {' '.join(arguments)[:200]}: exit {answer.returncode}, {answer.stderr[:300]!r}"
    assert answer.returncode == 2, shown
    assert answer.stdout == "", f"{shown}: something was written"
    assert len(lines) == 1 and lines[0].startswith("plan: ") and len(lines[0]) < 600, shown
    assert says in lines[0], f"{shown}: should say {says!r}"


def check_flags(program: str) -> None:
    for flag in ("--ranks", "--microbatches", "--chunks"):
        refused(program, flag, f"{flag}=")
        for text in ("0", "-1", "abc", " 4", "4 ", "4.5", "1e3", "0x4", "99999999999999999999", "4\n4", "\x1b[31m"):
            refused(program, f"{flag} takes a whole number", f"{flag}={text}")
    for flag in ("--format", "--costs", "--replay", "--layer", "--layers", "--measured"):
        for words in ((flag, ""), (f"{flag}=", "--json"), (flag, "--json")):
            refused(program, f"{flag} has no value", *words)
    for text in ("--json=0", "--compare=false", "--comm="):
        refused(program, f"{text.split('=')[0]} takes no value", text)
    refused(program, "--ranks is given twice", "--ranks", "2", "--ranks=4")
    refused(program, "from 1 to 4096, not '4097'", "--ranks", "4097")
    refused(program, "from 1 to 1000000, not '1000001'", "--microbatches", "1000001")
    refused(program, "stretto[E41]", "--ranks", "4", "--microbatches", "6")
    refused(program, "stretto[E43]", "--pipeline", "gpipe", "--chunks", "2")
    refused(program, "stretto[E43]", "--pipeline", "interleaved", "--chunks", "65")
    refused(program, "stretto[E44]", "--ranks", "4096", "--microbatches", "1000000")
    refused(program, "did you mean 'dual_pipe_v'?", "--pipeline", "DualPipe")
    refused(program, "there is no 'zb'", "--pipeline", "zb")
    refused(program, "there is no '_'", "--pipeline", "_")
    refused(program, "did you mean 'zero_bubble_h1'?", "--pipeline", "zero_bubble_h")
    refused(program, "--pipeline", "--pipeline=")
    refused(program, "take one of serial, gpipe, one_f_one_b", "--pipeline", "x" * 100000)
    refused(program, "did you mean 'svg'?", "--format", "svgz")
    refused(program, "--comm", "--comm", "--format", "svg")
    refused(program, "--json", "--json", "--format", "svg")
    refused(program, "--compare", "--compare", "--format", "golden")
    # What would have no effect.
    refused(program, "--compare simulates every pipeline", "--compare", "--pipeline", "gpipe")
    refused(program, "--compare prints a table; leave --format", "--compare", "--comm")
    refused(program, "--format golden lists calls without times", "--format", "golden", "--costs", "deepseek_h800")
    refused(program, "leave it out, or --replay phases", "--replay", "phases", "--comm")
    refused(program, "unknown argument '--qqqqqqqqqqqqqqqqqqq'; --help lists all flags", "--qqqqqqqqqqqqqqqqqqq")
    refused(program, "unknown argument '--layer-byte'; did you mean --layer-bytes?", "--layer-byte", "5")
    refused(program, "did you mean --ranks?", "--rank=5")
    refused(program, "--help", "stray")
    refused(program, "--help", "--ranks")
    refused(program, "did you mean 'split_dw'?", "--layer", "split_dv")
    refused(program, "--layer", "--layer", "serial", "--ranks", "4")
    refused(program, "--layer", "--layer", "serial", "--json")
    refused(program, "--format golden", "--layer", "serial", "--format", "golden")
    refused(program, "did you mean 'phases'?", "--replay", "phase")
    refused(program, "--replay phases draws", "--replay", "phases", "--format", "text")
    refused(program, "--layers goes with", "--layers", "8")
    for text in ("0", "-1", "1.5", "1e9", "1GiB", str((1 << 50) + 1), "9" * 30):
        refused(program, "--layer-bytes takes a whole number from 1 to 1125899906842624", f"--layer-bytes={text}")
    refused(program, "--layer-bytes stands in tables", "--layer-bytes", "1", "--format", "svg")
    refused(program, "--layer-bytes stands in tables", "--layer-bytes", "1", "--comm")
    refused(program, "--layer draws one layer pair", "--layer-bytes", "1", "--layer", "serial")
    refused(program, "--layers takes a whole number", "--replay", "phases", "--layers", "0")
    refused(program, "needs at least 8 here", "--replay", "phases", "--layers", "7")
    refused(program, "needs at least 2 here", "--replay", "phases", "--layers", "1", "--ranks", "1", "--pipeline", "gpipe")
    refused(program, "--replay phases holds", "--replay", "phases", "--ranks", "64", "--microbatches", "4096",
            "--layers", "128")
    refused(program, "--replay phases holds", "--replay", "phases", "--ranks", "1", "--microbatches", "40000",
            "--layers", "2", "--pipeline", "gpipe")
    refused(program, "--format svg draws at most", "--replay", "phases", "--microbatches", "128", "--format", "svg")
    for drawing in ("text", "svg", "mermaid"):
        refused(program, "draws at most", "--format", drawing, "--ranks", "64", "--microbatches", "4096")


def check_names(program: str) -> None:
    """Other spellings, and names that others use, mean the same and print the same."""
    meant = {"one_f_one_b": ["1f1b", "1F1B", "OneFOneB"], "gpipe": ["GPipe"], "interleaved": ["Interleaved1F1B", "vpp"],
             "one_f_one_b_ep": ["1f1b-ep"], "zero_bubble_h1": ["ZB-H1", "zbh1"], "zero_bubble_v": ["zbv", "ZBVZeroBubble"],
             "dual_pipe_v": ["DualPipeV", "dualpipev"]}
    for ours, theirs in meant.items():
        expected = run(program, "--pipeline", ours, "--json").stdout
        assert json.loads(expected)["pipeline"] == ours
        for name in theirs:
            assert run(program, "--pipeline", name, "--json").stdout == expected, name
            assert run(program, "--pipeline", f"x{name}").returncode == 2, name
    assert run(program, "--layer", "SplitDW").stdout == run(program, "--layer", "split_dw").stdout != ""
    told = " ".join(run(program, "--help").stdout.split())
    assert "also 1f1b, 1f1b_ep, interleaved_1f1b, vpp, zb_h1, zbv" in told, told


def check_costs(program: str, folder: pathlib.Path) -> None:
    def file(name: str, content: str | bytes) -> str:
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    forward = GOOD["forward"]
    cases = {
        "is not JSON": ["", "{", "\0\xff", b"\xff\xfe\x00", "[1, 2", changed().replace("1", "NaN", 1),
                        changed().replace("1", "Infinity", 1), changed().replace("1", "1e999", 1)],
        "is not an object": ["[]", "null", "3", '"text"', changed(forward=[1, 2, 3, 4]), changed(forward=None)],
        "is missing": ["{}", changed(forward={"attn": 1, "dispatch": 1, "mlp": 1}),
                       json.dumps({k: v for k, v in GOOD.items() if k != "backward_weight"})],
        "not a number": [changed(forward={**forward, "attn": "4"}), changed(forward={**forward, "mlp": None}),
                         changed(forward={**forward, "mlp": [1]}), changed(message=True)],
        "a cost is 0 or lies between": [changed(forward={**forward, "attn": -1}), changed(forward={**forward, "attn": 1e300}),
                                changed(message=-0.5)],
        "there is no key": [changed(forwards={}), changed(forward={**forward, "router": 1}),
                            changed(backward_weight={"attn": 1, "mlp": 1, "dispatch": 1})],
        "not a string": [changed(name=3)],
        "without compute": [changed(forward=dict.fromkeys(forward, 0)), changed(layers_per_rank=0)],
        "has the key 'forward' twice": [changed()[:-1] + ', "forward": {}}'],
        "has the key 'attn' twice": [changed().replace('"mlp": 1}}', '"mlp": 1, "attn": 1}}')],
        "unexpected end of input": [changed()[:-1]],
        "nests deeper": ["[" * 100000, '{"a":' * 50 + "1" + "}" * 50],
    }
    for says, contents in cases.items():
        for number, content in enumerate(contents):
            refused(program, says, "--costs", file(f"{says.replace(' ', '_')}_{number}.json", content))
    refused(program, "did you mean 'deepseek_h800'?", "--costs", "deepseek")
    refused(program, "cannot read", "--costs", str(folder))
    os.mkfifo(folder / "pipe")
    refused(program, "cannot read", "--costs", str(folder / "pipe"))
    refused(program, "a cost is 0 or lies between", "--costs", file("tiny.json", changed(message=1e-308)), "--format", "svg")
    refused(program, "give a short word such as ms", "--costs", file("markup.json", changed(unit="</text>")), "--format", "svg")
    with open("/dev/full", "w") as full:
        assert subprocess.run([program, "--ranks", "0"], stderr=full, stdout=full).returncode == 2
        for words in (["--help"], ["--ranks", "2"]):
            answer = subprocess.run([program, *words], stdout=full, stderr=subprocess.PIPE, text=True)
            assert answer.returncode == 2 and answer.stderr == "plan: the output could not be written; is the disk full?\n", answer
    with open(folder / "short.txt", "w") as short:
        answer = subprocess.run([program, "--ranks", "2"], stdout=short, stderr=subprocess.PIPE, text=True,
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16)))
        assert answer.returncode == 2 and answer.stderr == "plan: the output could not be written; is the disk full?\n", answer
    refused(program, "absent.json' is neither a file nor a preset (unit, deepseek_h800); check the path", "--costs", str(folder / "absent.json"))
    huge = folder / "huge.json"
    with huge.open("wb") as stream:
        stream.truncate(1 << 30)
    refused(program, "is longer than", "--costs", str(huge))
    accepted = run(program, "--costs", file("good.json", changed(message=0.1, layers_per_rank=8, name="mine")), "--json")
    assert accepted.returncode == 0 and json.loads(accepted.stdout)["costs"]["name"] == "mine", accepted.stderr
    # Without a name it is that of the file, as it can be shown: these bytes are no characters.
    odd = run(program, "--costs", file("caf\udcff\x1b.json", changed()), "--json")
    assert odd.returncode == 0 and json.loads(odd.stdout)["costs"]["name"].endswith("/caf??.json"), odd


def main() -> int:
    program = sys.argv[1]
    check_flags(program)
    check_names(program)
    with tempfile.TemporaryDirectory() as folder:
        check_costs(program, pathlib.Path(folder))
    print("bad input is refused in one line")
    return 0


if __name__ == "__main__":
    sys.exit(main())
