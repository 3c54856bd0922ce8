#!/usr/bin/env python3
"""Convoy against PyTorch on one CPU: ResNet-50 training and inference, alternating in one run.

Each round starts one process of each side, so that both see the same state of the machine and each has a peak memory
of its own. Both convert uint8 images on the way in, change the batch every step and read the loss of every step;
PyTorch runs channels-last, its fastest layout on CPUs. Reported: medians over the rounds, their ratio, and the peak
resident memory (VmHWM as the kernel hands it over when the process ends). A round's own figures are printed too: on a
machine that does other work at the same time the ratio of the medians means little.

    bench/speed.py --rounds 3            # the table, then one line of JSON
    bench/speed.py --mode train --json speed.json
    bench/speed.py --precision bf16      # PyTorch's side under autocast

Newer and other peers: bench/peers.py.

With the default network, size, batch and threads the exit code is 1 when a ratio misses what doc/benchmarks.md allows:
training 1.3 times and inference 1.5 times as fast as PyTorch, in at most 0.8 times its memory.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
LEAST_SPEED = {"train": 1.3, "infer": 1.5}  # ratios, for the default case
MOST_MEMORY = 0.8
DEFAULT_CASE = {"arch": "resnet50", "batch_size": 32, "image_size": 224, "threads": 2, "precision": "fp32"}


# ---- the rounds ----

def measure(command, environment):
    """(what the process printed as JSON, its peak memory in MiB)"""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"failed with exit code {process.returncode}: {' '.join(command)}")
    return json.loads(text), usage.ru_maxrss / 1024


def run_mode(settings, mode):
    environment = dict(os.environ, OMP_NUM_THREADS=str(settings.threads), OMP_PROC_BIND="close")
    common = ["--arch", settings.arch, "--batch-size", str(settings.batch_size), "--image-size",
              str(settings.image_size), "--threads", str(settings.threads),
              "--precision", settings.precision]
    ours = [settings.convoy, "bench", mode, *common, "--format", "json"]
    theirs = [settings.python, os.path.join(FOLDER, "peer.py"), "torch", "--mode", mode, "--seconds",
              str(settings.seconds), *common]
    if settings.iterations:
        ours += ["--iterations", str(settings.iterations)]
    rounds = []
    for i in range(settings.rounds):
        row = {}
        # The order changes from round to round: neither side always meets a machine warmed up by the other.
        sides = [("convoy", ours), ("pytorch", theirs)]
        for name, command in sides if i % 2 == 0 else reversed(sides):
            result, memory = measure(command, environment)
            result = result[0] if isinstance(result, list) else result
            row[name] = {"images_per_second": result["images_per_second"], "peak_memory_mib": memory}
        rounds.append(row)
        print(f"{mode} round {i + 1}: convoy {row['convoy']['images_per_second']:.2f} img/s, "
              f"pytorch {row['pytorch']['images_per_second']:.2f} img/s", file=sys.stderr, flush=True)

    def median(name, field):
        return statistics.median(row[name][field] for row in rounds)

    result = {"mode": mode, "rounds": rounds}
    for name in ("convoy", "pytorch"):
        result[name] = {field: median(name, field) for field in ("images_per_second", "peak_memory_mib")}
    result["speed_ratio"] = result["convoy"]["images_per_second"] / result["pytorch"]["images_per_second"]
    result["memory_ratio"] = result["convoy"]["peak_memory_mib"] / result["pytorch"]["peak_memory_mib"]
    return result


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=("both", "train", "infer"), default="both")
    parser.add_argument("--arch")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--precision", choices=("fp32", "bf16"))
    parser.set_defaults(**DEFAULT_CASE)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="of PyTorch's measuring in each round")
    parser.add_argument("--iterations", type=int, default=0, help="of Convoy's measuring; 0: it chooses")
    parser.add_argument("--convoy", default=os.path.join(FOLDER, "../build/convoy"))
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has torch and torchvision")
    parser.add_argument("--json", help="write the result here as well")
    return parser.parse_args()


def misses(settings, results):
    """What the default case misses, one text each; other cases have no limits."""
    if any(getattr(settings, name) != value for name, value in DEFAULT_CASE.items()):
        return []
    found = []
    for r in results:
        if not r["speed_ratio"] >= LEAST_SPEED[r["mode"]]:
            found.append(f"{r['mode']}: {r['speed_ratio']:.2f} times as fast, not {LEAST_SPEED[r['mode']]}")
        if not r["memory_ratio"] <= MOST_MEMORY:
            found.append(f"{r['mode']}: {r['memory_ratio']:.2f} times the memory, not at most {MOST_MEMORY}")
    return found


def main():
    settings = parse()
    modes = ("train", "infer") if settings.mode == "both" else (settings.mode,)
    results = [run_mode(settings, mode) for mode in modes]
    print(f"{settings.arch}, {settings.image_size} px, batch {settings.batch_size}, {settings.precision}, "
          f"{settings.threads} threads, "
          f"medians of {settings.rounds} rounds")
    print(f"{'':6} {'convoy img/s':>13} {'pytorch img/s':>14} {'ratio':>6} {'convoy MiB':>11} {'pytorch MiB':>12} {'ratio':>6}")
    for r in results:
        print(f"{r['mode']:6} {r['convoy']['images_per_second']:13.2f} {r['pytorch']['images_per_second']:14.2f} "
              f"{r['speed_ratio']:6.2f} {r['convoy']['peak_memory_mib']:11.0f} "
              f"{r['pytorch']['peak_memory_mib']:12.0f} {r['memory_ratio']:6.2f}")
    record = {"arch": settings.arch, "image_size": settings.image_size, "batch_size": settings.batch_size,
              "threads": settings.threads, "precision": settings.precision, "results": results}
    print(json.dumps(record))
    if settings.json:
        with open(settings.json, "w") as file:
            json.dump(record, file, indent=1)
    missed = misses(settings, results)
    for text in missed:
        print(text, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
