"""Wrong arguments of the drivers in bench/gpu/ and of tests/gpu/sanitizer.py are one line and exit 2, before anything runs; good ones are taken."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"


def call(driver: str, *words: object, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    place = (ROOT / "tests" if driver == "sanitizer.py" else BENCH) / "gpu"
    return subprocess.run([sys.executable, str(place / driver), *map(str, words)], text=True, capture_output=True, timeout=60, env=environment)


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        ran, program, notes = folder / "ran", folder / "program", folder / "notes.json"
        program.write_text(f"#!/bin/sh\necho ran >> {ran}\nexit 3\n")
        program.chmod(0o755)
        notes.write_text("{}")
        pipe, loop, tools, good = folder / "pipe", folder / "loop", folder / "tools", folder / "good"
        os.mkfifo(pipe)
        loop.symlink_to(loop)
        tools.mkdir()
        for tool in ("sh", "echo"):
            (tools / tool).symlink_to(shutil.which(tool))
        good.write_text("#!/bin/sh\n")
        good.chmod(0o755)

        def check(driver: str, sentence: str, *words: object) -> None:
            answer = call(driver, *words)
            lines = answer.stderr.splitlines()
            assert answer.returncode == 2 and len(lines) == 1 and not answer.stdout and not ran.exists(), (words, answer)
            assert lines[0].startswith(driver + ": ") and sentence in lines[0] and len(lines[0]) < 600 and lines[0].isprintable(), (words, answer)

        def starts(driver: str, *words: object, environment: dict[str, str] | None = None) -> None:
            """What the wrong ones are changes of is in order."""
            answer = call(driver, *words, environment=environment)
            assert answer.returncode == 1 and ran.exists() and "Traceback" not in answer.stderr, (words, answer)
            ran.unlink()

        grid = ["--train-moe", program, "--plan", program, "--device", "cpu", "--text", notes]
        starts("grid.py", *grid)
        for flag, value, sentence in [
            ("--train-moe", folder / "none", "cannot be started"), ("--text", folder / "none", "there is no"),
            ("--ranks", "x", "'x' is no whole number from 1 up"), ("--ranks", "1,0", "'0' is no whole number from 1 up"),
            ("--grids", "2y1", "'2y1' is no grid such as 2x4"), ("--grids", "2x", "'2x' is no grid"), ("--grids", "0x1", "'0x1' is no grid"),
            ("--grids", "3x1", "layers=16 is no multiple"), ("--ways", "serial", "'serial' is no way such as one_f_one_b:serial"),
            ("--ways", "gpipe:quick", "'quick' is none of serial,"), ("--ways", "", "name one"), ("--policies", "fast", "'fast' is none of"),
            ("--policies", "", "name one"), ("--set", "layers", "layers is a whole number above 0, not ''"),
            ("--set", "layers=x", "layers is a whole number above 0"), ("--set", "size=1", "not size"), ("--steps", "0", "from 1 up"),
            ("--warm-up", "-1", "from 0 up"), ("--warm-up", "some", "from 0 up"), ("--limit", "nan", "no number above 0"),
            ("--limit", "0", "no number above 0"), ("--more", "'a", "No closing quotation"), ("--json", folder / "none" / "x.json", "cannot be written"),
            ("--json", folder, "cannot be written"), ("--device", "tpu", "invalid choice"), ("--colour", "red", "unrecognized arguments"),
            ("--steps", "9" * 5000, "of at most nine digits"), ("--set", "layers=" + "9" * 5000, "layers is a whole number"), ("--limit", "1e9", "a million at most"),
            ("--text", "x" * 5000, "there is no xxx"), ("--json", "x" * 5000, "cannot be written"), ("--json", pipe, "cannot be written"),
            ("--json", loop, "cannot be written"), ("--ways", "a\nb\x1b[31m", "'a?b?[31m' is no way"), ("--train-moe", "y" * 5000, "cannot be started"),
        ]:
            check("grid.py", sentence, *grid, flag, value)
        check("grid.py", "argument --device: '--' is no value", *grid, "--device=--")
        # Where there is no driver either.
        starts("grid.py", *grid, "--device", "cuda", environment={"PATH": str(tools)})

        beside = ["--train-moe", program, "--other", f"{program} {{layers}}", "--json", folder / "out.json", "--text", notes]
        starts("beside_megatron.py", *beside)
        for flag, value, sentence in [
            ("--train-moe", folder / "none", "cannot be started"), ("--other", folder / "none", "cannot be started"),
            ("--other", f"{program} {{depth}}", "'depth' in braces"), ("--other", f"{program} {{", "in braces"), ("--other", "'a", "No closing quotation"),
            ("--text", folder / "none", "there is no"), ("--shapes", "huge", "'huge' is none of coarse, fine, small"),
            ("--shapes", "small,small:depth=2", "'depth' is no size of a shape"), ("--shapes", "small:layers=x", "'x' is no whole number"),
            ("--shapes", "small:layers", "'' is no whole number"), ("--shapes", "", "name one"), ("--ways", "serial,quick", "'quick' is none of"),
            ("--ways", "serial+slot", "has +slot"), ("--ways", "serial+none+processes", "are threads"), ("--capacity", "much", "no number above 0"), ("--rounds", "0", "from 1 up"),
            ("--launch", "", "name a program"), ("--launch", folder / "none", "cannot be started"), ("--traces", folder / "none", "there is no"),
            ("--limit", "-1", "no number above 0"), ("--json", folder / "none" / "x.json", "cannot be written"),
            ("--text", "x" * 5000, "there is no xxx"), ("--other", f"{program} {{layers.x}}", "in braces"), ("--traces", "x" * 5000, "there is no xxx"),
        ]:
            check("beside_megatron.py", sentence, *beside, flag, value)
        check("beside_megatron.py", "give --train-moe, --json and, if train_moe is not to run alone, --other; or --table FILE")
        check("beside_megatron.py", "there is no", "--table", folder / "none")
        check("beside_megatron.py", "is nothing that --json wrote", "--table", notes)
        check("beside_megatron.py", "is nothing that --json wrote", "--table", program)
        for content in ("[" * 100000, '{"shapes": 1, "other_serial": 2, "other_without_comm": 3}', '{"shapes": {"small": {}}, "other_serial": "", "other_without_comm": ""}'):
            notes.write_text(content)
            check("beside_megatron.py", "is nothing that --json wrote", "--table", notes)
        (folder / "tests").mkdir()
        for flag, value, sentence in [
            ("--only", "cublas,lanes", "'lanes' is none of c10d_rows, cublas,"),
            ("--gpus", "0", "from 1 up"), ("--at-once", "0", "from 1 up"), ("--limit", "nan", "no number above 0"), ("--seconds", "-1", "no number above 0"),
        ]:
            check("sanitizer.py", sentence, folder, flag, value)
        check("sanitizer.py", "there is no", folder / "none")
        check("sanitizer.py", "has no tests", tools)
        (tools / "compute-sanitizer").symlink_to(good)
        answer = call("sanitizer.py", folder, "--logs", program, environment={"PATH": str(tools)})
        assert answer.returncode == 2 and f"{program} cannot be a folder" in answer.stderr, answer
        answer = call("beside_megatron.py", "--train-moe", good, "--json", folder / "out.json", "--text", notes)
        assert answer.returncode == 1 and answer.stderr == f"{good} ended well and wrote no results; --train-moe takes train_moe or train_moe_cuda\n", answer
        shown = call("beside_megatron.py", "--table", BENCH / "results" / "beside_megatron.json")
        assert shown.returncode == 0 and "| train_moe | serial+fast |" in shown.stdout, shown


if __name__ == "__main__":
    main()
