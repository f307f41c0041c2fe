"""phase_replay.py PLAN: steps replayed op by op take the published time, and their pictures, traces and reports agree."""

import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

SVG = "{http://www.w3.org/2000/svg}"

# Makespan over ideal of the same orders, from an independent replay that keeps each lane as one in-order list of phases: 64
# layers, H800 costs per layer, messages free. Behind the colon, peak live activations in units of a rank's layers.
SIZES = [(4, 8), (4, 16), (4, 32), (8, 16), (8, 32), (8, 64), (16, 32), (16, 64)]
PUBLISHED = {
    ("zero_bubble_v", 2): ([2.166, 2.044, 1.984, 2.207, 2.065, 1.994, 2.227, 2.075], {4: 4.00, 8: 8.00, 16: 16.00}),
    ("dual_pipe_v", 2): ([1.728, 1.364, 1.182, 1.765, 1.383, 1.191, 1.787, 1.394], {4: 4.50, 8: 8.50, 16: 16.50}),
    ("interleaved_ep", 2): ([1.529, 1.264, 1.132, 1.560, 1.280, 1.140, 1.575, 1.288], {4: 5.56, 8: 11.62, 16: 23.75}),
    ("interleaved_ep", 4): ([1.435, 1.217, 1.109, 1.450, 1.225, 1.113, 1.458, 1.229], {4: 4.81, 8: 9.88, 16: 20.00}),
}


def plan(program: str, *arguments: str) -> str:
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def sizes_of(pipeline: str, ranks: int, microbatches: int, chunks: int | None = None) -> list[str]:
    named = ["--pipeline", pipeline, "--ranks", str(ranks), "--microbatches", str(microbatches), "--replay", "phases"]
    return named + (["--chunks", str(chunks)] if chunks else [])


def check_published(program: str) -> int:
    """Within one percent."""
    cells = 0
    for (pipeline, chunks), (ratios, live) in PUBLISHED.items():
        for (ranks, microbatches), wanted in zip(SIZES, ratios):
            report = json.loads(plan(program, *sizes_of(pipeline, ranks, microbatches, chunks), "--json"))
            shown = f"{pipeline} with {chunks} chunks, {ranks} ranks, {microbatches} microbatches"
            got = report["ratio_to_ideal"]
            assert abs(got - wanted) <= 0.01 * wanted, f"{shown}: {got:.3f} of ideal, not {wanted}"
            peak = max(rank["peak_live"] for rank in report["per_rank"])
            assert abs(peak - live[ranks]) <= 0.006, f"{shown}: {peak} live, not {live[ranks]}"
            cells += 1
    return cells


def check_sums(program: str) -> None:
    """Compute, exposed communication and bubble fill the step of every rank; all work is there; pictures show it."""
    costs = json.loads(plan(program, "--replay", "phases", "--json"))["costs"]
    assert costs["name"] == "deepseek_h800"
    for pipeline in ("serial", "gpipe", "one_f_one_b", "one_f_one_b_ep", "interleaved", "interleaved_ep", "zero_bubble_h1",
                     "zero_bubble_v", "dual_pipe_v"):
        for ranks, microbatches, layers in ((1, 1, 2), (2, 4, 9), (3, 7, 13)):
            sizes = sizes_of(pipeline, ranks, microbatches) + ["--layers", str(layers)]
            report = json.loads(plan(program, *sizes, "--json"))
            for rank in report["per_rank"]:
                whole = rank["compute"] + rank["exposed_communication"] + rank["bubble"]
                assert abs(whole - report["makespan"]) < 1e-6 * whole, f"{sizes}: a rank's times do not fill its step"
                assert rank["exposed_communication"] <= rank["communication"] + 1e-6
            for kind, each in (("compute", 31.1), ("communication", 28.7)):
                done, wanted = sum(rank[kind] for rank in report["per_rank"]), each * layers * microbatches
                assert abs(done - wanted) < 1e-6 * wanted, f"{sizes}: {done} of {kind}, not {wanted}"
            longest = max(max(rank["compute"], rank["communication"]) for rank in report["per_rank"])
            assert abs(report["ideal"] - longest) < 1e-6 and report["makespan"] >= longest - 1e-6
            assert f"ratio to ideal {report['ratio_to_ideal']:.3f}" in plan(program, *sizes)

            bars = [bar for bar in json.loads(plan(program, *sizes, "--format", "trace"))["traceEvents"] if bar["ph"] == "X"]
            work = [bar for bar in bars if bar["cat"] != "messages"]
            assert abs(max(bar["ts"] + bar["dur"] for bar in bars) / 1000 - report["makespan"]) < 1e-3
            lanes = {}
            for bar in sorted(bars, key=lambda bar: bar["ts"]):
                end = lanes.get((bar["pid"], bar["tid"]), 0)
                assert bar["ts"] >= end - 0.01, f"{sizes}: {bar['name']} begins before its lane is free"
                lanes[bar["pid"], bar["tid"]] = bar["ts"] + bar["dur"]
            # A layer of a microbatch: F of four phases, I or B of four, and W apart for two of them.
            assert len(work) == 10 * layers * microbatches
            picture = xml.fromstring(plan(program, *sizes, "--format", "svg"))
            assert len(list(picture.iter(f"{SVG}title"))) == len(work)


def check_messages(program: str) -> None:
    """Every hop of a lone microbatch costs one message there and one back."""
    good = {"forward": {"attn": 1, "dispatch": 2, "mlp": 3, "combine": 4},
            "backward_input": {"attn": 5, "dispatch": 6, "mlp": 7, "combine": 8},
            "backward_weight": {"attn": 9, "mlp": 10}}
    for message in (0, 100):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(json.dumps({**good, "message": message}))
            file.flush()
            sizes = sizes_of("gpipe", 3, 1) + ["--layers", "3", "--costs", file.name]
            report = json.loads(plan(program, *sizes, "--json"))
        # Backwards the experts' W runs beside the dispatch, and attention's W behind the message: only the last one counts.
        wanted = 3 * (1 + 2 + 3 + 4) + 3 * (8 + 7 + max(10, 6) + 5) + 9 + 4 * message
        assert report["makespan"] == wanted, f"{report['makespan']} with messages of {message}, not {wanted}"


def check_bytes(program: str) -> None:
    """Where a layer's bytes are given, live activations are told in bytes too: of all layers that a rank has at its peak."""
    three = ["--ranks", "3", "--microbatches", "7", "--layer-bytes", "1000003"]
    for pipeline in ("gpipe", "one_f_one_b", "zero_bubble_v", "dual_pipe_v"):
        replayed = ["--pipeline", pipeline, *three, "--replay", "phases", "--layers", "13"]
        for rank in json.loads(plan(program, *replayed, "--json"))["per_rank"]:
            assert rank["peak_live_bytes"] == round(rank["peak_live"] * 13 / 3) * 1000003, rank
        # The published costs have eight layers on a rank.
        report = json.loads(plan(program, "--pipeline", pipeline, *three, "--costs", "deepseek_h800", "--json"))
        for rank in report["per_rank"]:
            assert rank["peak_live_bytes"] == rank["peak_live_chunks"] * 8 // report["chunks"] * 1000003, rank
    assert rank["peak_live_bytes"] == 7 * 8 // 2 * 1000003, "2P+1 halves of a rank's layers"
    table = plan(program, "--pipeline", "1f1b", "--ranks", "2", "--microbatches", "4", "--layer-bytes", str(3 << 29))
    assert "a rank has 2 layers, and each keeps 1.50 GiB of a microbatch" in table
    assert [row.split()[-2:] for row in table.splitlines()[-2:]] == [["6.00", "GiB"], ["3.00", "GiB"]], table
    table = plan(program, "--compare", "--replay", "phases", "--layers", "8", *three)
    assert "a rank has 2.667 layers, and each keeps 976.57 KiB of a microbatch" in table and " peak live bytes" in table, table
    compared = json.loads(plan(program, "--compare", "--json", *three))["pipelines"]
    assert {one["pipeline"]: one.get("peak_live_bytes") for one in compared}["gpipe"] == 7 * 2 * 1000003
    assert "bytes" not in plan(program, "--compare", "--json") + plan(program, "--compare") + plan(program, "--json")


def main() -> int:
    program = sys.argv[1]
    cells = check_published(program)
    check_sums(program)
    check_messages(program)
    check_bytes(program)
    compared = json.loads(plan(program, "--compare", "--json", "--replay", "phases", "--ranks", "4", "--microbatches", "5"))
    alone = json.loads(plan(program, *sizes_of("gpipe", 4, 5), "--json"))
    gpipe = next(one for one in compared["pipelines"] if one["pipeline"] == "gpipe")
    assert compared["layers"] == 64 and gpipe["makespan"] == alone["makespan"]
    assert [one["pipeline"] for one in compared["pipelines"] if "refused" in one] == ["dual_pipe_v"]
    print(f"{cells} published times within a percent, pictures and reports agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
