"""pairs_table.py FILE...: what `bench_gpu_pairs --json FILE` wrote, as tables for a page."""

import json
import sys


def middle(of: dict) -> str:
    return f"{of['median']:.0f}"


def main() -> None:
    for name in sys.argv[1:]:
        with open(name) as file:
            told = json.load(file)
        print(f"`{name.rsplit('/', 1)[-1]}`: {told['gpu']}, {told['ranks']} ranks on {told['gpus']} GPU(s), `{told['transport']}`, CUDA {told['cuda_runtime']}, "
              f"cuBLAS {told['cublas']}, {told['repeats']} repeats\n")
        print("| M x N = K, MiB to the peer | comm : compute | compute only | comm only | serial | two_stream | split_dw | split_dw / bound | / cold bound "
              "| beyond the bound | exposed | serial / split_dw | executor / by hand: serial, two_stream, split_dw |")
        print("| --- " * 13 + "|")
        for row in told["rows"]:
            ways, split = row["ways"], row["split"]
            pair = {way: middle(of["pair_us"]) for way, of in ways.items()}
            print(f"| {row['tokens']} x {row['width']}, {row['mib_to_each_peer']:.3g} | {row['comm_of_compute']:.2f} | {pair['compute_only']} | {pair['comm_only']} "
                  f"| {pair['serial_executor']} | {pair['two_stream_executor']} | {pair['split_executor']} | **{split['over_bound']:.3f}** "
                  f"| {split['over_cold_bound']:.3f} | {100 * split['beyond_bound_of_step']:.1f} % | {100 * split['exposed_of_step']:.1f} % "
                  f"| {split['speed_up_over_serial']:.3f} | "
                  + ", ".join(f"{row[policy]['executor_over_hand']:.3f}" for policy in ("serial", "two_stream", "split")) + " |")
        print("\n| M x N = K, MiB | split_dw p10 .. p90 | compute only p10 .. p90 | comm only p10 .. p90 | host us a pair: by hand, executor | wall / pair, us: by hand, executor "
              "| dilation | SM MHz median (least .. most) | W median (most) | power-capped |")
        print("| --- " * 10 + "|")
        for row in told["rows"]:
            ways, power = row["ways"], row["power"]
            spread = [f"{ways[way]['pair_us']['p10']:.0f} .. {ways[way]['pair_us']['p90']:.0f}" for way in ("split_executor", "compute_only", "comm_only")]
            pairs = row["layers"] * row["microbatches"]
            host = [middle(ways[way]["host_us_a_pair"]) for way in ("split_by_hand", "split_executor")]
            # Wall times of gated runs have the wait in them.
            is_wall = told.get("wall", True) or row["tokens"] * row["width"] >= 1e7
            wall = [f"{ways[way]['wall_us']['median'] / pairs:.0f}" if is_wall else "-" for way in ("split_by_hand", "split_executor")]
            dilation = f"{row['compute_dilation']:.3f}" if row["compute_dilation"] else "-"
            print(f"| {row['tokens']} x {row['width']}, {row['mib_to_each_peer']:.3g} | " + " | ".join(spread) + f" | {', '.join(host)} | {', '.join(wall)} "
                  f"| {dilation} | {power['median_mhz']:.0f} ({power['least_mhz']:.0f} .. {power['most_mhz']:.0f}) "
                  f"| {power['median_watts']:.0f} ({power['most_watts']:.0f}) | {100 * power['capped_part']:.0f} % |")
        print_captured([row for row in told["rows"] if row.get("captured")])
        print()


def print_captured(rows: list[dict]) -> None:
    """Whole steps with their ramps; in wall time the host launches what it would have issued."""
    if not rows:
        return
    print("\n| M x N = K, MiB | step on the GPU, us: issued, captured: by hand | executor | captured / issued: by hand, executor | host us a pair: issued, captured "
          "| wall us: issued, captured |")
    print("| --- " * 6 + "|")
    for row in rows:
        both = [(row["ways"][way], row["captured"][way]) for way in ("split_by_hand", "split_executor")]
        steps = [f"{middle(issued['step_us'])}, {middle(captured['step_us'])}" for issued, captured in both]
        ratios = ", ".join(f"{captured['step_us']['median'] / issued['step_us']['median']:.3f}" for issued, captured in both)
        issued, captured = both[1]
        print(f"| {row['tokens']} x {row['width']}, {row['mib_to_each_peer']:.3g} | {' | '.join(steps)} | {ratios} "
              f"| {middle(issued['host_us_a_pair'])}, {captured['launch_us_a_pair']['median']:.1f} | {middle(issued['wall_us'])}, {middle(captured['wall_us'])} |")


if __name__ == "__main__":
    main()
