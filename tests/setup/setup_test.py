"""setup_test.py SOURCE_ROOT: the branches of examples/setup.sh, with pretended package manager, user and distribution."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

SETUP = pathlib.Path(sys.argv.pop()) / "examples/setup.sh"
SYSTEM_TOOLS = ["sh", "env", "grep", "awk", "sed", "tee", "head", "rm", "mv", "mkdir", "cat", "python3", "ninja", "pkg-config"]

DEBIAN = 'ID=debian\nVERSION_ID="12"\n'
DEB822 = """# the distribution
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""
THIRD_PARTY = """Types: deb
URIs: http://packages.example/linux/debian
Suites: bookworm
Components: stable
"""


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for tool in SYSTEM_TOOLS:
            if found := shutil.which(tool):
                (self.bin / tool).symlink_to(found)
        self.calls = self.folder / "apt-get.calls"
        self.tool("apt-get", f'echo "$*" >>{self.calls}')
        self.tool("id", "echo 0")
        self.sources = self.folder / "apt"
        (self.sources / "sources.list.d").mkdir(parents=True)
        self.os_release = self.folder / "os-release"
        self.os_release.write_text(DEBIAN)
        self.cache = self.folder / "cache"
        self.fake_torch(self.cache / "stretto/torch-2.11.0/lib/python3.11/site-packages/torch")

    def tool(self, name: str, body: str):
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def have(self, *tools: str):
        for name in tools:
            self.tool(name, "")

    def fake_torch(self, folder: pathlib.Path):
        for name in ("include/ATen/ATen.h", "lib/libtorch_cpu.so", "lib/libc10.so"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()

    def run_setup(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            ["sh", str(SETUP), *arguments], stdin=subprocess.DEVNULL, text=True, capture_output=True,
            env={"PATH": str(self.bin), "HOME": str(self.folder), "XDG_CACHE_HOME": str(self.cache),
                 "STRETTO_APT_SOURCES": str(self.sources), "STRETTO_OS_RELEASE": str(self.os_release)} | environment)

    def asked_apt_for(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    def assert_refuses(self, result: subprocess.CompletedProcess, *words: str):
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
        self.assertEqual(self.asked_apt_for(), [])

    def test_changes_nothing_where_everything_is_there(self):
        self.have("g++", "meson")
        result = self.run_setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("everything is there", result.stdout)
        self.assertEqual(self.asked_apt_for(), [])

    def test_installs_by_name_what_is_missing(self):
        self.have("g++")
        result = self.run_setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        update, install = self.asked_apt_for()
        self.assertIn("update", update)
        self.assertTrue(install.endswith("install --no-install-recommends meson"), install)

    def test_goes_through_sudo_without_a_password(self):
        self.have("g++")
        self.tool("id", "echo 1000")
        self.tool("sudo", '[ "$1" != -n ] || shift; "$@"')
        self.assertEqual(self.run_setup().returncode, 0)
        self.assertEqual(len(self.asked_apt_for()), 2)

    def test_names_the_packages_without_root_and_sudo(self):
        self.tool("id", "echo 1000")
        self.assert_refuses(self.run_setup(), "g++", "meson", "not root")

    def test_names_the_packages_where_sudo_wants_a_password(self):
        self.tool("id", "echo 1000")
        self.tool("sudo", "exit 1")
        self.assert_refuses(self.run_setup(), "g++", "meson", "password")

    def test_names_the_packages_on_another_distribution(self):
        self.os_release.write_text("ID=fedora\nVERSION_ID=42\n")
        self.assert_refuses(self.run_setup(), "g++", "meson", "neither Debian 12 nor Ubuntu 24.04")

    def test_goes_on_on_another_distribution_where_everything_is_there(self):
        self.os_release.write_text("ID=fedora\nVERSION_ID=42\n")
        self.have("g++", "meson")
        self.assertEqual(self.run_setup().returncode, 0)

    def test_refuses_an_unknown_argument(self):
        self.assert_refuses(self.run_setup("--everything"), "--everything")

    def test_says_so_when_a_package_cannot_be_installed(self):
        self.tool("apt-get", "exit 100")
        result = self.run_setup()
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("could not install g++ meson", result.stderr)

    def without_catch2(self):
        self.have("g++", "meson", "objdump", "clang++-19", "valgrind")
        self.tool("pkg-config", "exit 1")

    def test_adds_backports_to_the_distributions_own_entry(self):
        self.without_catch2()
        own, other = (self.sources / "sources.list.d" / name for name in ("debian.sources", "a_third_party.sources"))
        own.write_text(DEB822)
        other.write_text(THIRD_PARTY)
        result = self.run_setup("--tests")
        self.assertEqual(result.returncode, 0, result.stderr)
        changed = DEB822.replace("bookworm-updates\n", "bookworm-updates bookworm-backports\n")
        self.assertEqual(own.read_text().strip(), changed.strip())
        self.assertEqual(other.read_text(), THIRD_PARTY)
        self.assertIn("catch2/bookworm-backports", "\n".join(self.asked_apt_for()))
        self.assertEqual(self.run_setup("--tests").returncode, 0)
        self.assertEqual(own.read_text().strip(), changed.strip(), "a second run adds nothing")

    def test_adds_backports_beside_a_one_line_entry(self):
        self.without_catch2()
        (self.sources / "sources.list").write_text("deb [arch=amd64] http://mirror.example/debian bookworm main contrib\n")
        self.assertEqual(self.run_setup("--tests").returncode, 0)
        added = (self.sources / "sources.list.d/bookworm-backports.list").read_text()
        self.assertEqual(added, "deb [arch=amd64] http://mirror.example/debian bookworm-backports main contrib\n")

    def test_says_so_without_an_entry_to_derive_backports_from(self):
        self.without_catch2()
        self.assert_refuses(self.run_setup("--tests"), "bookworm-backports")

    def test_takes_ubuntus_own_catch2(self):
        self.without_catch2()
        self.os_release.write_text('ID=ubuntu\nVERSION_ID="24.04"\n')
        self.assertEqual(self.run_setup("--tests").returncode, 0)
        self.assertNotIn("backports", "\n".join(self.asked_apt_for()))

    def wheels(self) -> str:
        """Empty packages by the names and versions that the script asks for."""
        folder = self.folder / "wheels"
        folder.mkdir()
        for name, version in (("torch", "2.11.0"), ("nvidia_cuda_runtime", "13.0.96"), ("nvidia_cuda_cupti", "13.0.85")):
            info = f"{name}-{version}.dist-info"
            with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
                if name == "torch":
                    for file in ("include/ATen/ATen.h", "lib/libtorch_cpu.so", "lib/libc10.so"):
                        wheel.writestr(f"torch/{file}", "")
                wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
                wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                wheel.writestr(f"{info}/RECORD", "")
        return str(folder)

    def python_brings_torch(self) -> bool:
        return any(subprocess.run([p, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"]).returncode == 0
                   for p in ("python3", "/usr/bin/python3") if shutil.which(p))

    def test_remakes_a_torch_folder_that_an_interruption_left_incomplete(self):
        if self.python_brings_torch():
            self.skipTest("this machine's Python brings torch, so none is fetched")
        self.have("g++", "meson")
        torch = self.cache / "stretto/torch-2.11.0"
        (torch / "lib/python3.11/site-packages/torch/lib/libc10.so").unlink()
        leftover = torch.with_name("torch-2.11.0.partial.999999999")
        leftover.mkdir()
        result = self.run_setup(PIP_NO_INDEX="1", PIP_FIND_LINKS=self.wheels())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([p.name for p in torch.parent.iterdir()], ["torch-2.11.0"])
        found = self.run_setup("--print-torch")
        self.assertEqual(found.returncode, 0)
        self.assertTrue(pathlib.Path(found.stdout.strip(), "lib/libc10.so").exists())

    def test_leaves_no_half_of_torch_behind_when_it_cannot_be_fetched(self):
        if self.python_brings_torch():
            self.skipTest("this machine's Python brings torch, so none is fetched")
        self.have("g++", "meson")
        shutil.rmtree(self.cache)
        result = self.run_setup(PIP_NO_INDEX="1", PIP_FIND_LINKS="", PIP_CONFIG_FILE=os.devnull)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("could not install torch==2.11.0", result.stderr)
        self.assertEqual(list((self.cache / "stretto").iterdir()), [])


SCRIPTS = (("examples/quickstart.sh", "STRETTO_BUILD"), ("tests/run.sh", "STRETTO_BUILDS"))


class Builds(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def build_at(self, script: str, variable: str, build: object) -> subprocess.CompletedProcess:
        """Runs a script where everything is installed, with a Meson that makes nothing."""
        copy, programs = self.folder / script, self.folder / "programs"
        for folder in (copy.parent, self.folder / "examples", programs):
            folder.mkdir(exist_ok=True)
        shutil.copyfile(SETUP.parent.parent / script, copy)
        (self.folder / "examples/setup.sh").write_text("exit 0")
        (programs / "meson").write_text("#!/bin/sh\necho meson was asked; exit 1\n")
        (programs / "meson").chmod(0o755)
        return subprocess.run(["sh", copy], env={**os.environ, variable: str(build), "PATH": f"{programs}:{os.environ['PATH']}"},
                              capture_output=True, text=True)

    def test_scripts_say_where_to_build_when_they_cannot_here(self):
        """As in a source tree that may only be read, which keeps out everybody but root."""
        for script, variable in SCRIPTS:
            result = self.build_at(script, variable, "/dev/null/build")
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, rf"^[a-z]+(\.sh)?: /dev/null/build cannot be written here; name a folder elsewhere in {variable}\.?\n$")

    def test_scripts_leave_a_folder_alone_that_is_no_build(self):
        for script, variable in SCRIPTS:
            named = self.folder / variable
            build = named / "main" if variable == "STRETTO_BUILDS" else named
            build.mkdir(parents=True)
            (build / "letter").write_text("dear")
            result = self.build_at(script, variable, named)
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"{build} has files that are no build; name another folder in {variable}", result.stderr)
            self.assertEqual((build / "letter").read_text(), "dear")
            # Half of a build goes.
            (build / "meson-private").mkdir()
            result = self.build_at(script, variable, named)
            self.assertIn("meson was asked", result.stdout + result.stderr)
            self.assertFalse((build / "letter").exists())

    def test_meson_refuses_a_torch_root_without_torch(self):
        """It would leave out what was asked for."""
        result = subprocess.run(["meson", "setup", self.folder / "build", SETUP.parent.parent, "-Dtests=disabled", "-Dbench=disabled",
                                 "-Dcuda=disabled", "-Dtorch_root=/no/such/torch"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("-Dtorch_root=/no/such/torch leads to no libtorch that links; give", result.stdout)


if __name__ == "__main__":
    unittest.main()
