#!/usr/bin/env python3
"""Loss curves of one network in fp32, in bf16, and with Winograd's algorithm off and everywhere.

    bench/curves.py DIR                                  # resnet50, 64 pixels, 5 epochs: about 12 minutes for each run
    bench/curves.py DIR --arch resnet18 --epochs 1 --steps 4 --batch-size 8     # a try
    bench/curves.py DIR --peer                          # PyTorch's fp32 and bf16, to hold beside them

DIR is an image folder (train/ and val/). Runs of `convoy train` with the same options: fp32 and bf16 with each seed (two at
the least), and fp32 with the first one without Winograd and with Winograd for every pass. Each gives the loss of every step; its
number is the mean over the steps of the last epoch.

The rule: another seed is another run of the same training, so that two fp32 seeds say how much such a number may differ.
bf16 may differ from fp32 by no more, and so may Winograd everywhere from none. The exit code is 1 when one differs by more.
--peer trains the same network with PyTorch (torch_train.py) and says how far its bf16 lies from its fp32: what belongs to
bf16 itself shows there as well.
Where two seeds happen to lie very close, more --seeds tell: then the largest difference of any two of them counts.
"""
import argparse
import concurrent.futures
import csv
import itertools
import json
import os
import statistics
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
# The same for both sides, whatever either takes by itself.
RECIPE = {"lr-schedule": "cosine", "warmup": 1, "momentum": 0.9, "weight-decay": 5e-4, "label-smoothing": 0.1,
          "min-crop-area": 0.35, "model-config": "fanin"}


def train(settings, name, seed, precision, winograd=None):
    """The losses of the last epoch of a run; what a run left that was complete is used again."""
    folder = os.path.abspath(os.path.join(settings.work, name))
    steps = os.path.join(folder, "steps.csv")
    environment = dict(os.environ)
    if winograd is not None:
        # The first kernel that accepts, not the fastest: else timing might leave Winograd out of what it is asked for.
        environment.update(CONVOY_CPU_WINOGRAD=winograd, CONVOY_KERNELS="first")
    command = [settings.convoy, "-q", "train", settings.data, "--arch", settings.arch, "--image-size",
               str(settings.image_size), "--batch-size", str(settings.batch_size), "--epochs", str(settings.epochs),
               "--lr", str(settings.lr), *(word for name, value in RECIPE.items() for word in (f"--{name}", str(value))),
               "--last-bn-0-init", "--precision", precision, "--seed", str(seed), "--threads", str(settings.threads), "--no-checkpoints",
               "--training-only", "--prof", str(settings.steps), "--workspace", folder, "--log-every-step", steps]
    done = os.path.join(folder, "done.json")
    if not os.path.exists(done):
        print(" ".join(command), file=sys.stderr, flush=True)
        if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode != 0:
            sys.exit(f"the run {name} failed")
        with open(done, "w") as file:
            json.dump(command[1:], file)
    else:
        with open(done) as file:
            if json.load(file) != command[1:]:
                sys.exit(f"{folder} holds a run with other options: --work names another folder")
    with open(steps) as file:
        rows = list(csv.DictReader(file))
    last = max(int(row["epoch"]) for row in rows)
    if last + 1 != settings.epochs:
        sys.exit(f"{steps} ends in epoch {last + 1} of {settings.epochs}")
    return [float(row["loss"]) for row in rows if int(row["epoch"]) == last]


def train_peer(settings, name, seed, precision):
    """PyTorch's mean loss over the last epoch of the same training; kept as a file like Convoy's runs."""
    done = os.path.join(os.path.abspath(settings.work), f"{name}.json")
    options = {"arch": settings.arch, "image-size": settings.image_size, "batch-size": settings.batch_size,
               "epochs": settings.epochs, "lr": settings.lr, **RECIPE, "last-bn-0-init": True, "precision": precision,
               "seed": seed, "training-only": True}
    if os.path.exists(done):
        with open(done) as file:
            kept = json.load(file)
        if kept["options"] != options:
            sys.exit(f"{done} is of a run with other options: --work names another folder")
        return kept["loss"]
    print(f"pytorch {precision} seed {seed}", file=sys.stderr, flush=True)
    # A process of its own: PyTorch's threads are set for the whole of one.
    code = "import json, sys, torch_train; a = json.loads(sys.argv[1]); print(json.dumps(torch_train.train(*a)))"
    run = subprocess.run([settings.python, "-c", code, json.dumps([settings.data, options, settings.threads])],
                         cwd=FOLDER, stdout=subprocess.PIPE)
    if run.returncode != 0:
        sys.exit(f"the run {name} failed")
    losses = json.loads(run.stdout)["loss"]
    with open(done, "w") as file:
        json.dump({"options": options, "loss": losses}, file)
    return losses


def compare_peer(settings):
    """Whether PyTorch's own bf16 lies as far from its fp32."""
    runs = {f"pytorch {precision} seed {seed}": train_peer(settings, f"pytorch-{precision}-{seed}", seed, precision)[-1]
            for seed in settings.seeds for precision in ("fp32", "bf16")}
    print("\n| run | loss |\n|---|---|")
    for name, loss in runs.items():
        print(f"| {name} | {loss:.5f} |")
    means = [statistics.mean(loss for name, loss in runs.items() if precision in name) for precision in ("fp32", "bf16")]
    print(f"\nPyTorch's bf16 differs from its fp32 by {means[1] - means[0]:+.5f}")
    return runs


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", metavar="DIR")
    parser.add_argument("--arch", default="resnet50")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=-1, help="of each epoch (-1: all)")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seeds", default="0,1", help="as many as are to be run")
    parser.add_argument("--threads", type=int, default=2, help="of each run")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--work", default="curves", help="folder of the runs; complete ones are not run again")
    parser.add_argument("--convoy", default=os.path.join(FOLDER, "../build/convoy"))
    parser.add_argument("--peer", action="store_true", help="PyTorch's fp32 and bf16 instead, with each seed")
    parser.add_argument("--python", default=sys.executable, help="one that has torch and torchvision, for --peer")
    parser.add_argument("--json", help="write the numbers here as well")
    settings = parser.parse_args()
    settings.seeds = [int(seed) for seed in settings.seeds.split(",")]
    if len(settings.seeds) < 2:
        parser.error("--seeds: two at the least")
    return settings


def main():
    settings = parse()
    os.makedirs(settings.work, exist_ok=True)
    if settings.peer:
        runs = compare_peer(settings)
        if settings.json:
            with open(settings.json, "w") as file:
                json.dump({"options": vars(settings), "means": runs}, file, indent=1)
        return 0
    first = settings.seeds[0]
    with concurrent.futures.ThreadPoolExecutor(settings.jobs) as pool:
        jobs = {f"fp32 seed {seed}": pool.submit(train, settings, f"fp32-{seed}", seed, "fp32")
                for seed in settings.seeds}
        seeds = list(jobs)
        for seed in settings.seeds:
            jobs[f"bf16 seed {seed}"] = pool.submit(train, settings, f"bf16-{seed}", seed, "bf16")
        jobs["no Winograd"] = pool.submit(train, settings, f"winograd-0-{first}", first, "fp32", "0")
        jobs["Winograd everywhere"] = pool.submit(train, settings, f"winograd-1-{first}", first, "fp32", "1")
        runs = {name: job.result() for name, job in jobs.items()}
    means = {name: statistics.mean(losses) for name, losses in runs.items()}
    allowed = max(abs(means[a] - means[b]) for a, b in itertools.combinations(seeds, 2))
    halves = [[means[f"{precision} seed {seed}"] for seed in settings.seeds] for precision in ("fp32", "bf16")]
    verdicts = {"bf16 against fp32, means over the seeds": abs(statistics.mean(halves[1]) - statistics.mean(halves[0])),
                "bf16 against fp32, the seed where they are furthest apart": max(abs(b - a) for a, b in zip(*halves)),
                "Winograd everywhere against none": abs(means["Winograd everywhere"] - means["no Winograd"])}

    print(f"{settings.arch}, {settings.image_size} px, batch {settings.batch_size}, {settings.epochs} epochs: mean loss over "
          "the last epoch\n\n| run | loss |\n|---|---|")
    for name, mean in means.items():
        print(f"| {name} | {mean:.5f} |")
    print(f"\ntwo fp32 seeds differ by {allowed:.5f}")
    for name, difference in verdicts.items():
        print(f"{name}: {difference:.5f}, {'no more' if difference <= allowed else 'MORE'} than that")
    if settings.json:
        with open(settings.json, "w") as file:
            json.dump({"options": vars(settings), "means": means, "losses": runs, "allowed": allowed,
                       "differences": verdicts}, file, indent=1)
    return 0 if all(difference <= allowed for difference in verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
