"""consumer.py SOURCE_ROOT COMPILER...: installs stretto to a scratch prefix and uses it as other projects do:
through pkg-config, CMake and as a Meson subproject."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

MAIN = """
#include <stretto/stretto.hpp>
#include <stretto/version.hpp>
#include <cstring>
int main() { return std::strcmp(STRETTO_VERSION, EXPECTED_VERSION) == 0 ? 0 : 1; }
"""

CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(consumer CXX)
find_package(stretto {version} REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE stretto::stretto)
target_compile_definitions(consumer PRIVATE EXPECTED_VERSION="{version}")
"""

MESON = """
project('consumer', 'cpp', default_options: ['cpp_std=c++20'])
stretto = dependency('stretto', version: '{version}', fallback: ['stretto', 'stretto'])
executable('consumer', 'main.cpp', dependencies: stretto, cpp_args: '-DEXPECTED_VERSION="{version}"')
"""


def run(*command: str, cwd: pathlib.Path, **environment: str) -> str:
    result = subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env=os.environ | environment)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{result.stdout}")
    return result.stdout.strip()


def main() -> None:
    source, compiler = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        prefix = scratch / "prefix"
        (scratch / "main.cpp").write_text(MAIN)

        run("meson", "setup", f"--prefix={prefix}", "-Dtests=disabled", "-Dexamples=disabled", "-Dbench=disabled",
            "-Dcuda=disabled", "-Dtorch=disabled", str(scratch / "build"), str(source), cwd=scratch)
        run("meson", "install", "-C", str(scratch / "build"), cwd=scratch)

        found = {"PKG_CONFIG_PATH": str(prefix / "share/pkgconfig")}
        version = run("pkg-config", "--modversion", "stretto", cwd=scratch, **found)
        flags = run("pkg-config", "--cflags", "stretto", cwd=scratch, **found).split()
        run(*compiler, "-std=c++20", *flags, f'-DEXPECTED_VERSION="{version}"', "main.cpp", "-o", "consumer", cwd=scratch)
        run("./consumer", cwd=scratch)
        print("pkg-config: fine")

        if shutil.which("cmake"):
            (scratch / "CMakeLists.txt").write_text(CMAKE.format(version=version))
            run("cmake", "-S", ".", "-B", "with_cmake", f"-DCMAKE_PREFIX_PATH={prefix}", cwd=scratch)
            run("cmake", "--build", "with_cmake", cwd=scratch)
            run("with_cmake/consumer", cwd=scratch)
            print("CMake: fine")
        else:
            print("CMake: not here, not tried")

        project = scratch / "project"
        (project / "subprojects").mkdir(parents=True)
        (project / "subprojects/stretto").symlink_to(source)
        shutil.copy(scratch / "main.cpp", project)
        (project / "meson.build").write_text(MESON.format(version=version))
        run("meson", "setup", "build", cwd=project)
        run("meson", "compile", "-C", "build", cwd=project)
        run("build/consumer", cwd=project)
        if run("meson", "introspect", "--tests", "build", cwd=project) != "[]":
            sys.exit("as a subproject stretto brings tests of its own")
        print("Meson subproject: fine")


if __name__ == "__main__":
    main()
