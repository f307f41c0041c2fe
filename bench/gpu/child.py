"""Programs that a driver starts: none outlives it, and what went wrong is one sentence."""

import os
import signal
import subprocess
import sys

# examples/launch.sh ends its ranks within 5 s when it is told to end, and cannot when it is killed.
PATIENCE = 8

# Else a driver that is told to end, by `timeout` perhaps, leaves what it has started behind.
signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def start(command: list[str], **how: object) -> subprocess.Popen:
    """In a session of its own, so that `end` reaches what it has started in turn."""
    try:
        return subprocess.Popen(command, text=True, start_new_session=True, **how)
    except OSError as problem:
        sys.exit(f"{command[0]} cannot be started: {problem.strerror}; check its path")


def end(child: subprocess.Popen) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, how)
        except ProcessLookupError:
            return
        try:
            child.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            pass


def run(command: list[str], limit: float, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    """Its output and exit code. Ends this program when it cannot be started or takes longer than `limit` seconds."""
    child = start(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        sys.exit(f"{command[0]} did not end within --limit {limit:g} s")
    finally:
        end(child)
    return subprocess.CompletedProcess(command, child.returncode, out, err)
