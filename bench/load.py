#!/usr/bin/python3
"""Loading a .pth of 170 MB (resnet101): Convoy against torch.load, in turns on the same machine.

  bench/load.py [--build build] [--arch resnet101] [--rounds 7]

Each round starts both programs anew; each loads the file three times from the page cache. `torch.load` ends with tensors
in memory; Convoy's first figure ends there too (every tensor in place in the mapped file, its CRC checked, which
torch.load leaves out), its second when the network holds the weights and has found out which network it is, against
torch.load and load_state_dict. Prints the medians and the ratios Convoy / PyTorch as one line of JSON.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

TORCH = """
import sys, time
import torch, torchvision
torch.set_num_threads(int(sys.argv[3]))
model = getattr(torchvision.models, sys.argv[2])()
for _ in range(3):
    start = time.perf_counter()
    state = torch.load(sys.argv[1])
    loaded = time.perf_counter()
    model.load_state_dict(state)
    print((loaded - start) * 1e3, (time.perf_counter() - start) * 1e3)
    del state
"""
SAVE = """
import sys
import torch, torchvision
torch.save(getattr(torchvision.models, sys.argv[2])().state_dict(), sys.argv[1])
"""


def pairs(command):
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [tuple(map(float, line.split())) for line in text.splitlines()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--arch", default="resnet101")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    python = os.environ.get("CONVOY_PYTHON", "/usr/bin/python3")
    threads = str(len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "weights.pth")
        subprocess.run([python, "-c", SAVE, path, options.arch], check=True)
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours += pairs([os.path.join(options.build, "tests/load_time"), path, "3"])
            theirs += pairs([python, "-c", TORCH, path, options.arch, threads])
        size = os.path.getsize(path)
    ours, theirs = ([statistics.median(column) for column in zip(*rows)] for rows in (ours, theirs))
    json.dump({"file_mb": round(size / 1e6, 1), "rounds": options.rounds,
               "convoy_open_ms": round(ours[0], 1), "torch_load_ms": round(theirs[0], 1),
               "open_ratio": round(ours[0] / theirs[0], 2), "convoy_network_ms": round(ours[1], 1),
               "torch_network_ms": round(theirs[1], 1), "network_ratio": round(ours[1] / theirs[1], 2)}, sys.stdout)
    print()


main()
