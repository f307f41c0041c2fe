"""launch.py: examples/launch.sh ends with its ranks: the first that fails ends all others, and so do signals; nothing is left."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from launching import LAUNCH, environment

# Writes down its process and one that it starts; then what the rank is for.
RANK = 'sleep 600 & echo $$ $! > "$0/$RANK.new"; mv "$0/$RANK.new" "$0/$RANK"; '


def listen() -> None:
    """A shell cannot trap what was ignored when it began, as SIGINT is in the background of another."""
    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(which, signal.SIG_DFL)


def launch(shell: str, count: int, script: str, folder: pathlib.Path) -> subprocess.Popen:
    return subprocess.Popen([shell, str(LAUNCH), str(count), "--", "sh", "-c", RANK + script, str(folder)], env=environment(),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=listen)


def processes(folder: pathlib.Path, count: int) -> list[int]:
    """Of all ranks, when they have started."""
    end = time.monotonic() + 60
    while len(found := [each for each in folder.iterdir() if each.suffix == ""]) < count:
        assert time.monotonic() < end, "the ranks did not start"
        time.sleep(0.02)
    return [int(word) for each in found for word in each.read_text().split()]


def runs(process: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ends(shell: str, script: str, code: int, says: str, signalled: signal.Signals | None = None, stops: int | None = None) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        running = launch(shell, 3, script, folder)
        try:
            all_of_them = processes(folder, 3)
            if stops is not None:
                os.kill(int((folder / str(stops)).read_text().split()[0]), signal.SIGSTOP)
                (folder / "go.on").touch()
            if signalled is not None:
                # As a terminal does it: everyone in the foreground.
                os.killpg(running.pid, signalled)
            out, err = running.communicate(timeout=60)
            assert running.returncode == code and out == "", (script, running.returncode, out, err)
            assert err == says, (script, err)
            left = [each for each in all_of_them if runs(each)]
            assert not left, f"{script}: of {all_of_them} {left} still run"
        finally:
            for each in folder.iterdir():
                for process in each.read_text().split():
                    if runs(int(process)):
                        os.kill(int(process), signal.SIGKILL)
            running.kill()


def said(rank: int, code: int) -> str:
    return f"launch.sh: rank {rank} ended with exit code {code}; ending the others\n"


def main() -> int:
    wait_for_all = 'while [ ! -e "$0/0" ] || [ ! -e "$0/1" ] || [ ! -e "$0/2" ]; do sleep 0.02; done; '
    for shell in ["sh"] + (["bash"] if pathlib.Path("/bin/bash").exists() else []):
        ends(shell, wait_for_all + "[ $RANK != 1 ] || exit 7; wait", 7, said(1, 7))
        ends(shell, wait_for_all + "[ $RANK != 2 ] || kill -KILL $$; wait", 137, said(2, 137))
        # One that does not listen is ended by force.
        ends(shell, wait_for_all + '[ $RANK != 0 ] || exit 3; trap "" TERM; wait', 3, said(0, 3))
        for which, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            ends(shell, "wait", code, "", which)
        ends(shell, 'while [ ! -e "$0/go.on" ]; do sleep 0.02; done; [ $RANK != 2 ] || exit 5; wait', 5, said(2, 5), stops=1)
        answer = subprocess.run([shell, str(LAUNCH), "2", "--", "sh", "-c", 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $1"',
                                 "x", "a  b"], env=environment(), capture_output=True, text=True, timeout=60)
        assert answer.returncode == 0 and answer.stderr == "", answer
        assert sorted(answer.stdout.splitlines()) == ["0 0 2 127.0.0.1 a  b", "1 1 2 127.0.0.1 a  b"], answer
        answer = subprocess.run([shell, str(LAUNCH), "--share-gpu", "2", "--", "sh", "-c", 'echo "$RANK $NCCL_HOSTID $NCCL_NET"'],
                                env=environment(), capture_output=True, text=True, timeout=60)
        assert sorted(answer.stdout.splitlines()) == ["0 0 Socket", "1 1 Socket"] and answer.returncode == 0, answer
        answer = subprocess.run([shell, str(LAUNCH), "2", "--", "no-such-program"], env=environment(), capture_output=True, text=True,
                                timeout=60)
        assert answer.returncode == 127, answer
        assert answer.stderr == "launch.sh: there is no program 'no-such-program'; check its path\n", answer
        for wrong in (["x", "--", "true"], ["0", "--", "true"], ["1000", "--", "true"], ["2", "true"], ["2", "--"]):
            usage = subprocess.run([shell, str(LAUNCH), *wrong], capture_output=True, text=True)
            assert usage.returncode == 2 and usage.stderr.startswith("usage: "), (wrong, usage)
    print("launches end with their ranks, and leave nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
