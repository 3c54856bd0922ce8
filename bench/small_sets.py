#!/usr/bin/env python3
"""Recipes on small sets: whether any of them diverges, and how good they are.

    bench/small_sets.py DIR                         # DIR/train/<class> and DIR/val/<class>, as Imagenette has them
    bench/small_sets.py DIR --recipes quick --sets few,odd --seeds 3

Subsets of DIR are links in a temporary folder: two classes of 20 images, six of 24, three of 100, 30 and 8, ten of 50;
20 images of each class validate. Printed for each recipe and set: the largest validation loss of any epoch, the
smallest and the last one, top-1 of the best and of the last epoch, and the seconds; a line is marked where the largest
loss is above 20 times chance's, the last one above 1.5 times the smallest, or top-1 not above chance. Exit code 1 then.
"""
import argparse
import csv
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

SETS = {"two": [20] * 2, "few": [24] * 6, "odd": [100, 30, 8], "ten": [50] * 10}
VALIDATION = 20


def make_set(source, folder, counts, seed):
    chooser = random.Random(seed)
    classes = sorted(path.name for path in (source / "train").iterdir() if path.is_dir())
    if len(classes) < len(counts):
        sys.exit(f"{source}/train has {len(classes)} classes, and {len(counts)} are needed")
    for name, count in zip(classes, counts):
        for part, wanted in (("train", count), ("val", VALIDATION)):
            files = sorted(path for path in (source / part / name).rglob("*") if path.is_file())
            (folder / part / name).mkdir(parents=True)
            for path in chooser.sample(files, wanted):
                (folder / part / name / path.name).symlink_to(path.resolve())


def train(convoy, data, recipe, seed):
    """The rows of metrics.csv and the seconds."""
    with tempfile.TemporaryDirectory() as run:
        start = time.monotonic()
        subprocess.run([convoy, "-q", "train", data, "--recipe", recipe, "--seed", str(seed), "--no-checkpoints",
                        "--workspace", run], check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - start
        with open(os.path.join(run, "metrics.csv"), newline="") as file:
            return list(csv.DictReader(file)), seconds


def judge(rows, classes):
    """What to print, and what is wrong."""
    losses = [float(row["val.loss"]) for row in rows]
    top1 = [float(row["val.top1"]) for row in rows]
    chance = math.log(classes)
    wrong = []
    if not all(map(math.isfinite, losses)) or max(losses) > 20 * chance:
        wrong.append("a loss far above chance")
    if losses[-1] > 1.5 * min(losses):
        wrong.append("the last loss is far from the smallest")
    if max(top1) <= 100 / classes:
        wrong.append("no better than chance")
    return (max(losses), min(losses), losses[-1], max(top1), top1[-1]), wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--convoy", default=str(pathlib.Path(__file__).resolve().parent.parent / "build" / "convoy"))
    parser.add_argument("--recipes", default="quick,auto")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    failed = False
    print(f"{'recipe':10} {'set':5} {'seed':>4} {'max loss':>9} {'min':>7} {'last':>7} {'best %':>7} {'last %':>7} {'s':>5}")
    for name in options.sets.split(","):
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                make_set(options.data, pathlib.Path(folder), SETS[name], seed)
                for recipe in options.recipes.split(","):
                    rows, seconds = train(options.convoy, folder, recipe, seed)
                    numbers, wrong = judge(rows, len(SETS[name]))
                    failed = failed or bool(wrong)
                    print("{:10} {:5} {:4} {:9.4g} {:7.3f} {:7.3f} {:7.1f} {:7.1f} {:5.0f}  {}".format(
                        recipe, name, seed, *numbers, seconds, "; ".join(wrong)), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
