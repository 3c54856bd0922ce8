#!/usr/bin/env python3
"""Recipes on small sets: whether any of them diverges, how good they are, and three fixed recipes of PyTorch beside them.

    bench/small_sets.py IMAGENETTE                       # the automatic recipe on all small sets
    bench/small_sets.py IMAGENETTE --torch --json OUT    # with bench/torch_small.py beside it, for as many epochs;
        # on cores that others use too, --arguments "--threads 1" --torch-arguments "--threads 1 --workers 0" is kinder
    bench/small_sets.py IMAGENETTE --recipes quick,auto --sets photos-2,shapes-2 --seeds 3
    bench/small_sets.py IMAGENETTE --large --torch       # sets of 5,000 images and of 224 pixels: hours

IMAGENETTE has train/<class> and val/<class> with images of 64 pixels; for the sets of 224 pixels --large-images names
another such folder. Sets of photographs are links into them; drawn ones are made by `convoy dataset shapes`, and the
50 classes are its ten in five colourings. Images are chosen by the seed. Each line is one training: the largest
validation loss of any epoch, the smallest and the last one, top-1 of the best and of the last epoch, seconds. Marked is

* a validation loss that is not finite, or above 20 times that of guessing, in any epoch: a run that diverges;
* a last loss above 1.5 times the smallest one;
* a last top-1 below guessing;
* a best top-1 that is not above guessing (classes are equally large in the validation set).

Exit code 1 when something is marked, or when, with --torch, the mean top-1 of the automatic recipe (best epoch) is below
that of the best of the three, or it has taken more time than that one.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# Name -> where the images are from, side, training images of each class, and whether the set is only for --large.
SETS = {
    "photos-2": ("photos", 64, [20] * 2, False),
    "photos-odd": ("photos", 64, [100, 30, 8], False),
    "photos-6": ("photos", 64, [16] * 6, False),
    "photos-10": ("photos", 64, [20] * 10, False),
    "shapes-2": ("shapes", 32, [20] * 2, False),
    "shapes-odd": ("shapes", 48, [40, 30, 20, 10, 5, 5], False),
    "shapes-10": ("shapes", 32, [40] * 10, False),
    "colours-50": ("colours", 32, [10] * 50, False),
    "wide-2": ("wide", 224, [20] * 2, False),
    "photos-10-500": ("photos", 64, [500] * 10, True),
    "shapes-10-500": ("shapes", 48, [500] * 10, True),
    "colours-50-100": ("colours", 48, [100] * 50, True),
    "wide-10": ("wide", 224, [20] * 10, True),
}
COLOURINGS = 5


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


def train(options, data, recipe, seed):
    """Validation losses and top-1 of each epoch, and the seconds."""
    with tempfile.TemporaryDirectory() as run:
        start = time.monotonic()
        command = [options.convoy, "-q", "train", data, "--seed", str(seed), "--no-checkpoints", "--workspace", run]
        subprocess.run(command + (["--recipe", recipe] if recipe != "auto" else []) + options.arguments.split(),
                       check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - start
        with open(os.path.join(run, "metrics.csv"), newline="") as file:
            rows = list(csv.DictReader(file))
    return {"recipe": recipe, "loss": [float(row["val.loss"]) for row in rows],
            "top1": [float(row["val.top1"]) for row in rows], "seconds": seconds}


def train_torch(options, name, data, epochs, seed):
    command = [options.python, HERE / "torch_small.py", data, "--image-size", str(SETS[name][1]), "--epochs", str(epochs)]
    command += ["--seed", str(seed)] + options.torch_arguments.split()
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


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


def show(name, seed, run, wrong):
    print("{:14} {:4} {:13} {:9.4g} {:7.3f} {:7.3f} {:7.1f} {:7.1f} {:6.0f}  {}".format(
        name, seed, run["recipe"], max(run["loss"]), min(run["loss"]), run["loss"][-1], max(run["top1"]), run["top1"][-1],
        run["seconds"], "; ".join(wrong)), flush=True)


def compare(runs):
    """Mean top-1 of the best epoch, mean of the last one, and seconds, of each recipe; 1 when Convoy is behind."""
    recipes = list(dict.fromkeys(run["recipe"] for run in runs))
    of = {recipe: [run for run in runs if run["recipe"] == recipe] for recipe in recipes}
    best = {recipe: statistics.mean(max(run["top1"]) for run in of[recipe]) for recipe in recipes}
    seconds = {recipe: sum(run["seconds"] for run in of[recipe]) for recipe in recipes}
    for recipe in recipes:
        last = statistics.mean(run["top1"][-1] for run in of[recipe])
        print(f"{recipe:13} mean top-1 {best[recipe]:.2f} % (best epoch), {last:.2f} % (last), {seconds[recipe]:.0f} s, "
              f"{len(of[recipe])} trainings")
    peers = [recipe for recipe in recipes if recipe.startswith("torch-")]
    if not peers or "auto" not in recipes:
        return 0
    peer = max(peers, key=lambda recipe: best[recipe])
    behind = best["auto"] < best[peer] or seconds["auto"] > seconds[peer]
    print(f"auto beside {peer}, the best of PyTorch's: {best['auto'] - best[peer]:+.2f} points in "
          f"{seconds['auto'] / seconds[peer]:.2f} of its time{': behind' if behind else ''}")
    return 1 if behind else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--large-images", type=pathlib.Path, help="a folder of larger images for the sets of 224 pixels")
    parser.add_argument("--convoy", default=str(HERE.parent / "build" / "convoy"))
    parser.add_argument("--python", default=sys.executable, help="of PyTorch")
    parser.add_argument("--recipes", default="auto")
    parser.add_argument("--sets", help="default: the small ones")
    parser.add_argument("--large", action="store_true", help="the large sets too")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--torch", action="store_true", help="PyTorch's recipes beside Convoy's")
    parser.add_argument("--arguments", default="", help="more options for convoy train")
    parser.add_argument("--torch-arguments", default="", help="more options for torch_small.py")
    parser.add_argument("--json", help="write all numbers here as well")
    options = parser.parse_args()
    names = options.sets.split(",") if options.sets else [name for name in SETS if options.large or not SETS[name][3]]
    runs, failed = [], False
    print(f"{'set':14} {'seed':>4} {'recipe':13} {'max loss':>9} {'min':>7} {'last':>7} {'best %':>7} {'last %':>7} {'s':>6}")
    for name in names:
        if SETS[name][0] == "wide" and not options.large_images:
            print(f"{name}: left out, there is no --large-images")
            continue
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                make_set(options, name, pathlib.Path(folder), seed)
                ours = [train(options, folder, recipe, seed) for recipe in options.recipes.split(",")]
                for run in ours:
                    wrong = judge(run, len(SETS[name][2]))
                    failed = failed or bool(wrong)
                    show(name, seed, run, wrong)
                peers = train_torch(options, name, folder, len(ours[-1]["loss"]), seed) if options.torch else []
                for run in peers:
                    run["recipe"] = "torch-" + run["recipe"]
                    show(name, seed, run, [])
                runs += [dict(run, set=name, seed=seed) for run in ours + peers]
    behind = compare(runs)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(runs, file, indent=1)
    return 1 if failed or behind else 0


if __name__ == "__main__":
    sys.exit(main())
