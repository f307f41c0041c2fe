"""The checks that the other tests are made of must themselves object to what is wrong."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
COMPILER = sys.argv[1:]
del sys.argv[1:]


class Checks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name: str, text: str) -> pathlib.Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def check(self, script: str, *arguments: object) -> tuple[int, str]:
        result = subprocess.run([sys.executable, HERE / script, *map(str, arguments)], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return result.returncode, result.stdout

    def compile_fail(self, text: str, *options: str) -> tuple[int, str]:
        file = self.write("case.cpp", text)
        return self.check("compile_fail.py", file, "--include", self.folder, *options, "--", *COMPILER)

    def test_compile_fail_accepts_the_expected_failure(self):
        self.assertEqual(self.compile_fail("// expect: unkn..n\n#ifdef STRETTO_COMPILE_FAIL\nunknown x;\n#endif\n")[0], 0)

    def test_compile_fail_objects_when_it_compiles(self):
        code, output = self.compile_fail("// expect: x\nint x;\n")
        self.assertEqual((code, "must not" in output), (1, True))

    def test_compile_fail_objects_to_a_bad_good_twin(self):
        code, output = self.compile_fail("// expect: unknown\nunknown x;\n")
        self.assertEqual((code, "good twin" in output), (1, True))

    def test_compile_fail_objects_to_another_message(self):
        code, output = self.compile_fail("// expect: other words\n#ifdef STRETTO_COMPILE_FAIL\nunknown x;\n#endif\n")
        self.assertEqual((code, "nothing matches: other words" in output), (1, True))

    def test_compile_fail_objects_to_a_long_message(self):
        code, output = self.compile_fail(
            "// expect: unknown\n#ifdef STRETTO_COMPILE_FAIL\nunknown x;\n#endif\n", "--budget", "1")
        self.assertEqual((code, "budget" in output), (1, True))

    def test_compile_fail_objects_to_a_case_that_expects_nothing(self):
        self.assertNotEqual(self.compile_fail("int x;\n")[0], 0)

    def test_old_standard_objects(self):
        self.write("stretto/version.hpp", "")
        says = '#error "stretto needs C++20: compile with -std=c++20 or later"\n'
        for fault, text in {
            "ends with 0": "",
            "ends with 1 and .* lines": "template <std::integral Number> void use(Number);\n",
            r"ends with 1 and \d\d+ lines": says + "#error and more\n" * 20,
        }.items():
            with self.subTest(fault):
                self.write("stretto/stretto.hpp", text)
                code, output = self.check("old_standard.py", "--include", self.folder, "--", *COMPILER)
                self.assertEqual(code, 1)
                self.assertRegex(output, fault)

    def layering(self, **headers: str) -> str:
        self.write("stretto/stretto.hpp", "".join(f"#include <stretto/{n}.hpp>\n" for n in headers if "adapters" not in n))
        for name, text in headers.items():
            self.write(f"stretto/{name}.hpp", text)
        return self.check("layering.py", self.folder)[1]

    def test_layering_accepts_what_is_in_order(self):
        self.assertIn(" 0 faults", self.layering(value="", phase="#include <stretto/value.hpp>\n#include <concepts>\n"))

    def test_layering_objects(self):
        for fault, headers in {
            "a layer above": {"value": "#include <stretto/executor.hpp>\n", "executor": ""},
            "in a circle": {"value": '#include "phase.hpp"\n', "phase": '#include "value.hpp"\n'},
            "not of the standard library": {"value": "#include <fmt/format.h>\n"},
            "includes the adapter": {"value": "#include <stretto/adapters/null.hpp>\n", "adapters/null": ""},
            "not its third party's": {"adapters/cuda": "#include <nccl.h>\n"},
            "its own folder": {"adapters/cuda": "#include <stretto/adapters/null.hpp>\n", "adapters/null": ""},
            "does not exist": {"value": "#include <stretto/nowhere.hpp>\n"},
            "has no layer": {"sundries": ""},
            "the most is": {"value": "\n" * 301},
        }.items():
            with self.subTest(fault):
                self.assertIn(fault, self.layering(**headers))

    def test_layering_objects_to_an_incomplete_umbrella(self):
        self.write("stretto/stretto.hpp", "")
        self.write("stretto/value.hpp", "")
        self.assertIn("does not include value.hpp", self.check("layering.py", self.folder)[1])

    def test_words_objects(self):
        self.write("notes.md", "TO" + "DO: later\n")
        self.write("tests/unit/orphan.cpp", "")
        code, output = self.check("words.py", self.folder)
        self.assertEqual((code, "unfinished work" in output, "no meson.build names it" in output), (1, True, True))

    def rules(self, change) -> str:
        """What the checks of the rule table say after a change of theirs."""
        root = self.folder / "copy"
        shutil.rmtree(root, ignore_errors=True)
        source = HERE.parent.parent
        for path in (*source.glob("tests/**/*"), *source.glob("docs/**/*"), source / "include/stretto/rules.hpp"):
            if path.is_file():
                copy = root / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)  # without the mode, which in a source tree may be to read only
        change(root)
        return "".join(self.check(root / "tests/compile_fail" / script)[1] for script in ("rules_covered.py", "errors_doc.py"))

    def test_rules_are_accepted_and_each_lack_is_seen(self):
        def edit(name: str, pattern: str, by: str):
            def change(root: pathlib.Path):
                path = root / name
                text, count = re.subn(pattern, by, path.read_text())
                self.assertGreater(count, 0)
                path.write_text(text)
            return change

        def remove(*names: str):
            return lambda root: [(root / "tests/compile_fail" / name).unlink() for name in names]

        def forget(root: pathlib.Path):
            for path in root.rglob("*.cpp"):
                path.write_text(path.read_text().replace("fault::race", "fault::none").replace("stretto[E02]", ""))

        self.assertEqual(self.rules(lambda root: None).count(" 0 faults"), 2)
        for fault, change in {
            "E02 (race) has no case": remove("race.cpp", "race_executor.cpp"),
            "E02 (race) has no test on values": forget,
            "E02: no sentence and remedy": edit("include/stretto/rules.hpp", r"stretto\[E02\]: ", "stretto[E02] "),
            "E01 is no rule": edit("include/stretto/rules.hpp", r"rule\(E01, unwritten_read\)", ""),
            "E02: its section is not of today": edit("tests/compile_fail/race.cpp", "w = -1", "w = -2"),
            "E02 has no section": edit("docs/errors.md", "## E02 race", "## race"),
            "E02: its section says too little": edit("docs/errors.md", r"(?s)Two lanes meet only.*?\n\nRefused", "\n\nRefused"),
            "E54: its section shows no program": edit("docs/errors.md", r"(?s)\n```cpp\nst::plan const all.*?```", ""),
        }.items():
            with self.subTest(fault):
                self.assertIn(fault, self.rules(change))

    def test_tally_counts_and_explains(self):
        rows = [("a", "OK", ""), ("b", "FAIL", "what went wrong"), ("c", "SKIP", "skipped: needs a GPU\n"), ("d", "TIMEOUT", "")]
        log = self.write("log.json", "\n".join(
            json.dumps({"name": f"stretto:unit / {n}", "result": r, "stdout": o, "duration": 1.0}) for n, r, o in rows))
        code, output = self.check("tally.py", "--failed", "build-of-x", "--logs", f"main={log}")
        self.assertEqual(code, 1)
        self.assertIn("what went wrong", output)
        self.assertIn("skipped: main: c: needs a GPU", output)
        self.assertEqual(output.splitlines()[-1], "1 passed, 3 failed, 1 skipped")

    def test_tally_is_content_only_with_passed_tests(self):
        log = self.write("log.json", json.dumps({"name": "a", "result": "OK", "duration": 1.0}))
        self.assertEqual(self.check("tally.py", "--logs", f"main={log}"), (0, "1 passed, 0 failed\n"))
        self.assertEqual(self.check("tally.py")[0], 1)


if __name__ == "__main__":
    unittest.main()
