"""Several processes of train_moe, with the environment that torchrun gives them."""

import os
import pathlib
import re
import socket
import subprocess

LAUNCH = pathlib.Path(__file__).resolve().parents[2] / "examples" / "launch.sh"
TINY = ["--layers", "5", "--dense", "1", "--hidden", "16", "--heads", "2", "--ffn", "8", "--experts", "4", "--seq", "12",
        "--batch", "2"]
VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
             "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT")

GPUS = len([name for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)])


def share(ranks: int) -> list[str]:
    """Of launch.sh, where ranks with GPUs do not have one each."""
    return ["--share-gpu"] if GPUS < ranks else []


def sharing(ranks: int, rank: int) -> dict[str, object]:
    """What `share` sets, for a rank that a test starts by itself."""
    return {"NCCL_HOSTID": rank, "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo"} if GPUS < ranks else {}


def memory_of_gpus() -> list[int]:
    """What is taken of each, in MiB."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return [int(line) for line in subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(**given: object) -> dict[str, str]:
    found = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    return found | {key: str(value) for key, value in given.items()}


def start(program: str, arguments: list[str], output: pathlib.Path | None = None, **given: object) -> subprocess.Popen:
    """One process; its stdout goes to a file if there is one to read while it runs."""
    out = open(output, "w") if output else subprocess.PIPE
    return subprocess.Popen([program, *arguments], env=environment(**given), stdout=out, stderr=subprocess.PIPE, text=True)


def write_text(folder: pathlib.Path) -> str:
    file = folder / "text.txt"
    file.write_text(" ".join(f"{n} times {n % 7} is {n * (n % 7)}," for n in range(1500)))
    return str(file)
