"""Cases for COCO's evaluation, and the comparison of coco_dump's numbers with a reference's.

coco_cases.py --tool COCO_DUMP --work FOLDER --reference rules|pycocotools [--random N] [--coco ANNOTATIONS...]

Equal to 1e-9: both compute in double, and only means are summed in another order (a few 1e-16 each). Scores and boxes
are of few different values in part of the cases, so that ties and overlaps that lie on a threshold are common."""

import argparse
import contextlib
import io
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def random_case(seed):
    r = random.Random(seed)
    coarse = r.random() < 0.5  # boxes and scores on a grid: ties, exact overlaps

    def box():
        side = r.choice([12, 40, 120, 300])
        one = [r.uniform(0, 400), r.uniform(0, 400), r.uniform(2, side), r.uniform(2, side)]
        return [float(10 * round(v / 10) + (10 if i > 1 else 0)) for i, v in enumerate(one)] if coarse else one

    def moved(one):
        if r.random() < 0.2:
            return list(one)
        by = r.choice([0.02, 0.1, 0.3])
        new = [one[0] + r.uniform(-by, by) * one[2], one[1] + r.uniform(-by, by) * one[3],
               one[2] * (1 + r.uniform(-by, by)), one[3] * (1 + r.uniform(-by, by))]
        return [float(round(v)) for v in new] if coarse else new

    categories = r.randint(1, 4)
    images = {}
    numbers = r.sample(range(1, 1000000), r.randint(1, 6))
    for number in numbers:
        truths = []
        for _ in range(r.choice([0, 1, 2, 5, 12])):
            b = box()
            truths.append({"category": r.randrange(categories), "box": b, "crowd": r.random() < 0.15,
                           "area": b[2] * b[3] * (r.uniform(0.3, 1) if r.random() < 0.5 else 1)})
        detections = []
        for t in truths:
            for _ in range(r.choice([0, 1, 1, 1, 2, 3])):
                category = t["category"] if r.random() < 0.9 else r.randrange(categories)
                detections.append({"category": category, "box": moved(t["box"])})
        for _ in range(r.choice([0, 0, 1, 3, 10, 130])):
            detections.append({"category": r.randrange(categories), "box": box()})
        for d in detections:
            d["score"] = r.randint(0, 10) / 10 if coarse else r.random()
        r.shuffle(detections)
        images[number] = {"truths": truths, "detections": detections}
    return {"categories": categories, "images": images}


def case_of_coco(path, seed):
    """The truth of an annotation file with noisy detections."""
    r = random.Random(seed)
    with open(path) as file:
        data = json.load(file)
    slots = {c["id"]: i for i, c in enumerate(sorted(data["categories"], key=lambda c: c["id"]))}
    images = {i["id"]: {"truths": [], "detections": []} for i in data["images"]}
    for a in data["annotations"]:
        image = images[a["image_id"]]
        image["truths"].append({"category": slots[a["category_id"]], "box": a["bbox"], "area": a["area"],
                                "crowd": bool(a["iscrowd"])})
        for _ in range(r.choice([0, 1, 1, 1, 2, 4])):
            x, y, w, h = a["bbox"]
            noise = [r.gauss(0, 0.07) for _ in range(4)]
            category = slots[a["category_id"]] if r.random() < 0.9 else r.randrange(len(slots))
            image["detections"].append({"category": category, "score": r.random(),
                                        "box": [x + noise[0] * w, y + noise[1] * h, w * (1 + noise[2]), h * (1 + noise[3])]})
    assert any(t["crowd"] for i in images.values() for t in i["truths"]), "no crowds in " + path
    return {"categories": len(slots), "images": images}


def write_cases(path, cases):
    with open(path, "w") as file:
        for case in cases:
            print("case", case["categories"], file=file)
            for number, image in case["images"].items():
                print("image", number, file=file)
                for t in image["truths"]:
                    print("t", t["category"], *map(repr, t["box"]), repr(t["area"]), int(t["crowd"]), file=file)
                for d in image["detections"]:
                    print("d", d["category"], *map(repr, d["box"]), repr(d["score"]), file=file)


def by_pycocotools(case):
    import numpy
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth = COCO()
    annotations = [{"id": i + 1, "image_id": number, "category_id": t["category"], "bbox": t["box"], "area": t["area"],
                    "iscrowd": int(t["crowd"])}
                   for i, (number, t) in enumerate((n, t) for n, i in case["images"].items() for t in i["truths"])]
    truth.dataset = {"images": [{"id": n} for n in case["images"]], "annotations": annotations,
                     "categories": [{"id": c} for c in range(case["categories"])]}
    found = [{"image_id": n, "category_id": d["category"], "bbox": d["box"], "score": d["score"]}
             for n, i in case["images"].items() for d in i["detections"]]
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        if found:
            detected = truth.loadRes(found)
        else:  # loadRes does not take an empty list
            detected = COCO()
            detected.dataset = dict(truth.dataset, annotations=[])
            detected.createIndex()
        evaluation = COCOeval(truth, detected, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    numbers = list(evaluation.stats)

    def mean(values):
        values = values[values > -1]
        return float(numpy.mean(values)) if values.size else -1.0

    for category in range(case["categories"]):
        precision = evaluation.eval["precision"][:, :, category, 0, 2]
        numbers += [mean(precision), mean(precision[0]), mean(precision[5]),
                    mean(evaluation.eval["recall"][:, category, 0, 2])]
    return numbers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--reference", required=True, choices=["rules", "pycocotools"])
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--coco", nargs="*", default=[])
    arguments = parser.parse_args()
    cases = [random_case(seed) for seed in range(arguments.random)]
    cases += [case_of_coco(path, seed) for path in arguments.coco for seed in range(3)]
    path = os.path.join(arguments.work, "cases.txt")
    write_cases(path, cases)
    lines = {threads: subprocess.run([arguments.tool, path, str(threads)], check=True, capture_output=True,
                                     text=True).stdout for threads in (1, 3)}
    assert lines[1] == lines[3], "the number of threads changes the result"
    ours = [list(map(float, line.split())) for line in lines[1].splitlines()]
    assert len(ours) == len(cases)
    if arguments.reference == "rules":
        from coco_rules import evaluate as reference
    else:
        reference = by_pycocotools
    worst, between = 0.0, 0
    for i, case in enumerate(cases):
        theirs = reference(case)
        assert len(theirs) == len(ours[i])
        between += 0 < theirs[0] < 1
        difference = max(abs(a - b) for a, b in zip(ours[i], theirs))
        worst = max(worst, difference)
        if not difference < 1e-9:
            sys.exit(f"case {i} differs by {difference}:\n{ours[i]}\n{theirs}")
    assert between > len(cases) // 2, "most cases are trivial"
    print(f"{len(cases)} cases, largest difference {worst:.2g}")


main()
