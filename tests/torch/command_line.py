"""command_line.py TRAIN_MOE: what a user types. Bad input gets one line on stderr, exit code 2, and changes nothing."""

import json
import math
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

TINY = ["--layers", "2", "--dense", "1", "--hidden", "16", "--heads", "2", "--ffn", "8", "--experts", "4", "--seq", "12",
        "--steps", "3", "--microbatches", "2", "--batch", "2"]
POLICIES = ["autograd", "serial", "two_stream_1f1b", "split_dw"]


def run(program: str, *arguments: str, folder: pathlib.Path | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, cwd=folder)


def listing(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() and os.access(p, os.R_OK) else b""
            for p in folder.rglob("*")}


class Refusals:
    def __init__(self, program: str, folder: pathlib.Path):
        self.program, self.folder = program, folder
        self.text = str(folder / "text.txt")

    def says(self, words: str, *arguments: str, with_text: bool = True) -> None:
        before = listing(self.folder)
        arguments = (["--text", self.text] if with_text else []) + list(arguments)
        answer = run(self.program, *arguments, folder=self.folder)
        lines = answer.stderr.splitlines()
        shown = f"train_moe {' '.join(arguments)[:200]}: exit {answer.returncode}, {answer.stderr[:400]!r}"
        assert answer.returncode == 2, shown
        assert answer.stdout == "", f"{shown}: something was printed"
        assert len(lines) == 1 and lines[0].startswith("train_moe: ") and len(lines[0]) < 500, shown
        assert words in lines[0], f"{shown}: should say {words!r}"
        assert listing(self.folder) == before, f"{shown}: files changed"


def check_numbers(refuse: Refusals) -> None:
    whole = ["--ep", "--pp", "--chunks", "--microbatches", "--steps", "--batch", "--seq", "--layers", "--hidden", "--heads", "--ffn",
             "--experts", "--top-k"]
    # All flags of a kind are read by the same code and every refusal loads libtorch, so the texts take turns.
    kinds = [
        ("must be a whole number", whole,
         ("0", "-1", "abc", " 4", "4 ", "4.5", "1e3", "0x4", "99999999999999999999", "nan", "4\n4", "")),
        ("must be a whole number", ["--dense", "--shared", "--seed"], ("-1", "x", "1.5", "99999999999999999999")),
        ("must be a number above 0", ["--lr", "--clip", "--capacity"],
         ("0", "-1", "nan", "inf", "-inf", "1e999", "x", "1.0x")),
        ("must be a number of at least 0.001", ["--link-gbps"], ("0", "-1", "nan", "1e-300", "1e999")),
        ("must be a number of at least 0", ["--aux", "--link-us"], ("-1", "nan", "inf", "x")),
    ]
    for words, flags, texts in kinds:
        for turn in range(max(len(flags), len(texts))):
            flag, text = flags[turn % len(flags)], texts[turn % len(texts)]
            refuse.says(f"{flag} {words}" if text else flag, f"{flag}={text}")
    for flag in ("--steps", "--policy", "--json", "--text"):
        refuse.says(flag, flag)


def check_words(refuse: Refusals) -> None:
    refuse.says("did you mean split_dw?", "--policy", "split_dv")
    refuse.says("did you mean two_stream_1f1b?", "--policy", "two_stream")
    refuse.says("knows autograd, serial, two_stream_1f1b, split_dw", "--policy", "qqqqqqqqqqq")
    refuse.says("did you mean --microbatches?", "--microbatch", "4")
    refuse.says("did you mean --policy?", "--polcy=serial")
    refuse.says("--help", "--qqqqqqqqqqqqqqqqq")
    refuse.says("--help", "stray")
    refuse.says("f32, bf16", "--dtype", "f16")
    # What a terminal would obey, and bytes that are no characters.
    refuse.says("not '?31mé??1?'", "--dtype", "\x9b31mé\u2028\u202e1\udcff")
    refuse.says("there is no file or folder ?é?", "--text", "\x9bé\udcff", with_text=False)
    if not os.path.exists("/dev/nvidiactl"):
        refuse.says("--device cuda: this machine has no NVIDIA GPU", "--device", "cuda")
        # The program that this one would go on in, where it can be loaded: CUDA and a libtorch with CUDA may be without a GPU.
        there = pathlib.Path(refuse.program).with_name("train_moe_cuda")
        if there.exists() and run(str(there), "--help").returncode == 0:
            Refusals(str(there), refuse.folder).says("there is no NVIDIA driver", "--device", "cuda")
    refuse.says("--link-us models a link", "--device", "cuda", "--link-us", "5")
    refuse.says("--own-cores is for ranks that compute on cores", "--device", "cuda", "--own-cores")
    refuse.says("--own-cores takes two cores a rank, and 256 ranks may use", "--own-cores", "--pp", "4", "--ep", "64", "--experts", "64")
    refuse.says("cpu, cuda", "--device", "tpu")
    refuse.says("say --device cuda", "--graph", "--capacity", "4")
    refuse.says("--capacity 4.00, which always suffices", "--graph", "--device", "cuda")
    refuse.says("fast is for GPUs", "--attention", "fast")
    refuse.says("repeatable, fast", "--attention", "slow")
    refuse.says("--compare compares bits", "--attention", "fast", "--device", "cuda", "--compare")
    for flag in ("--trace", "--svg"):
        refuse.says(f"no times of single ops, which {flag} shows", "--graph", "--capacity", "4", "--device", "cuda", flag, "ops")
    refuse.says("--policy", "--policy", "x" * 10000)
    refuse.says("--compare", "--compare", "--policy", "serial")
    for text in ("--compare=yes", "--compare=", "--graph=0"):
        refuse.says(f"{text.split('=')[0]} takes no value", text)
    # The next flag is no value, and no name of a file.
    refuse.says("--json has no value", "--json", "--compare")
    refuse.says("--json has no value", "--json=", "--compare")
    refuse.says("--steps is given twice", "--steps", "1", "--steps=2")


def check_combinations(refuse: Refusals) -> None:
    refuse.says("--experts 8 is no multiple of --ep 3", "--ep", "3")
    refuse.says("--top-k 9", "--top-k", "9")
    refuse.says("--hidden 128 is no multiple of --heads 3", "--heads", "3")
    refuse.says("odd width 3", "--hidden", "12", "--heads", "4")
    refuse.says("--dense 5", "--dense", "5")


def check_pipelines(refuse: Refusals) -> None:
    refuse.says("did you mean one_f_one_b_ep?", "--pipeline", "one_f_one_b_eq")
    refuse.says("knows serial, gpipe, one_f_one_b", "--pipeline", "qqqqqqqqqqqqqqqqqqq")
    refuse.says("stretto[E41]: dual_pipe_v with 4 ranks, 6 microbatches, 2 chunks a rank: the pipeline needs more microbatches",
                "--pipeline", "dual_pipe_v", "--pp", "4", "--microbatches", "6")
    refuse.says("stretto[E43]: gpipe with 2 ranks, 4 microbatches, 2 chunks a rank", "--pipeline", "gpipe", "--pp", "2",
                "--chunks", "2")
    for pipeline in ("zero_bubble_h1", "zero_bubble_v", "dual_pipe_v"):
        refuse.says("stretto[E59]", "--pipeline", pipeline, "--policy", "autograd")
    # As others call it.
    refuse.says("stretto[E59]: zero_bubble_v with", "--pipeline", "ZBV", "--policy", "Autograd")
    refuse.says("--pp must be", "--pp", "65")
    refuse.says("is 320 ranks", "--ep", "64", "--experts", "64", "--pp", "5")
    refuse.says("--comm says how ranks on GPUs reach each other", "--comm", "nccl")
    refuse.says("--comm-ctas is a budget of NCCL", "--device", "cuda", "--comm-ctas", "8")
    refuse.says("must be a power of two, not 6", "--device", "cuda", "--comm", "nccl", "--comm-ctas", "6")
    refuse.says("staged, peer, nccl, none, not 'ring'", "--device", "cuda", "--comm", "ring")


def check_texts(refuse: Refusals) -> None:
    folder = refuse.folder
    refuse.says("--text is missing", with_text=False)
    refuse.says("--help", "--text=", with_text=False)
    refuse.says("there is no file or folder", "--text", str(folder / "nothing"), with_text=False)
    refuse.says("nothing?here; check the path", "--text", str(folder / "nothing\nhere"), with_text=False)
    (folder / "empty.txt").write_bytes(b"")
    refuse.says("is empty", "--text", str(folder / "empty.txt"), with_text=False)
    (folder / "bare").mkdir()
    (folder / "bare" / "inner").mkdir()
    refuse.says("no files", "--text", str(folder / "bare"), with_text=False)
    (folder / "short.txt").write_bytes(b"x" * 200)
    refuse.says("at least 1290", "--text", str(folder / "short.txt"), with_text=False)
    refuse.says("neither a file nor a folder", "--text", "/dev/null", with_text=False)
    if os.geteuid() != 0:  # root reads everything
        (folder / "secret.txt").write_bytes(b"x" * 5000)
        (folder / "secret.txt").chmod(0)
        refuse.says("cannot read", "--text", str(folder / "secret.txt"), with_text=False)
        (folder / "secret.txt").chmod(0o600)


def check_files(refuse: Refusals) -> None:
    folder = refuse.folder
    (folder / "old.json").write_text("kept")
    for flag in ("--json", "--trace", "--svg"):
        refuse.says(f"{flag}: cannot write", flag, str(folder / "no" / "such" / "folder.json"))
        refuse.says(f"{flag}: {folder} is a folder", flag, str(folder))
        refuse.says(flag, flag, "")
        # Nothing is touched when something else is wrong.
        refuse.says("--steps", flag, str(folder / "old.json"), "--steps", "0")
        refuse.says("--text", flag, str(folder / "old.json"), "--text", str(folder / "nothing"), with_text=False)
        refuse.says("--policy", flag, str(folder / "new.json"), "--policy", "x")
    refuse.says("the same file", "--json", "same.json", "--trace", "same.json")
    refuse.says("the same file", "--json", str(folder / "same.json"), "--trace", str(folder / "bare" / ".." / "same.json"))
    (folder / "loose").symlink_to(folder / "absent.json")
    refuse.says("in a folder that exists", "--json", str(folder / "no\nfolder" / "x.json"))
    refuse.says("leads to no file", "--json", str(folder / "loose"))
    text = folder / "own.txt"
    text.write_bytes(b"one and one is two. " * 200)
    refuse.says("the text itself", "--text", str(text), "--json", str(folder / "bare" / ".." / "own.txt"), with_text=False)
    assert text.read_bytes() == b"one and one is two. " * 200
    refuse.says("--trace and --svg name the same file", "--trace", "same", "--svg", "same")
    for flag in ("--trace", "--svg"):
        refuse.says(f"{flag} shows one policy", flag, "ops", "--compare")
        refuse.says(f"{flag} shows the ops of a schedule", flag, "ops", "--policy", "autograd")
    refuse.says("--svg draws at most 40000 ops and a step of this run has about 40800", "--svg", "ops", "--microbatches", "120", "--layers", "16")
    assert (folder / "old.json").read_text() == "kept"


def check_page(runs: list[dict]) -> None:
    """The page of results has a row for every field and no other, and what it says of null holds."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "train_moe.md").read_text()
    of_run, of_config = ({name: null.strip() for name, null in re.findall(r"^\| `(\w+)` \|.*\|([^|]*)\|$", table, re.MULTILINE)}
                         for table in page.split("The fields of `config`"))
    for each in runs:
        for rows, fields in ((of_run, each), (of_config, each["config"])):
            assert list(rows) == list(fields), f"docs/train_moe.md: {set(rows) ^ set(fields) or 'another order than is written'}"
            for name, value in fields.items():
                assert value is not None or rows[name], f"docs/train_moe.md does not say when {name} is null"
    for name in (name for name, null in of_config.items() if null):
        assert {each["config"][name] is None for each in runs} == {True, False}, f"{name} is to be seen null and not"


def check_memory(program: str, text: str) -> None:
    """A step that finds no memory names its op and what the run takes."""
    def little() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    many = ["--hidden", "1024", "--heads", "8", "--batch", "1024", "--seq", "2048", "--layers", "1", "--ep", "1", "--steps", "1",
            "--microbatches", "1", "--policy", "serial"]
    answer = subprocess.run([program, "--text", text, *many], capture_output=True, text=True, timeout=120, preexec_fn=little)
    assert answer.returncode == 1, answer
    lines = answer.stderr.strip().splitlines()
    said = r"train_moe: rank 0: F\.attn of layer 0, microbatch 0 failed: out of memory; with serial it takes (\d+)\.\d GiB at least, .*"
    assert len(lines) == 1 and (found := re.match(said, lines[0])), answer.stderr
    assert int(found[1]) > 8 and "; lower --batch, --seq," in answer.stderr, answer.stderr
    large = ["--hidden", "65536", "--heads", "1", "--ffn", "65536", "--layers", "1", "--ep", "1", "--steps", "1", "--microbatches", "1"]
    answer = subprocess.run([program, "--text", text, *large], capture_output=True, text=True, timeout=120, preexec_fn=little)
    assert answer.returncode == 1 and "; lower --layers, --hidden, --ffn," in answer.stderr, answer


def check_limits(program: str, text: str, folder: pathlib.Path) -> None:
    """A file that may not grow to its end is said to be lost, and no part of it is left."""
    def short() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
    answer = subprocess.run([program, "--text", text, *TINY, "--trace", "short.json"], cwd=folder, capture_output=True, text=True, timeout=120,
                            preexec_fn=short)
    assert answer.returncode == 1 and answer.stderr.startswith("train_moe: --trace: writing short.json failed: File too large"), answer
    assert not list(folder.glob("short.json*")), listing(folder)


def check_results(program: str, text: str, folder: pathlib.Path) -> None:
    runs = {}
    for policy in POLICIES:
        file = folder / f"{policy}.json"
        file.write_text("old")
        trace = ["--trace", str(folder / "trace.json")] if policy != "autograd" else []
        answer = run(program, "--text", text, *TINY, "--policy", policy, "--json", str(file), *trace)
        assert answer.returncode == 0 and answer.stderr == "", answer
        runs[policy] = one = json.loads(file.read_text())
        assert one["policy"] == policy
        assert one["pipeline"] == ("serial" if policy in ("autograd", "serial") else "one_f_one_b_ep")
        assert one["ranks"] == 2
        assert len(one["losses"]) == len(one["step_seconds"]) == 3
        assert all(math.isfinite(x) and x > 0 for x in one["losses"] + one["step_seconds"])
        assert all(0 < part < whole for part, whole in zip(one["schedule_seconds"], one["step_seconds"], strict=True))
        assert one["heldout_loss"] > 0 and one["bigram_loss"] > 0
        assert len(one["grad_digest"]) == 16 and int(one["grad_digest"], 16) >= 0
        assert one["exposed_seconds"] > 0 and one["peak_bytes"] > 0
        assert one["config"]["experts"] == 4 and one["config"]["dtype"] == "f32"
        if trace:
            events = json.loads((folder / "trace.json").read_text())["traceEvents"]
            names = {e["name"] for e in events if e["ph"] == "X"}
            assert {e["pid"] for e in events} == {0, 1}
            assert any(n.startswith("F.dispatch") for n in names) and any(n.startswith("F.attn") for n in names)
            assert any(n.startswith("W.mlp") for n in names) == (policy == "split_dw"), names
    for policy in POLICIES:
        for key in ("losses", "grad_digest", "heldout_loss", "bigram_loss"):
            assert runs[policy][key] == runs["serial"][key], (policy, key)
    names = sorted(p.name for p in folder.iterdir())
    assert names == sorted([f"{p}.json" for p in POLICIES] + ["trace.json", "text.txt"]), names

    answer = run(program, "--text", text, *TINY, "--compare", "--json", str(folder / "all.json"))
    assert answer.returncode == 0 and answer.stderr == "", answer
    both = json.loads((folder / "all.json").read_text())["runs"]
    assert [r["policy"] for r in both] == POLICIES
    assert {r["grad_digest"] for r in both} == {runs["serial"]["grad_digest"]}
    table = answer.stdout[answer.stdout.index("policy  "):].splitlines()
    assert len({len(line) for line in table[:6]}) == 1, answer.stdout
    assert all(" yes " in line for line in table[2:6]), answer.stdout

    answer = run(program, "--text", text, *TINY, "--compare", "--capacity", "2", "--json", str(folder / "all.json"))
    assert answer.returncode == 0 and answer.stderr == "", answer
    slots = json.loads((folder / "all.json").read_text())["runs"]
    assert len({r["grad_digest"] for r in slots}) == len({tuple(r["losses"]) for r in slots}) == 1, slots
    assert slots[0]["config"]["capacity"] == 2 and both[0]["config"]["capacity"] is None
    assert all(abs(a - b) < 1e-5 for a, b in zip(slots[0]["losses"], both[0]["losses"], strict=True)), (slots, both)
    assert "slots  24 of every expert for the 48 choices" in answer.stdout, answer.stdout
    answer = run(program, "--text", text, *TINY, "--compare", "--force-load-balancing", "--json", str(folder / "forced.json"))
    assert answer.returncode == 0 and answer.stderr == "", answer
    forced = json.loads((folder / "forced.json").read_text())["runs"]
    assert len({r["grad_digest"] for r in forced}) == 1 and forced[0]["grad_digest"] != both[0]["grad_digest"], forced
    answer = run(program, "--text", text, *TINY, "--link-gbps", "100", "--link-us", "1", "--json", str(folder / "one.json"))
    assert answer.returncode == 0 and answer.stderr == "", answer
    linked = json.loads((folder / "one.json").read_text())
    assert linked["link_seconds"] > 0 and both[0]["link_seconds"] == 0, linked
    check_page([*runs.values(), *both, *slots, linked])
    answer = run(program, "--text", text, *TINY, "--capacity", "0.2", "--json", str(folder / "no.json"))
    assert answer.returncode == 1 and answer.stderr.count("\n") == 1 and "found no slot" in answer.stderr, answer
    assert not (folder / "no.json").exists()

    answer = run(program, "--text", text, *TINY, "--json", "/dev/stdout")
    assert answer.returncode == 0 and '"grad_digest"' in answer.stdout
    answer = run(program, "--help")
    assert answer.returncode == 0 and "--microbatches" in answer.stdout and answer.stderr == ""


def check_pipeline_results(program: str, text: str, folder: pathlib.Path) -> None:
    six = ["6" if before == "--microbatches" else word for before, word in zip(["", *TINY], TINY)]

    def one(*arguments: str) -> dict:
        answer = run(program, "--text", text, *six, *arguments, "--json", str(folder / "one.json"))
        assert answer.returncode == 0 and answer.stderr == "", answer
        return json.loads((folder / "one.json").read_text())

    serial = one("--policy", "serial")
    file = folder / "trace.json"
    for pipeline, policy, ranks, chunks, *more in (("dual_pipe_v", "split_dw", 3, 2), ("interleaved", "autograd", 2, 3, "--chunks", "3")):
        trace = ["--trace", str(file), "--svg", str(folder / "step.svg")] if policy != "autograd" else []
        found = one("--pipeline", pipeline, "--policy", policy, "--pp", str(ranks), *more, *trace)
        assert (found["pipeline"], found["policy"], found["ranks"], found["chunks"]) == (pipeline, policy, 2 * ranks, chunks)
        assert found["config"]["pp"] == ranks
        for key in ("losses", "grad_digest", "heldout_loss"):
            assert found[key] == serial[key], (pipeline, key)
    events = [e for e in json.loads(file.read_text())["traceEvents"] if e["ph"] == "X"]
    assert {e["pid"] for e in events} == set(range(6))
    assert {e["cat"] for e in events} == {"compute", "comm", "messages"}
    # The picture has the ops of the trace, and says on which chunk they are.
    drawn = xml.etree.ElementTree.fromstring((folder / "step.svg").read_text())
    name = "{http://www.w3.org/2000/svg}"
    titles = sorted(each.text.split(":")[0] for each in drawn.iter(f"{name}title"))
    assert titles == sorted(e["name"] for e in events if e["cat"] != "messages" and e["dur"] > 0), titles
    words = [each.text for each in drawn.iter(f"{name}text")]
    assert "dual_pipe_v" in words[0] and "no link modelled" in words[1], words[:3]
    assert {f"rank {rank}" for rank in range(6)} <= set(words) and "second chunk" in words, words
    # Stages 0 to 5 lie on a V: the activation of 2 stays on its rank, and so does the gradient of 3.
    stages = {"F": (0, 1, 3, 4), "B": (1, 2, 4, 5)}
    for way in ("send", "receive"):
        names = {e["name"].split(" mb")[0] for e in events if e["name"].startswith(way)}
        seen = {name.replace(" lower", "").replace(" higher", "") for name in names}
        assert seen == {f"{way} {what} S{stage}" for what in stages for stage in stages[what]}, names

    # As many ranks as have two cores.
    if ranks := min(len(os.sched_getaffinity(0)) // 2, 2):
        plain, own = (one("--ep", "1", "--pp", str(ranks), "--pipeline", "zero_bubble_v", "--policy", "two_stream_1f1b", *more)
                      for more in ([], ["--own-cores"]))
        for key in ("losses", "grad_digest", "heldout_loss"):
            assert own[key] == plain[key], key

    answer = run(program, "--text", text, *TINY, "--compare", "--pp", "2", "--pipeline", "zero_bubble_h1",
                 "--json", str(folder / "one.json"))
    assert answer.returncode == 0 and answer.stderr == "", answer
    runs = json.loads((folder / "one.json").read_text())["runs"]
    assert [(r["policy"], r["pipeline"]) for r in runs] == [(p, "zero_bubble_h1") for p in POLICIES if p != "autograd"]
    assert len({r["grad_digest"] for r in runs}) == 1
    assert "zero_bubble_h1: 2 pipeline ranks with 1 stage each" in answer.stdout
    assert "Policies that zero_bubble_h1 does not go with were left out." in answer.stdout
    assert "No link is modelled" in answer.stdout and "--link-gbps" in answer.stdout
    answer = run(program, "--text", text, *TINY, "--compare", "--link-gbps", "1")
    assert answer.returncode == 0 and "No link is modelled" not in answer.stdout, answer


def main() -> None:
    program = str(pathlib.Path(sys.argv[1]).resolve())
    words = " ".join(f"{n} times {n % 7} is {n * (n % 7)}," for n in range(1500))
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "text.txt").write_text(words)
        refuse = Refusals(program, folder)
        for check in (check_numbers, check_words, check_combinations, check_pipelines, check_texts, check_files):
            check(refuse)
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "text.txt").write_text(words)
        check_limits(program, str(folder / "text.txt"), folder)
        check_memory(program, str(folder / "text.txt"))
        check_results(program, str(folder / "text.txt"), folder)
        check_pipeline_results(program, str(folder / "text.txt"), folder)


if __name__ == "__main__":
    main()
