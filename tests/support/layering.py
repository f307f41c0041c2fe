"""layering.py INCLUDE_ROOT: which header may include which.

A core header includes the standard library and core headers of its own or a lower layer, never in a circle. An adapter
includes adapter.hpp and what that needs, detail/, its own folder and its one third party. No header is too long.
"""

import pathlib
import re
import sys

LONGEST = 300

# From the bottom up; a new core header gets a place here. NAME also covers NAME_MORE.hpp, NAME/ covers a folder.
LAYERS = [
    ["version", "detail/"],
    ["value", "phase", "rules", "program/limits", "check/sentence"],
    ["error", "program", "program/builder", "block/dataflow", "program/access", "program/link", "adapter", "failure", "message_tensors",
     "executor/backend", "timeline"],
    ["block", "block/", "check", "walk", "layers", "executor/node", "executor/slot"],
    ["pipeline", "pipelines/", "plan", "plan/", "same_sizes", "schedule", "schedules/", "program/", "check/", "executor/"],
    ["executor", "simulate", "simulate/", "inspect"],
    ["stretto"],
]

# What adapters model and what they report to.
ADAPTER_INTERFACE = ["adapter.hpp", "failure.hpp", "message_tensors.hpp", "timeline.hpp"]

# The simulator runs op tables: of the core it knows what a row is and what a block reads and writes, and nothing of how
# programs are linked or proved.
MORE_INTERFACE = {"sim": ["program.hpp", "block/dataflow.hpp"]}

# Adapters without an entry have no third party; the host's is the operating system. The key starts the name of the adapter's file or folder.
THIRD_PARTY = {
    "host": r"sched\.h|unistd\.h|sys/syscall\.h",
    "torch_cuda": r"(torch|ATen|c10)/.*|cuda_runtime(_api)?\.h|cuda\.h",
    "torch": r"(torch|ATen|c10)/(?!.*cuda/|csrc/distributed/).*",
    "c10d": r"torch/csrc/distributed/.*|gloo/.*|(ATen|c10)/(?!cuda/).*|fcntl\.h|unistd\.h",
    # And the operating system, for memory that processes share.
    "cuda": r"cuda_runtime(_api)?\.h|cuda\.h|nvtx3/nvToolsExt\.h|fcntl\.h|unistd\.h|sys/mman\.h",
    "nccl": r"nccl\.h|cuda_runtime(_api)?\.h|cuda\.h",
    "cublas": r"cublas(_v2|Lt)?\.h|cuda_runtime(_api)?\.h",
}

STANDARD = set("""
algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits
clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint
cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception execution filesystem forward_list fstream functional
future initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory
memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator semaphore
set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string string_view syncstream
system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector
version
""".split())

# Included where the compiler shall end, so it must not exist.
NOWHERE = "stretto/needs/-std=c++20"

INCLUDE = re.compile(r"^\s*#\s*include\s*([<\"])([^>\"]+)[>\"]", re.MULTILINE)


def layer_of(header: str) -> int | None:
    """The layer of the longest name that fits."""
    fitting = [(len(name), level) for level, names in enumerate(LAYERS) for name in names
               if (header.startswith(name) if name.endswith("/") else re.fullmatch(rf"{name}(_\w+)?\.hpp", header))]
    return max(fitting)[1] if fitting else None


def adapter_name(header: str) -> str:
    return header.removeprefix("adapters/").removesuffix(".hpp").split("/")[0]


def third_party_of(adapter: str) -> str | None:
    return next((pattern for name, pattern in THIRD_PARTY.items() if adapter == name or adapter.startswith(name + "_")), None)


def reach(start: str, graph: dict[str, set[str]]) -> set[str]:
    seen, todo = set(), [start]
    while todo:
        header = todo.pop()
        if header not in seen:
            seen.add(header)
            todo += graph.get(header, ())
    return seen


def main() -> int:
    root = pathlib.Path(sys.argv[1]) / "stretto"
    texts = {str(p.relative_to(root)): p.read_text() for p in sorted(root.rglob("*.hpp"))}
    faults = []
    graph: dict[str, set[str]] = {}
    foreign: dict[str, set[str]] = {}
    for header, text in texts.items():
        graph[header], foreign[header] = set(), set()
        for quote, name in INCLUDE.findall(text.replace(f"#include <{NOWHERE}>", "")):
            if name.startswith("stretto/"):
                name = name.removeprefix("stretto/")
            elif quote == '"':
                name = str(((root / header).parent / name).resolve().relative_to(root.resolve()))
            else:
                foreign[header].add(name)
                continue
            if name not in texts:
                faults.append(f"{header} includes {name}, which does not exist")
            graph[header].add(name)
        if (lines := text.count("\n")) > LONGEST:
            faults.append(f"{header} has {lines} lines; split it, the most is {LONGEST}")

    def interface_of(adapter: str) -> set[str]:
        return set().union(*(reach(h, graph) for h in ADAPTER_INTERFACE + MORE_INTERFACE.get(adapter, []) if h in texts))

    for header in texts:
        if any(header in reach(included, graph) for included in graph[header]):
            faults.append(f"{header} includes itself in a circle")
        if header.startswith("adapters/"):
            adapter, pattern = adapter_name(header), third_party_of(adapter_name(header))
            for name in sorted(graph[header]):
                own = name.startswith("adapters/") and adapter_name(name) == adapter
                if not own and name not in interface_of(adapter) and not name.startswith("detail/"):
                    faults.append(f"{header} includes {name}; an adapter includes adapter.hpp, detail/ and its own folder")
            for name in sorted(foreign[header] - STANDARD):
                if not (pattern and re.fullmatch(pattern, name)):
                    faults.append(f"{header} includes <{name}>, which is not its third party's")
            continue
        level = layer_of(header)
        if level is None:
            faults.append(f"{header} has no layer; give it one in tests/support/layering.py")
            continue
        for name in sorted(graph[header]):
            if name.startswith("adapters/"):
                faults.append(f"{header} includes the adapter {name}")
            elif (other := layer_of(name)) is not None and other > level:
                faults.append(f"{header} includes {name}, which is a layer above it")
        for name in sorted(foreign[header] - STANDARD):
            faults.append(f"{header} includes <{name}>, which is not of the standard library")

    if "stretto.hpp" not in texts:
        faults.append("the umbrella stretto.hpp does not exist")
    else:
        for header in sorted(texts.keys() - reach("stretto.hpp", graph)):
            if not header.startswith("adapters/"):
                faults.append(f"stretto.hpp does not include {header}")

    for fault in faults:
        print(fault)
    print(f"{len(texts)} headers, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
