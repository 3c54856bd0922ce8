#!/usr/bin/env python3
"""Convoy against any of its peers on one CPU, alternating in one run.

Every case (mode, network, batch, precision) is measured in rounds; in each round every side has its turn, in an order
drawn anew, as a process of its own. All run the same network: the peers load random weights that `convoy convert`
writes as .pth and .onnx, `convoy bench` draws its own. Before a case is measured with fp32 inference, the sides' logits are
compared. Reported for each side: the median speed, Convoy's ratio to it, the median over the rounds of the latency, and the
peak resident memory as the kernel counts it. A Markdown table goes to stdout, everything to --json.

    bench/peers-setup.sh                               # once: an environment with the newest packages
    bench/peers.py --rounds 3 --json peers.json        # everything: hours
    bench/peers.py --peers torch,openvino --modes infer --archs resnet50 --batch-sizes 1 --precisions fp32

Sides besides convoy: torch and torch-compile (the environment's), debian (the system's PyTorch, eager, through
--system-python), onnxruntime (inference, fp32), openvino (inference, fp32 and bf16). A side that cannot do a case is left
out of it; one that is not installed is an error.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

from speed import measure

FOLDER = os.path.dirname(os.path.abspath(__file__))
PEERS = ("torch", "torch-compile", "debian", "onnxruntime", "openvino")
# fp32 by other orders of summing, through up to 101 layers, relative to the largest logit.
LOGITS_LIMIT = 1e-3


def does(peer, mode, precision):
    if peer == "onnxruntime":
        return mode == "infer" and precision == "fp32"
    return peer != "openvino" or mode == "infer"


def listed(text, allowed, what):
    values = text.split(",")
    for value in values:
        if value not in allowed:
            sys.exit(f"{what}: {value} is none of {', '.join(allowed)}")
    return values


def write_weights(settings, arch, folder):
    """The same weights for everybody: {suffix: file}."""
    start = os.path.join(folder, arch + ".safetensors")
    subprocess.run([settings.random_weights, arch, "1000", str(settings.image_size), "1", start], check=True)
    files = {}
    for suffix in ("pth", "onnx"):
        files[suffix] = os.path.join(folder, f"{arch}.{suffix}")
        subprocess.run([settings.convoy, "-q", "convert", start, files[suffix]], check=True, stdout=subprocess.DEVNULL)
    return files


def command_of(settings, case, side, files, extra=()):
    common = ["--arch", case["arch"], "--batch-size", str(case["batch_size"]), "--image-size",
              str(settings.image_size), "--threads", str(settings.threads), "--precision", case["precision"]]
    if side == "convoy":
        longer = ["--iterations", str(settings.iterations)] if settings.iterations else []
        return [settings.convoy, "bench", case["mode"], *common, *longer, "--format", "json"]
    python = settings.system_python if side == "debian" else settings.python
    peer = "torch" if side == "debian" else side
    weights = files["onnx" if peer in ("onnxruntime", "openvino") else "pth"]
    return [python, os.path.join(FOLDER, "peer.py"), peer, "--mode", case["mode"], *common, "--seconds",
            str(settings.seconds), "--weights", weights, *extra]


def environment_of(settings, side):
    environment = dict(os.environ, OMP_NUM_THREADS=str(settings.threads))
    if side not in ("onnxruntime", "openvino"):  # these have threads of their own, which bound ones would confine
        environment["OMP_PROC_BIND"] = "close"
    return environment


COMPARE = """
import sys, numpy
first, *others = [numpy.load(path) for path in sys.argv[2:]]
for path, other in zip(sys.argv[3:], others):
    error = numpy.abs(first - other).max() / max(1, numpy.abs(first).max())
    if not error <= float(sys.argv[1]):
        sys.exit(f"the logits of {sys.argv[2]} and {path} differ by {error:.2g} of the largest one")
"""


def compare_logits(settings, case, sides, files, folder):
    """All peers compute the same function, or the run ends."""
    paths = []
    for side in sides:
        if side == "convoy":  # `bench` draws its own weights; convoy's files are compared in tests/parity/long_onnx.sh
            continue
        paths.append(os.path.join(folder, side + ".npy"))
        quick = argparse.Namespace(**{**vars(settings), "seconds": 0})
        measure(command_of(quick, {**case, "batch_size": 2}, side, files, ("--check", paths[-1])),
                environment_of(settings, side))
    if len(paths) > 1:
        done = subprocess.run([settings.python, "-c", COMPARE, str(LOGITS_LIMIT), *paths])
        if done.returncode != 0:
            sys.exit(done.returncode)


def run_case(settings, case, sides, files):
    rounds, order = [], random.Random(0)
    for i in range(settings.rounds):
        turn, row = list(sides), {}
        order.shuffle(turn)
        for side in turn:
            result, memory = measure(command_of(settings, case, side, files), environment_of(settings, side))
            result = result[0] if isinstance(result, list) else result
            latency = result.get("latency_ms")
            row[side] = {
                "images_per_second": result["images_per_second"],
                "latency_ms": latency["p50"] if isinstance(latency, dict) else latency,
                "peak_memory_mib": memory, "version": result.get("version")}
        rounds.append(row)
        print(f"{case} round {i + 1}: " + ", ".join(f"{s} {row[s]['images_per_second']:.2f}" for s in sides),
              file=sys.stderr, flush=True)
    result = {**case, "rounds": rounds, "sides": {}}
    for side in sides:
        speeds = statistics.median(row[side]["images_per_second"] for row in rounds)
        result["sides"][side] = {
            "images_per_second": speeds,
            "peak_memory_mib": statistics.median(row[side]["peak_memory_mib"] for row in rounds),
            "version": rounds[0][side]["version"]}
        latencies = [row[side]["latency_ms"] for row in rounds]
        result["sides"][side]["latency_ms"] = None if None in latencies else statistics.median(latencies)
    ours = result["sides"]["convoy"]
    for side in sides:
        other = result["sides"][side]
        other["speed_ratio"] = ours["images_per_second"] / other["images_per_second"]
        other["memory_ratio"] = ours["peak_memory_mib"] / other["peak_memory_mib"]
    return result


def table(results):
    lines = ["| case | side | images/s | ms a batch | Convoy / side | peak MiB | Convoy / side |",
             "|---|---|---|---|---|---|---|"]
    for result in results:
        name = f"{result['arch']} {result['mode']} {result['precision']}, batch {result['batch_size']}"
        for side, r in result["sides"].items():
            version = f" {r['version']}" if r["version"] else ""
            latency = f"{r['latency_ms']:.1f}" if r["latency_ms"] else ""
            lines.append(f"| {name} | {side}{version} | {r['images_per_second']:.2f} | {latency} | {r['speed_ratio']:.2f} | "
                         f"{r['peak_memory_mib']:.0f} | {r['memory_ratio']:.2f} |")
            name = ""
    return "\n".join(lines)


def parse():
    default_peers = os.environ.get("CONVOY_PEERS") or os.path.expanduser("~/.cache/convoy-peers")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="torch,torch-compile,onnxruntime,openvino", help=",".join(PEERS))
    parser.add_argument("--modes", default="train,infer")
    parser.add_argument("--archs", default="resnet50,resnext101-32x4d")
    parser.add_argument("--batch-sizes", default="1,32", help="training skips 1")
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="of a peer's measuring in each round")
    parser.add_argument("--iterations", type=int, default=0, help="of Convoy's measuring; 0: it chooses")
    parser.add_argument("--convoy", default=os.path.join(FOLDER, "../build/convoy"))
    parser.add_argument("--random-weights", default=os.path.join(FOLDER, "../build/tests/random_weights"),
                        help="the test tool that writes the weights")
    parser.add_argument("--python", default=os.path.join(default_peers, "bin/python"), help="of the environment")
    parser.add_argument("--system-python", default="/usr/bin/python3", help="of the side debian")
    parser.add_argument("--json", help="write the result here as well")
    return parser.parse_args()


def main():
    settings = parse()
    sides = ["convoy"] + listed(settings.peers, PEERS, "--peers")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for arch in settings.archs.split(","):
            files = write_weights(settings, arch, folder)
            compared = False
            for mode in listed(settings.modes, ("train", "infer"), "--modes"):
                for precision in listed(settings.precisions, ("fp32", "bf16"), "--precisions"):
                    for batch in (int(size) for size in settings.batch_sizes.split(",")):
                        if mode == "train" and batch == 1:  # nobody trains so
                            continue
                        case = {"mode": mode, "arch": arch, "batch_size": batch, "precision": precision}
                        able = [side for side in sides if does(side, mode, precision)]
                        if mode == "infer" and precision == "fp32" and not compared:
                            compare_logits(settings, case, able, files, folder)
                            compared = True
                        results.append(run_case(settings, case, able, files))
                        if settings.json:  # after every case: the whole takes hours
                            with open(settings.json, "w") as file:
                                json.dump({"image_size": settings.image_size, "threads": settings.threads,
                                           "rounds": settings.rounds, "results": results}, file, indent=1)
    print(f"{settings.image_size} px, {settings.threads} threads, medians of {settings.rounds} rounds\n")
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
