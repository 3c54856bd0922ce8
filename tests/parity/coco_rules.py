"""COCO's evaluation of boxes in numpy, written from its description in doc/detection.md alone: a second opinion for
machines that have no pycocotools. evaluate() takes what coco_cases.py makes and returns the numbers of coco_dump."""

import numpy

THRESHOLDS = [0.5 + i * ((0.95 - 0.5) / 9) for i in range(9)] + [0.95]
RECALLS = [i * 0.01 for i in range(100)] + [1.0]
AREAS = [(0, 1e10), (0, 1024), (1024, 9216), (9216, 1e10)]
EPSILON = 2.220446049250313e-16


def overlaps(detections, truths):
    """(detections, truths), rows of boxes x, y, width, height; over the detection's area for crowds."""
    d = numpy.array([row["box"] for row in detections]).reshape(-1, 1, 4)
    t = numpy.array([row["box"] for row in truths]).reshape(1, -1, 4)
    crowd = numpy.array([row["crowd"] for row in truths], bool).reshape(1, -1)
    width = numpy.minimum(d[..., 0] + d[..., 2], t[..., 0] + t[..., 2]) - numpy.maximum(d[..., 0], t[..., 0])
    height = numpy.minimum(d[..., 1] + d[..., 3], t[..., 1] + t[..., 3]) - numpy.maximum(d[..., 1], t[..., 1])
    meet = (width > 0) & (height > 0)
    common = numpy.where(meet, width * height, 0)
    own = d[..., 2] * d[..., 3]
    union = numpy.where(crowd, own, own + t[..., 2] * t[..., 3] - common)
    return numpy.where(meet, common / numpy.where(meet, union, 1), 0)


def match(truths, detections, area):
    """One image and category: flags of the truths that do not count, and of each threshold and detection whether it is
    matched and whether it does not count."""
    ignored = [t["crowd"] or not area[0] <= t["area"] <= area[1] for t in truths]
    order = sorted(range(len(truths)), key=lambda i: ignored[i])
    table = overlaps(detections, truths)
    matched = numpy.zeros((len(THRESHOLDS), len(detections)), bool)
    skipped = numpy.zeros_like(matched)
    for k, threshold in enumerate(THRESHOLDS):
        taken = set()
        for d, detection in enumerate(detections):
            best, chosen = min(threshold, 1 - 1e-10), None
            for t in order:
                if t in taken and not truths[t]["crowd"]:
                    continue
                if chosen is not None and not ignored[chosen] and ignored[t]:
                    break
                if table[d, t] >= best:
                    best, chosen = table[d, t], t
            if chosen is not None:
                taken.add(chosen)
                matched[k, d], skipped[k, d] = True, ignored[chosen]
            else:
                skipped[k, d] = not area[0] <= detection["box"][2] * detection["box"][3] <= area[1]
    return ignored, matched, skipped


def accumulate(images, most):
    """Precision (thresholds, recalls) and recall (thresholds) of one category and area; None: nothing to find."""
    count = sum(len(ignored) - sum(ignored) for ignored, *_ in images)
    if count == 0:
        return None
    scores = numpy.concatenate([s[:most] for *_, s in images])
    order = numpy.argsort(-scores, kind="stable")
    matched = numpy.concatenate([m[:, :most] for _, m, _, _ in images], axis=1)[:, order]
    skipped = numpy.concatenate([s[:, :most] for _, _, s, _ in images], axis=1)[:, order]
    right = numpy.cumsum(matched & ~skipped, axis=1).astype(float)
    wrong = numpy.cumsum(~matched & ~skipped, axis=1).astype(float)
    precision = numpy.zeros((len(THRESHOLDS), len(RECALLS)))
    recall = numpy.zeros(len(THRESHOLDS))
    for k in range(len(THRESHOLDS)):
        reached = right[k] / count
        exact = numpy.maximum.accumulate((right[k] / (wrong[k] + right[k] + EPSILON))[::-1])[::-1]
        at = numpy.searchsorted(reached, RECALLS, side="left")
        inside = at < len(reached)
        precision[k, inside] = exact[at[inside]]
        recall[k] = reached[-1] if len(reached) else 0
    return precision, recall


def evaluate(case):
    """case: {"categories": K, "images": {id: {"truths": [...], "detections": [...]}}}"""
    results = {}
    for category in range(case["categories"]):
        for a, area in enumerate(AREAS):
            images = []
            for number in sorted(case["images"]):
                truths = [t for t in case["images"][number]["truths"] if t["category"] == category]
                detections = [d for d in case["images"][number]["detections"] if d["category"] == category]
                detections = sorted(detections, key=lambda d: -d["score"])[:100]
                if truths or detections:
                    scores = numpy.array([d["score"] for d in detections])
                    images.append((*match(truths, detections, area), scores))
            for most in (1, 10, 100):
                results[category, a, most] = accumulate(images, most)

    def mean(part, area, most, threshold=None):
        values = [results[c, area, most] for c in range(case["categories"])]
        values = [v[part] if threshold is None else v[part][threshold] for v in values if v is not None]
        return float(numpy.mean(values)) if values else -1.0

    numbers = [mean(0, 0, 100), mean(0, 0, 100, 0), mean(0, 0, 100, 5)]
    numbers += [mean(0, area, 100) for area in (1, 2, 3)]
    numbers += [mean(1, 0, most) for most in (1, 10, 100)]
    numbers += [mean(1, area, 100) for area in (1, 2, 3)]
    for category in range(case["categories"]):
        one = results[category, 0, 100]
        numbers += [-1.0] * 4 if one is None else [one[0].mean(), one[0][0].mean(), one[0][5].mean(), one[1].mean()]
    return numbers
