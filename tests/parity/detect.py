"""What `convoy detect --threshold 0 --format coco` prints of a network of a few steps, judged by coco_rules.py, against
the validation that the training itself made: the same boxes in the same floats, so that only the nine digits of the
table differ (1e-8 of a number up to 100). `convoy evaluate` gives the same numbers."""

import argparse
import csv
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from coco_rules import evaluate

NAMES = "ap ap50 ap75 ap_small ap_medium ap_large ar1 ar10 ar100 ar_small ar_medium ar_large".split()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--convoy", required=True)
    parser.add_argument("--work", required=True)
    arguments = parser.parse_args()
    os.chdir(arguments.work)

    def convoy(*words):
        return subprocess.run([arguments.convoy, "-q", *words], check=True, stdout=subprocess.PIPE).stdout

    convoy("dataset", "shapes", "data", "--boxes", "--train-images", "4", "--val-images", "12", "--image-size", "120",
           "--classes", "3")
    convoy("train", "data", "--arch", "ssd320", "--image-size", "64", "--batch-size", "4", "--steps", "3", "--warmup-steps",
           "1", "--workspace", "run")
    found = json.loads(convoy("detect", "data/val", "--weights", "run/checkpoint.safetensors", "--threshold", "0",
                              "--format", "coco"))
    truth = json.load(open("data/annotations/instances_val.json"))
    slots = {c["id"]: i for i, c in enumerate(sorted(truth["categories"], key=lambda c: c["id"]))}
    numbers = {i["id"]: int(os.path.splitext(os.path.basename(i["file_name"]))[0]) for i in truth["images"]}
    images = {n: {"truths": [], "detections": []} for n in numbers.values()}
    for a in truth["annotations"]:
        images[numbers[a["image_id"]]]["truths"].append(
            {"category": slots[a["category_id"]], "box": a["bbox"], "area": a["area"], "crowd": bool(a["iscrowd"])})
    for d in found:
        images[d["image_id"]]["detections"].append(
            {"category": slots[d["category_id"]], "box": d["bbox"], "score": d["score"]})
    assert len(found) == 100 * len(images), "a network that knows nothing finds a hundred objects everywhere"
    expected = evaluate({"categories": len(slots), "images": images})[:12]
    last = list(csv.DictReader(open("run/metrics.csv")))[-1]
    stats = json.loads(convoy("evaluate", "data", "--weights", "run/checkpoint.safetensors", "--format", "json"))["stats"]
    assert max(abs(a - b) for a, b in zip(stats, expected)) < 1e-9, (stats, expected) # both in double
    by_box = json.loads(convoy("evaluate", "data", "--weights", "run/checkpoint.safetensors", "--format", "json",
                               "--area-rule", "box"))["stats"]
    # The areas decide nothing here; the boxes have gone through floats.
    assert all(abs(by_box[i] - stats[i]) < 0.01 for i in (0, 1, 2, 6, 7, 8)), (by_box, stats)
    nothing = 0
    for name, value in zip(NAMES, expected):
        ours = last["val." + name]
        if value < 0:
            assert ours in ("", "nan"), (name, ours)
            continue
        nothing += value == 0
        print("%-10s %s %.10g" % (name, ours, 100 * value))
        if not abs(float(ours) - 100 * value) <= 1e-8 * max(1, 100 * value):
            sys.exit("%s differs" % name)
    assert nothing < 8, "nothing is right: the comparison says little"


main()
