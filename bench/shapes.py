#!/usr/bin/env python3
"""How hard the built-in shapes are, and whether Convoy learns them as PyTorch does.

    bench/shapes.py build/shapes            # writes the set with `convoy dataset shapes` if the folder is missing
    bench/shapes.py build/shapes --run RUNDIR   # compares with a run that is there already

1. Logistic regression on the pixels, full batch, L-BFGS, the best of three L2 penalties (chosen on the validation
   images, in its favour): must stay below 40 %.
2. `convoy train` with nothing but the folder: the automatic recipe.
3. PyTorch's resnet18 with the options that the recipe chose (options.json of the run): best top-1 within 1 point.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torchvision

FOLDER = os.path.dirname(os.path.abspath(__file__))
LOGISTIC_LIMIT = 40.0
DIFFERENCE_LIMIT = 1.0


def pixels(folder, side):
    """Images as rows of side * side * 3 values in 0..1, labels."""
    data = torchvision.datasets.ImageFolder(folder)
    rows = np.stack([np.asarray(image.convert("RGB").resize((side, side)), np.float32).ravel() / 255
                     for image, _ in data])
    return torch.from_numpy(rows), torch.tensor(data.targets)


def logistic_regression(folder, side, iterations):
    """The best validation top-1 in percent over three penalties."""
    x, y = pixels(os.path.join(folder, "train"), side)
    x_val, y_val = pixels(os.path.join(folder, "val"), side)
    mean, std = x.mean(0), x.std(0) + 1e-3
    x, x_val = (x - mean) / std, (x_val - mean) / std
    classes, best = int(y.max()) + 1, 0.0
    for penalty in (1e-4, 1e-3, 1e-2):
        weights = torch.zeros(x.shape[1], classes, requires_grad=True)
        bias = torch.zeros(classes, requires_grad=True)
        optimizer = torch.optim.LBFGS([weights, bias], max_iter=iterations, line_search_fn="strong_wolfe")

        def closure():
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(x @ weights + bias, y) + penalty * weights.pow(2).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        with torch.no_grad():
            top1 = 100 * float(((x_val @ weights + bias).argmax(1) == y_val).float().mean())
            own = 100 * float(((x @ weights + bias).argmax(1) == y).float().mean())
        print(f"logistic regression, penalty {penalty:g}: top-1 {top1:.2f} % (on its training images {own:.2f} %)",
              flush=True)
        best = max(best, top1)
    return best


def best_top1(run):
    with open(os.path.join(run, "metrics.csv")) as file:
        return max(float(row["val.top1"]) for row in csv.DictReader(file))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder of the shapes")
    parser.add_argument("--run", help="a run directory of `convoy train DATA`")
    parser.add_argument("--side", type=int, default=64, help="of the images that the regression sees")
    parser.add_argument("--iterations", type=int, default=100, help="of L-BFGS")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, help="another number than the recipe's, to try the script")
    parser.add_argument("--convoy", default=os.path.join(FOLDER, "../build/convoy"))
    parser.add_argument("--json", help="write the result here as well")
    return parser.parse_args()


def main():
    settings = parse()
    torch.set_num_threads(settings.threads)
    if not os.path.isdir(settings.data):
        subprocess.run([settings.convoy, "dataset", "shapes", settings.data], check=True)
    logistic = logistic_regression(settings.data, settings.side, settings.iterations)

    run = settings.run
    if not run:
        run = os.path.join(tempfile.mkdtemp(), "run")
        command = [settings.convoy, "train", settings.data, "--workspace", run]
        command += ["--epochs", str(settings.epochs)] if settings.epochs else []
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    ours = best_top1(run)
    with open(os.path.join(run, "options.json")) as file:
        options = json.load(file)["result"]
    print("options of the run: " + ", ".join(f"{name} {value}" for name, value in options.items()))

    sys.path.insert(0, FOLDER)
    import torch_train
    theirs = max(torch_train.train(settings.data, options, settings.threads)["top1"])

    print(f"logistic regression {logistic:.2f} % (must stay below {LOGISTIC_LIMIT:g})")
    print(f"convoy {ours:.2f} %, pytorch {theirs:.2f} %, difference {ours - theirs:+.2f} points (allowed: "
          f"{DIFFERENCE_LIMIT:g})")
    if settings.json:
        with open(settings.json, "w") as file:
            json.dump({"logistic": logistic, "convoy": ours, "pytorch": theirs, "options": options}, file, indent=1)
    return 0 if logistic < LOGISTIC_LIMIT and abs(ours - theirs) <= DIFFERENCE_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
