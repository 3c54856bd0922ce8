#!/usr/bin/env python3
"""SSD320 trained on few photographs, beside PyTorch: AP50 on the validation images as the training continues.

    bench/detector.py DIR [--classifier FILE] [--sides convoy,pytorch] [--steps 600] [--lr 0.01] [--json FILE]

DIR holds boxes in COCO's JSON: annotations/instances_train.json and instances_val.json beside train/ and val/. Each side trains
from random weights and, with --classifier (weights of a ResNet-50 in Convoy's form), from a backbone with those. Same network,
initialisation, schedule, losses, weight decay and augmentation; each side has its own random numbers and evaluation
(PyTorch's is pycocotools). PyTorch's program is torch_detector.py.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))


def run_convoy(settings, classifier, folder):
    """Rows like torch_detector.train's."""
    words = [settings.convoy, "-q", "train", settings.data, "--arch", "ssd320", "--workspace", folder]
    options = {"image-size": settings.image_size, "batch-size": settings.batch_size, "steps": settings.steps,
               "warmup-steps": settings.warmup_steps, "lr": settings.lr, "warmup-lr": 0.43332 * settings.lr,
               "end-lr": 0, "lr-schedule": "cosine", "warmup": 0, "momentum": 0.9, "weight-decay": 4e-4,
               "bn-momentum": settings.bn_momentum, "seed": settings.seed, "threads": settings.threads, "precision": settings.precision}
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    if classifier:
        words += ["--pretrained-weights", classifier]
    if not os.path.exists(os.path.join(folder, "model_best.safetensors")):
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "metrics.csv")) as file:
        return [{"epoch": int(row["epoch"]), "loss": float(row["train.loss"]),
                 **{name: float(row["val." + name]) / 100 for name in ("ap", "ap50") if row["val." + name]}}
                for row in csv.DictReader(file)]


def state_of(settings, classifier, folder):
    import torch

    if not classifier:
        return None
    path = os.path.join(folder, "classifier.pth")
    subprocess.run([settings.convoy, "-q", "convert", classifier, path], check=True)
    return torch.load(path, map_location="cpu")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", metavar="DIR")
    parser.add_argument("--classifier", metavar="FILE")
    parser.add_argument("--sides", default="convoy,pytorch")
    parser.add_argument("--starts", default="random,classifier")
    parser.add_argument("--image-size", type=int, default=320)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--warmup-steps", type=int, default=50)
    parser.add_argument("--every", type=int, default=72, help="steps between PyTorch's validations")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--bn-momentum", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--convoy", default=os.path.join(FOLDER, "../build/convoy"))
    parser.add_argument("--work", help="folder of Convoy's runs; complete ones are not run again")
    parser.add_argument("--json", help="write the rows here as well")
    return parser.parse_args()


def main():
    settings = parse()
    work = settings.work or tempfile.mkdtemp(prefix="detector-")
    os.makedirs(work, exist_ok=True)
    starts = [name for name in settings.starts.split(",") if name == "random" or settings.classifier]
    results = {}
    for side in settings.sides.split(","):
        for start in starts:
            classifier = settings.classifier if start == "classifier" else None
            begin = time.monotonic()
            if side == "convoy":
                rows = run_convoy(settings, classifier, os.path.join(work, start))
            else:
                sys.path.insert(0, FOLDER)
                import torch_detector
                training, validation = (torch_detector.Photographs(
                    os.path.join(settings.data, part),
                    os.path.join(settings.data, f"annotations/instances_{part}.json")) for part in ("train", "val"))
                rows = torch_detector.train(settings, training, validation, state_of(settings, classifier, work))
            results[f"{side}, {start}"] = {"rows": rows, "seconds": time.monotonic() - begin}
            if settings.json:
                with open(settings.json, "w") as file:
                    json.dump({"options": vars(settings), "results": results}, file, indent=1)
    print("| side, start | seconds | AP50 in the end | best AP50 | best AP | AP50 as it went |\n|---|---|---|---|---|---|")
    for name, result in results.items():
        curve = [100 * row["ap50"] for row in result["rows"] if "ap50" in row]
        best = max(100 * row["ap"] for row in result["rows"] if "ap" in row)
        print(f"| {name} | {result['seconds']:.0f} | {curve[-1]:.2f} | {max(curve):.2f} | {best:.2f} | "
              f"{' '.join(f'{value:.1f}' for value in curve)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
