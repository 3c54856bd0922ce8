#!/usr/bin/env python3
"""The detector's ops against the formulas of the papers and of TensorFlow's detection library, written down again with
numpy and PyTorch (gradients by autograd), and with --tensorflow against TensorFlow's own suppression.

  detection.py --tool DUMP --work FOLDER [--tensorflow]
"""
import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

f32 = np.float32


def anchors_of(height, width):
    """Levels 3 to 7, 4 strides, aspects 1, 2, 1/2 (outer), scales 1 and sqrt 2 (inner), in double."""
    levels = []
    for level in range(3, 8):
        stride = 2 ** level
        places = [np.arange(-(-extent // stride)) * stride + (stride / 2 if extent % stride == 0 else 0)
                  for extent in (height, width)]
        y, x = np.meshgrid(*places, indexing="ij")
        sides = np.array([(s / np.sqrt(r), s * np.sqrt(r)) for r in (1, 2, 0.5) for s in (1, np.sqrt(2))]) * 4 * stride
        centre = np.stack([y, x], -1).reshape(-1, 1, 2)
        corners = np.concatenate([centre - sides / 2, centre + sides / 2], -1).reshape(-1, 4)
        levels.append(corners / [height, width, height, width])
    return np.concatenate(levels)


def overlaps(boxes, anchors):
    """Intersection over union in single precision, (R, A)."""
    area = lambda b: (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    low = np.maximum(boxes[:, None, :2], anchors[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], anchors[None, :, 2:])
    sides = np.maximum(high - low, f32(0))
    both = sides[..., 0] * sides[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(both == 0, f32(0), both / (area(boxes)[:, None] + area(anchors)[None] - both))


def match(boxes, labels, anchors):
    """The class of each anchor and its codes, in double."""
    classes, targets = np.zeros(len(anchors), np.int32), np.zeros((len(anchors), 4))
    kept = [r for r in range(len(boxes)) if labels[r] > 0 and not np.isnan(boxes[r]).any()]
    if not kept:
        return classes, targets
    table = overlaps(boxes[kept], anchors)
    row = np.where(table.max(0) >= 0.5, table.argmax(0), -1)
    for r in reversed(range(len(kept))):
        row[table[r].argmax()] = r
    for a in np.flatnonzero(row >= 0):
        box, anchor = boxes[kept[row[a]]].astype(float), anchors[a].astype(float)
        side, base = box[2:] - box[:2], anchor[2:] - anchor[:2]
        centre, middle = box[:2] + side / 2, anchor[:2] + base / 2
        with np.errstate(invalid="ignore"):
            targets[a] = np.concatenate([10 * (centre - middle) / (base + 1e-8),
                                         5 * np.log((side + 1e-8) / (base + 1e-8))])
        classes[a] = labels[kept[row[a]]]
    return classes, targets


def focal_loss(x, kind, positives):
    """Of logits (N, A, 1 + K) and classes (N, A), in the type of the logits. What is wrong of the probability is a
    sigmoid too: 1 - p would lose the digits of a small one."""
    target = torch.nn.functional.one_hot(kind, x.shape[-1]).to(x.dtype)
    target[..., 0] = 0
    entropy = torch.nn.functional.binary_cross_entropy_with_logits(x, target, reduction="none")
    wrong = torch.sigmoid(torch.where(target > 0, -x, x))
    return (wrong ** 2 * (0.25 * target + 0.75 * (1 - target)) * entropy).sum() / positives


def smooth_l1_loss(c, targets, kind, positives):
    """Of codes and targets (N, A, 4); where there is no target, there is no error."""
    wanted = torch.where(torch.isnan(targets), c.detach(), targets)
    each = torch.nn.functional.smooth_l1_loss(c, wanted, reduction="none")
    return (each * (kind > 0)[..., None]).sum() / (4 * positives)


def losses(logits, codes, classes, targets, positives):
    """Both losses and their gradients, in double."""
    x = torch.tensor(logits.astype(float), requires_grad=True)
    c = torch.tensor(codes.astype(float), requires_grad=True)
    kind = torch.tensor(classes.astype(np.int64))
    focal = focal_loss(x, kind, positives)
    smooth = smooth_l1_loss(c, torch.tensor(targets), kind, positives)
    (focal + smooth).backward()
    return float(focal), float(smooth), x.grad.numpy(), c.grad.numpy()


def suppress(boxes, scores, limit, tensorflow):
    """Indices that greedy suppression keeps of one class, best first."""
    if tensorflow:
        return tensorflow.image.non_max_suppression(boxes, scores, 100, f32(0.6), f32(1e-8)).numpy()
    ordered = np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if scores[i] <= f32(1e-8) or len(kept) == limit:
            break
        if not kept or not (overlaps(ordered[i:i + 1], ordered[kept])[0] > f32(0.6)).any():
            kept.append(i)
    return np.array(kept, int)


def detect(codes, logits, anchors, tensorflow):
    code, anchor = codes.astype(float), anchors.astype(float)
    base = anchor[:, 2:] - anchor[:, :2]
    centre = code[:, :2] / 10 * base + anchor[:, :2] + base / 2
    half = np.exp(code[:, 2:] / 5) * base / 2
    boxes = np.concatenate([centre - half, centre + half], 1).astype(f32)
    scores = (1 / (1 + np.exp(-logits.astype(float)))).astype(f32)
    found = []
    for column in range(1, logits.shape[1]):
        kept = suppress(boxes, scores[:, column], 100, tensorflow)
        found += [(scores[i, column], column - 1, np.clip(boxes[i], 0, 1)) for i in kept]
    found.sort(key=lambda item: -item[0])
    return [item for item in found if (item[2][2] - item[2][0]) * (item[2][3] - item[2][1]) > 0][:100]


def draw(rng, n, rows, classes, anchors, scene):
    side = np.exp(rng.uniform(np.log(0.02), 0, (n, rows, 2)))
    low = rng.uniform(0, 1.1 - side)
    boxes = np.concatenate([low, low + side], -1).astype(f32)
    labels = rng.integers(1, classes + 1, (n, rows)).astype(np.int32)
    labels[:, rows * 2 // 3:] = 0
    boxes[labels == 0] = 0
    boxes[0, 1] = np.nan
    boxes[-1, 0] = boxes[-1, 2]
    codes = rng.normal(0, 0.6, (n, len(anchors), 4))
    spread = {"random": (-4.6, 0.3), "wide": (-5, 3)}[scene]
    return boxes, labels, codes.astype(f32), rng.normal(*spread, (n, len(anchors), classes + 1)).astype(f32)


def close(name, got, wanted, bound):
    """`bound`: relative to the largest number."""
    wanted = np.asarray(wanted, float)
    same = np.isnan(got) == np.isnan(wanted)
    error = np.nanmax(np.abs(np.where(np.isnan(got), 0, got) - np.nan_to_num(wanted)), initial=0)
    largest = np.nanmax(np.abs(wanted), initial=1e-30)
    if not same.all() or not error <= bound * largest:
        sys.exit(f"{name}: off by {error:.3g} of {largest:.3g} (allowed {bound:.3g})")
    return error / largest


def check(options, tensorflow, n, height, width, classes, rows, scene):
    rng = np.random.default_rng([n, height, width, classes, rows])
    read = lambda name, kind, shape: np.fromfile(options.work / name, kind).reshape(shape)
    exact = anchors_of(height, width)
    boxes, labels, codes, logits = draw(rng, n, rows, classes, exact, scene)
    for name, values in (("boxes", boxes), ("labels", labels), ("codes", codes), ("logits", logits)):
        values.tofile(options.work / name)
    subprocess.run([options.tool, str(options.work), *map(str, (n, height, width, classes, rows))], check=True)
    count = len(exact)
    anchors = read("anchors", f32, (count, 4))
    close("anchors", anchors, exact, 2e-7)  # two roundings of a float
    got = read("classes", np.int32, (n, count))
    matched = [match(boxes[i], labels[i], anchors) for i in range(n)]
    wanted, targets = np.stack([m[0] for m in matched]), np.stack([m[1] for m in matched])
    if not (got == wanted).all():
        sys.exit(f"{(got != wanted).sum()} anchors have another class")
    # Computed in double and rounded once.
    close("targets", read("targets", f32, (n, count, 4)), targets, 1e-7)
    positives = float(read("positives", f32, ())[()])
    assert positives == max((wanted > 0).sum(), 1)
    focal, smooth, dlogits, dcodes = losses(logits, codes, wanted, targets, positives)
    # Terms to 8 units in the last place (6e-8) each, sums in double.
    close("focal loss", read("focal", f32, ()), focal, 5e-7)
    close("smooth L1 loss", read("smooth_l1", f32, ()), smooth, 5e-7)
    close("gradient of logits", read("dlogits", f32, logits.shape), dlogits, 7e-7)
    close("gradient of codes", read("dcodes", f32, codes.shape), dcodes, 5e-7)
    for i in range(n):
        found = detect(codes[i], logits[i], anchors, tensorflow)
        assert read("found_count", np.int32, (n,))[i] == len(found), f"image {i}: another number of boxes"
        got = read("found_classes", np.int32, (n, 100))[i, :len(found)]
        assert got.tolist() == [f[1] for f in found], f"image {i}: other classes"
        # The same double arithmetic, but for another exponential: a rounding.
        close("scores", read("found_scores", f32, (n, 100))[i, :len(found)], [f[0] for f in found], 1.2e-7)
        close("boxes", read("found_boxes", f32, (n, 100, 4))[i, :len(found)], [f[2] for f in found], 1.2e-7)
    print(f"{n} images of {height} x {width}, {classes} classes, {scene}: {int(positives)} anchors matched, "
          f"losses {focal:.6g} and {smooth:.6g}, {len(found)} boxes in the last image: the same")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--tensorflow", action="store_true")
    options = parser.parse_args()
    tensorflow = None
    if options.tensorflow:
        import tensorflow
    cases = [(2, 320, 320, 90, 100, "random"), (2, 320, 320, 20, 30, "wide"), (3, 96, 200, 7, 12, "wide"),
             (1, 300, 512, 3, 5, "random")]
    for case in cases:
        check(options, tensorflow, *case)


if __name__ == "__main__":
    main()
