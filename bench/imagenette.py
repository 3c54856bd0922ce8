#!/usr/bin/env python3
"""Accuracy from scratch beside PyTorch: resnet18 on imagenette-64 (shorter side 64) at 64 pixels.

10 epochs, batch 64, learning rate 0.05 in a cosine by epoch with one warm-up epoch, momentum 0.9, weight decay 5e-4 not
on parameters named bn, label smoothing 0.1, RandomResizedCrop(64) and flip; validation on Resize(64), CenterCrop(64).
Each seed trains once on each side. Printed: top-1 after the last epoch, the means, and the share of the time that
Convoy's steps waited for data. Exits 1 when Convoy's mean is more than 1 point below PyTorch's or the share reaches
5 %. About 6 minutes for each seed and side on two cores.

    bench/imagenette.py $CONVOY_TEST_DATA/imagenette-64 --seeds 1 2 3
    bench/imagenette.py DIR --only convoy --fast     # the same with --decode fast, beside exact

--fast says by how much the means differ, and how far apart the seeds are on the exact side; exit 1 where the difference is
more. It needs images with shorter sides well above 192 pixels: smaller ones are decoded alike.
"""
import argparse
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
OPTIONS = {"arch": "resnet18", "image-size": 64, "eval-resize": 64, "epochs": 10, "batch-size": 64, "lr": 0.05,
           "lr-schedule": "cosine", "warmup": 1, "momentum": 0.9, "weight-decay": 5e-4, "label-smoothing": 0.1,
           "min-crop-area": 0.08}
SIDES = ("convoy", "fast", "pytorch")


def data_share(report):
    """Share of the time of all steps that waited for data, from the DLLogger lines of the steps (--print-freq 1 gives one
    for each): "step" is [epoch, iteration], the times are in seconds."""
    wait = compute = 0.0
    with open(report) as file:
        for line in file:
            record = json.loads(line.partition("DLLL")[2] or line)
            if isinstance(record.get("step"), list) and len(record["step"]) >= 2:
                wait += record["data"].get("train.data_time", 0.0)
                compute += record["data"].get("train.compute_time", 0.0)
    return wait / (wait + compute) if compute else float("nan")


def run_convoy(settings, seed, workspace, decode="exact"):
    options = dict(OPTIONS, decode=decode, epochs=settings.epochs, seed=seed, threads=settings.threads, workers=settings.workers,
                   **{"print-freq": 1}, workspace=workspace)
    command = [settings.convoy, "train", settings.data]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    begin = time.monotonic()
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
        sys.exit("failed: " + " ".join(command))
    seconds = time.monotonic() - begin
    with open(os.path.join(workspace, "metrics.csv")) as file:
        top1 = [float(row["val.top1"]) for row in csv.DictReader(file)]
    return {"top1": top1, "seconds": seconds,
            "data_share": data_share(os.path.join(workspace, "experiment_raport.json"))}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder with train/ and val/")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=("convoy", "pytorch"), help="one side alone")
    parser.add_argument("--fast", action="store_true", help="Convoy with --decode fast too")
    parser.add_argument("--workspace", help="keep the run directories in this folder")
    parser.add_argument("--convoy", default=os.path.join(FOLDER, "../build/convoy"))
    parser.add_argument("--json", help="write the result here as well")
    return parser.parse_args()


def main():
    settings = parse()
    work = settings.workspace or tempfile.mkdtemp()
    rows = []
    for seed in settings.seeds:
        row = {"seed": seed}
        if settings.only != "pytorch":
            row["convoy"] = run_convoy(settings, seed, os.path.join(work, f"seed-{seed}"))
        if settings.fast:
            row["fast"] = run_convoy(settings, seed, os.path.join(work, f"seed-{seed}-fast"), "fast")
        if settings.only != "convoy":
            sys.path.insert(0, FOLDER)
            import torch_train
            row["pytorch"] = torch_train.train(settings.data, dict(OPTIONS, epochs=settings.epochs, seed=seed),
                                               settings.threads, settings.workers)
        rows.append(row)
    if not settings.workspace:
        shutil.rmtree(work)

    print(f"{'seed':>5} {'side':8} {'last top-1':>10} {'best':>7} {'seconds':>8} {'waiting for data':>17}")
    for row in rows:
        for side in SIDES:
            if side in row:
                r = row[side]
                share = f"{100 * r['data_share']:.1f} %" if "data_share" in r else ""
                print(f"{row['seed']:5} {side:8} {r['top1'][-1]:10.2f} {max(r['top1']):7.2f} {r['seconds']:8.0f} {share:>17}")
    means = {side: statistics.mean(row[side]["top1"][-1] for row in rows)
             for side in SIDES if side in rows[0]}
    failed = False
    for side, mean in means.items():
        print(f"mean top-1 of {side}: {mean:.2f} %")
    if "convoy" in means and "fast" in means:
        exact = [row["convoy"]["top1"][-1] for row in rows]
        difference, spread = means["fast"] - means["convoy"], max(exact) - min(exact)
        print(f"fast against exact: {difference:+.2f} points (the seeds of exact are {spread:.2f} apart)")
        failed |= not abs(difference) <= spread
    if "convoy" in means and "pytorch" in means:
        print(f"difference: {means['convoy'] - means['pytorch']:+.2f} points (allowed: -1)")
        failed |= not means["convoy"] >= means["pytorch"] - 1
    if "convoy" in means:
        share = max(row["convoy"]["data_share"] for row in rows)
        print(f"largest share of waiting for data: {100 * share:.2f} % (allowed: below 5)")
        failed |= not share < 0.05
    if settings.json:
        with open(settings.json, "w") as file:
            json.dump({"options": OPTIONS, "means": means, "runs": rows}, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
