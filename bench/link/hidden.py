"""hidden.py TRACE: of the communication ops of the steady state in a trace of `train_moe --trace`, how many run beside compute
of another microbatch. The steady state is everything but the forward of the first microbatch and the backward of the last."""

import json
import re
import sys

NAME = re.compile(r"(?P<letter>[FBIW])\.(?P<phase>\w+) L(?P<layer>\d+) mb(?P<microbatch>\d+)")


def main() -> int:
    trace = json.load(open(sys.argv[1]))
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    ops = [(event["pid"], event["ts"], event["ts"] + event["dur"], match) for event in events
           if event.get("ph") == "X" and (match := NAME.match(event["name"]))]
    last = max(int(match["microbatch"]) for *_, match in ops)
    hidden = exposed = 0
    for rank, start, end, op in ops:
        microbatch = int(op["microbatch"])
        if op["phase"] not in ("dispatch", "combine"):
            continue
        if (op["letter"] == "F" and microbatch == 0) or (op["letter"] != "F" and microbatch == last):
            continue
        beside = any(other == rank and begin < end and stop > start and match["phase"] not in ("dispatch", "combine")
                     and int(match["microbatch"]) != microbatch for other, begin, stop, match in ops)
        hidden += beside
        exposed += not beside
        if not beside:
            print(f"rank {rank}: {op[0]} runs beside no compute of another microbatch")
    print(f"{hidden} of {hidden + exposed} communication ops of the steady state run beside compute of another microbatch")
    return exposed > 0


if __name__ == "__main__":
    sys.exit(main())
