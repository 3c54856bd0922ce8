#!/usr/bin/env python3
"""Recipes on small sets: whether any of them diverges, how good they are, and three fixed recipes of PyTorch beside them.

    bench/small_sets.py IMAGENETTE                       # the automatic recipe on all small sets
    bench/small_sets.py IMAGENETTE --torch --results F   # with bench/torch_small.py beside it; what F has is not run again
    bench/small_sets.py IMAGENETTE --torch --recipes none --results F # PyTorch alone, perhaps on another day
    bench/small_sets.py IMAGENETTE --recipes quick,auto --sets photos-2,shapes-2 --seeds 3
    bench/small_sets.py IMAGENETTE --large --torch       # more sets of 5,000 images and of 224 pixels: hours

IMAGENETTE has train/<class> and val/<class> with images of 64 pixels; for the sets of 224 pixels --large-images names
another such folder. Sets of photographs are links into them; drawn ones are made by `convoy dataset shapes`, and the
50 classes are its ten in five colourings. Images are chosen by the seed. Each line is one training: the largest
validation loss of any epoch, the smallest and the last one, top-1 of the best and of the last epoch, processor seconds
(user and system, of the process and its children, from its start to its end: other load on the machine changes them
little) and elapsed ones. Both sides validate after each epoch. Marked is

* a validation loss that is not finite, or above 20 times that of guessing, in any epoch: a run that diverges;
* a last loss above 1.5 times the smallest one;
* a last top-1 below guessing;
* a best top-1 that is not above guessing (classes are equally large in the validation set).

Exit code 1 when something is marked, or when, with --torch, the mean top-1 of the automatic recipe (best epoch) is below
that of the best of the three, or it has taken more processor time than that one.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# Epochs of both sides, where a set takes too long with those that either would choose.
EPOCHS = {"wide-2": 20, "colours-50": 20}
# Name -> where the images are from, side, training images of each class, and whether the set is only for --large.
SETS = {
    "photos-2": ("photos", 64, [20] * 2, False),
    "photos-odd": ("photos", 64, [60, 20, 8], False),
    "photos-6": ("photos", 64, [16] * 6, False),
    "photos-10": ("photos", 64, [20] * 10, False),
    "shapes-2": ("shapes", 32, [20] * 2, False),
    "shapes-odd": ("shapes", 48, [40, 30, 20, 10, 5, 5], False),
    "shapes-10": ("shapes", 32, [40] * 10, False),
    "colours-50": ("colours", 32, [10] * 50, False),
    "wide-2": ("wide", 224, [20] * 2, False),
    "shapes-5000": ("shapes", 32, [500] * 10, False),
    "photos-10-500": ("photos", 64, [500] * 10, True),
    "colours-50-100": ("colours", 48, [100] * 50, True),
    "wide-10": ("wide", 224, [20] * 10, True),
}
COLOURINGS = 5
TORCH = "torch-"
PEERS = [TORCH + name for name in ("sgd", "adamw", "rmsprop")]


def validation_images(classes):
    """Of each class: enough to tell a few points apart, and not more than the training takes."""
    return min(50, max(8, 200 // classes))


def link_some(source, folder, counts, wanted_val, chooser):
    classes = sorted(path.name for path in (source / "train").iterdir() if path.is_dir())
    if len(classes) < len(counts):
        sys.exit(f"{source}/train has {len(classes)} classes, and {len(counts)} are needed")
    for name, count in zip(classes, counts):
        for part, wanted in (("train", count), ("val", wanted_val)):
            files = sorted(path for path in (source / part / name).rglob("*") if path.is_file())
            (folder / part / name).mkdir(parents=True)
            for path in chooser.sample(files, min(wanted, len(files))):
                (folder / part / name / path.name).symlink_to(path.resolve())


def draw(convoy, folder, side, train, val, seed):
    subprocess.run([convoy, "-q", "dataset", "shapes", folder, "--image-size", str(side), "--train-per-class", str(train),
                    "--val-per-class", str(val), "--seed", str(seed)], check=True)


def recolour(source, folder, counts, wanted_val):
    """Fifty classes: each drawn one as it is, inverted, grey, and with its channels in two other orders."""
    from PIL import Image, ImageOps
    orders = {"bgr": (2, 1, 0), "gbr": (1, 2, 0)}
    names = sorted(path.name for path in (source / "train").iterdir())
    for k, count in enumerate(counts):
        name, colouring = names[k // COLOURINGS], ("plain", "inverted", "grey", "bgr", "gbr")[k % COLOURINGS]
        for part, wanted in (("train", count), ("val", wanted_val)):
            target = folder / part / f"{name}-{colouring}"
            target.mkdir(parents=True)
            files = sorted((source / part / name).iterdir())
            for path in files[(k % COLOURINGS) * wanted:][:wanted]:
                image = Image.open(path).convert("RGB")
                if colouring == "inverted":
                    image = ImageOps.invert(image)
                elif colouring == "grey":
                    image = ImageOps.grayscale(image).convert("RGB")
                elif colouring in orders:
                    bands = image.split()
                    image = Image.merge("RGB", [bands[i] for i in orders[colouring]])
                image.save(target / path.name, quality=90)


def make_set(options, name, folder, seed):
    kind, side, counts, _ = SETS[name]
    chooser, val = random.Random(seed), validation_images(len(counts))
    if kind == "photos":
        return link_some(options.data, folder, counts, val, chooser)
    if kind == "wide":
        return link_some(options.large_images, folder, counts, val, chooser)
    with tempfile.TemporaryDirectory() as drawn:
        copies = COLOURINGS if kind == "colours" else 1
        draw(options.convoy, drawn, side, max(counts) * copies, val * copies, seed)
        if kind == "colours":
            return recolour(pathlib.Path(drawn), folder, counts, val)
        link_some(pathlib.Path(drawn), folder, counts, val, chooser)
        for path in folder.rglob("*.jpg"): # the drawn folder goes
            real = path.resolve()
            path.unlink()
            real.rename(path)


def measured(command, **more):
    """Runs it: what it prints, elapsed seconds, and processor seconds of it and its children."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more)
    seconds, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return result.stdout, {"seconds": seconds, "processor": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def train(options, name, data, recipe, seed):
    """Validation losses and top-1 of each epoch, and the seconds."""
    with tempfile.TemporaryDirectory() as run:
        command = [options.convoy, "-q", "train", data, "--seed", str(seed), "--no-checkpoints", "--workspace", run]
        command += ["--recipe", recipe] if recipe != "auto" else []
        command += ["--epochs", str(EPOCHS[name])] if name in EPOCHS else []
        _, times = measured(command + options.arguments.split())
        with open(os.path.join(run, "metrics.csv"), newline="") as file:
            rows = list(csv.DictReader(file))
    return dict(times, recipe=recipe, loss=[float(row["val.loss"]) for row in rows], top1=[float(row["val.top1"]) for row in rows])


def train_torch(options, name, data, recipe, seed):
    """The same of a recipe in PyTorch, which is fixed: 60,000 images, but between 15 and 60 epochs of them."""
    _, side, counts, _ = SETS[name]
    epochs = EPOCHS.get(name, min(60, max(15, 60000 // sum(counts))))
    command = [options.python, HERE / "torch_small.py", data, "--image-size", str(side), "--epochs", str(epochs)]
    command += ["--seed", str(seed), "--recipes", recipe.removeprefix(TORCH)] + options.torch_arguments.split()
    line, times = measured(command)
    return dict(json.loads(line), **times, recipe=recipe)


def judge(run, classes):
    """What is wrong with a training."""
    losses, top1, chance = run["loss"], run["top1"], math.log(classes)
    wrong = []
    if not all(map(math.isfinite, losses)) or max(losses) > 20 * chance:
        wrong.append("diverged")
    elif losses[-1] > 1.5 * min(losses):
        wrong.append("last loss far from the smallest")
    if max(top1) <= 100 / classes:
        wrong.append("no better than chance")
    if top1[-1] < 100 / classes:
        wrong.append("ends below chance")
    return wrong


def show(run):
    """One line; whether something is wrong with a training of Convoy's."""
    wrong = [] if run["recipe"] in PEERS else judge(run, len(SETS[run["set"]][2]))
    print("{:14} {:4} {:13} {:9.4g} {:7.3f} {:7.3f} {:7.1f} {:7.1f} {:8.1f} {:7.0f}  {}".format(
        run["set"], run["seed"], run["recipe"], max(run["loss"]), min(run["loss"]), run["loss"][-1], max(run["top1"]),
        run["top1"][-1], run["processor"], run["seconds"], "; ".join(wrong)), flush=True)
    return bool(wrong)


def compare(runs):
    """Means over the sets of the top-1 of the best and of the last epoch, and the time; 1 when Convoy is behind."""
    recipes = list(dict.fromkeys(run["recipe"] for run in runs))
    of = {recipe: [run for run in runs if run["recipe"] == recipe] for recipe in recipes}
    best = {recipe: statistics.mean(max(run["top1"]) for run in of[recipe]) for recipe in recipes}
    seconds = {recipe: sum(run["processor"] for run in of[recipe]) for recipe in recipes}
    for recipe in recipes:
        last = statistics.mean(run["top1"][-1] for run in of[recipe])
        print(f"{recipe:13} mean top-1 {best[recipe]:.2f} % (best epoch), {last:.2f} % (last), "
              f"{seconds[recipe]:.0f} s of processor time, {len(of[recipe])} trainings")
    peers = [recipe for recipe in recipes if recipe in PEERS]
    if not peers or "auto" not in recipes:
        return 0
    peer = max(peers, key=lambda recipe: best[recipe])
    behind = best["auto"] < best[peer] or seconds["auto"] > seconds[peer]
    print(f"auto beside {peer}, the best of PyTorch's: {best['auto'] - best[peer]:+.2f} points in "
          f"{seconds['auto'] / seconds[peer]:.2f} of its processor time{': behind' if behind else ''}")
    return 1 if behind else 0


class Results:
    """Lines of JSON in a file: trainings that have been run."""

    def __init__(self, path):
        self.path = path
        lines = open(path).read().splitlines() if path and os.path.exists(path) else []
        self.runs = {self.key(run): run for run in map(json.loads, lines)}

    @staticmethod
    def key(run):
        return run["set"], run["seed"], run["recipe"]

    def add(self, run):
        self.runs[self.key(run)] = run
        if self.path:
            with open(self.path, "a") as file:
                file.write(json.dumps(run) + "\n")


def run_set(options, results, name, seed, recipes):
    missing = [recipe for recipe in recipes if (name, seed, recipe) not in results.runs]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as folder:
        make_set(options, name, pathlib.Path(folder), seed)
        for recipe in missing:
            run = train_torch(options, name, folder, recipe, seed) if recipe in PEERS else train(options, name, folder, recipe, seed)
            results.add(dict(run, set=name, seed=seed))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--large-images", type=pathlib.Path, help="a folder of larger images for the sets of 224 pixels")
    parser.add_argument("--convoy", default=str(HERE.parent / "build" / "convoy"))
    parser.add_argument("--python", default=sys.executable, help="of PyTorch")
    parser.add_argument("--recipes", default="auto", help="of Convoy, with commas between them; none")
    parser.add_argument("--sets", help="default: the small ones")
    parser.add_argument("--large", action="store_true", help="the large sets too")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--torch", action="store_true", help="PyTorch's recipes beside Convoy's")
    parser.add_argument("--arguments", default="--threads 1", help="more options for convoy train (default: %(default)s)")
    parser.add_argument("--torch-arguments", default="--threads 1 --workers 0", help="for torch_small.py (default: %(default)s)")
    parser.add_argument("--results", help="lines of JSON: what is in it is shown and not run again, new ones are appended")
    options = parser.parse_args()
    names = options.sets.split(",") if options.sets else [name for name in SETS if options.large or not SETS[name][3]]
    recipes = [] if options.recipes == "none" else options.recipes.split(",")
    recipes += PEERS if options.torch else []
    results, runs, failed = Results(options.results), [], False
    print("{:14} {:>4} {:13} {:>9} {:>7} {:>7} {:>7} {:>7} {:>8} {:>7}".format(
        "set", "seed", "recipe", "max loss", "min", "last", "best %", "last %", "CPU s", "s"))
    for name in names:
        if SETS[name][0] == "wide" and not options.large_images:
            print(f"{name}: left out, there is no --large-images")
            continue
        for seed in range(options.seeds):
            run_set(options, results, name, seed, recipes)
            for recipe in recipes:
                runs.append(results.runs[name, seed, recipe])
                failed = show(runs[-1]) or failed
    behind = compare(runs)
    return 1 if failed or behind else 0


if __name__ == "__main__":
    sys.exit(main())
