"""SSD320 in PyTorch as people write it: targets, losses, boxes out of predictions, and a training on COCO's JSON the way
`convoy train` does it. The network and the formulas are those of tests/parity (ssd320.py, detection.py). Used by peer.py
and detector.py.

Of an image's predictions only the 1,000 best pairs of box and class go into torchvision's suppression: Convoy looks at all."""
import contextlib
import io
import json
import math
import os
import random
import sys
import time

import numpy as np
import torch
import torchvision

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/parity"))
import detection
import ssd320

MOST_CANDIDATES, OVERLAP, MOST_OBJECTS = 1000, 0.6, 100
DEVIATIONS = (58.395, 57.12, 57.375)  # of ImageNet: classifiers divide by them


# PyTorch 1.13 has no gradient of ReLU6 in bf16 on CPUs.
OLD = int(torch.__version__.split(".")[0]) < 2


def activate(norm, x, cap, shortcut=None):
    """As people write it: in place, and without the sum where there is no shortcut."""
    z = norm(x)
    if not cap:
        return torch.relu_(z if shortcut is None else z + shortcut)
    return z.clamp_(0, cap) if OLD and z.dtype == torch.bfloat16 else torch.nn.functional.relu6(z, inplace=True)


# ---- boxes and losses ----

class Boxes:
    """What anchors of one image size mean."""

    def __init__(self, size):
        self.corners = detection.anchors_of(size, size).astype(np.float32)
        anchors = torch.from_numpy(self.corners)
        self.base = anchors[:, 2:] - anchors[:, :2]
        self.centre = anchors[:, :2] + self.base / 2

    def targets(self, boxes, labels):
        """Of a batch: lists of (R, 4) shares of the image and of (R,) labels from 1. Classes (N, A), codes (N, A, 4) and the
        number of matched anchors."""
        classes, codes = (np.stack(part) for part in zip(*(detection.match(b, l, self.corners)
                                                           for b, l in zip(boxes, labels))))
        return (torch.from_numpy(classes.astype(np.int64)), torch.from_numpy(codes.astype(np.float32)),
                max(int((classes > 0).sum()), 1))

    def found(self, codes, logits):
        """For each image: boxes (R, 4) as shares of it, scores (R,), labels (R,) from 1; the best first."""
        classes = logits.shape[-1] - 1
        middle = codes[..., :2] / 10 * self.base + self.centre
        half = torch.exp(codes[..., 2:] / 5) * self.base / 2
        boxes = torch.cat([middle - half, middle + half], -1).clamp_(0, 1)
        result = []
        for box, logit in zip(boxes, logits[..., 1:]):
            scores, index = logit.flatten().topk(min(MOST_CANDIDATES, logit.numel()))
            kind, rows = index % classes, index // classes
            scores = scores.sigmoid()
            kept = torchvision.ops.batched_nms(box[rows], scores, kind, OVERLAP)[:MOST_OBJECTS]
            result.append((box[rows[kept]].numpy(), scores[kept].numpy(), kind[kept].numpy() + 1))
        return result


def losses(codes, logits, targets):
    classes, wanted, positives = targets
    return (detection.focal_loss(logits, classes, positives) +
            detection.smooth_l1_loss(codes, wanted, classes, positives))


def optimizer_of(model, rate):
    """L2 on the kernels of convolutions alone."""
    return torch.optim.SGD([{"params": ssd320.kernels(model), "weight_decay": ssd320.REGULARIZATION},
                            {"params": [p for p in model.parameters() if p.dim() != 4]}], lr=rate, momentum=0.9)


def predict(network, images, precision):
    """Codes and logits in fp32 of (N, 3, H, W) images of 0 to 255."""
    mean = torch.tensor(ssd320.MEAN).view(1, 3, 1, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        codes, logits = network(images.sub(mean), activate)
    return codes.float(), logits.float()


# ---- a training ----

class StridesOfClassifiers(ssd320.Backbone):
    """The backbone with the strides and the padding that torchvision's and Convoy's classifiers were trained with."""

    def __init__(self):
        super().__init__()
        self.pool = torch.nn.MaxPool2d(3, 2, 1)
        for layer in (self.layer2, self.layer3, self.layer4):
            layer[0].conv2.stride = layer[0].downsample[0].stride = (2, 2)

    def forward(self, x, activate):
        x, ends = self.pool(activate(self.bn1, self.conv1(x), ssd320.CAP)), []
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            for unit in layer:
                x = unit(x, activate)
            ends.append(x)
        return ends[1:]


def make_model(classes, seed, classifier=None):
    """Initialised as the reference program does; `classifier`: a state dictionary of a ResNet-50 for the backbone."""
    torch.manual_seed(seed)
    model = ssd320.Network(classes)
    if classifier is not None:
        model.backbone = StridesOfClassifiers()
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Conv2d):
            if name.startswith("head."):
                torch.nn.init.normal_(module.weight, std=0.01)
            else:
                torch.nn.init.trunc_normal_(module.weight, std=0.03, a=-0.06, b=0.06)
            if module.bias is not None:
                torch.nn.init.zeros_(module.bias)
    torch.nn.init.constant_(model.head.class_predictor.bias, -4.6)
    if classifier is not None:
        state = {name: value.float() if value.is_floating_point() else value for name, value in classifier.items()
                 if not name.startswith("fc.")}
        state["conv1.weight"] = state["conv1.weight"] / torch.tensor(DEVIATIONS).view(1, 3, 1, 1)
        model.backbone.load_state_dict(state)
    return model.to(memory_format=torch.channels_last)


def rate_at(step, settings):
    """Linear from 0.43332 of the rate, then half a cosine (reference: doc/training.md)."""
    base, warmup, steps = settings.lr, settings.warmup_steps, settings.steps
    if step < warmup:
        return base * (0.43332 + step * (1 - 0.43332) / warmup)
    return 0.5 * base * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def resized(image, size):
    """TensorFlow's legacy bilinear resize of (H, W, 3) floats."""
    for axis in (1, 0):
        extent = image.shape[axis]
        place = np.arange(size, dtype=np.float32) * np.float32(extent / size)
        low = np.floor(place).astype(int)
        part = (place - low).reshape((1, -1, 1) if axis else (-1, 1, 1))
        first = image.take(low, axis)
        image = first + (image.take(np.minimum(low + 1, extent - 1), axis) - first) * part
    return image.astype(np.float32)


def random_window(width, height, dice):
    """A crop of 3/4 to all of the area, width by height of 3/4 to 3."""
    for _ in range(100):
        ratio = dice.uniform(0.75, 3)
        area = dice.uniform(0.75, 1) * width * height
        h = round(math.sqrt(area / ratio))
        w = round(h * ratio)
        if w <= width and h <= height:
            return dice.randint(0, width - w), dice.randint(0, height - h), w, h
    return 0, 0, width, height


class Photographs:
    """Images of a folder with COCO's JSON, kept as bytes."""

    def __init__(self, images, annotations):
        with open(annotations) as file:
            data = json.load(file)
        self.path, self.rows = annotations, sorted(data["images"], key=lambda row: row["id"])
        self.ids = sorted(category["id"] for category in data["categories"])
        slots = {number: slot for slot, number in enumerate(self.ids, 1)}
        self.objects = {row["id"]: ([], []) for row in self.rows}
        for entry in data["annotations"]:
            if not entry.get("iscrowd", 0):
                x, y, w, h = entry["bbox"]
                boxes, labels = self.objects[entry["image_id"]]
                boxes.append((y, x, y + h, x + w))
                labels.append(slots[entry["category_id"]])
        self.files = [open(os.path.join(images, row["file_name"]), "rb").read() for row in self.rows]

    def sample(self, index, size, dice=None):
        """(size, size, 3) floats, boxes as shares, labels; augmented where there are dice."""
        from PIL import Image

        row = self.rows[index]
        pixels = np.asarray(Image.open(io.BytesIO(self.files[index])).convert("RGB"), np.float32)
        height, width = pixels.shape[:2]
        boxes = np.array(self.objects[row["id"]][0], np.float64).reshape(-1, 4)
        labels = np.array(self.objects[row["id"]][1], np.int32)
        if dice:
            if dice.random() > 0.5:
                pixels = pixels[:, ::-1]
                boxes = np.stack([boxes[:, 0], width - boxes[:, 3], boxes[:, 2], width - boxes[:, 1]], 1)
            x, y, width, height = random_window(width, height, dice)
            pixels = pixels[y:y + height, x:x + width]
            boxes = boxes - [y, x, y, x]
        boxes = (boxes / [height, width, height, width]).clip(0, 1).astype(np.float32)
        kept = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
        return resized(pixels, size), boxes[kept], labels[kept]


def batch_of(samples):
    images = torch.from_numpy(np.stack([image for image, _, _ in samples])).permute(0, 3, 1, 2)
    return images, [boxes for _, boxes, _ in samples], [labels for _, _, labels in samples]


def evaluate(model, data, anchors, settings):
    """COCO's twelve numbers by pycocotools."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    answers = []
    model.eval()
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        for first in range(0, len(data.rows), settings.batch_size):
            some = range(first, min(first + settings.batch_size, len(data.rows)))
            images, _, _ = batch_of([data.sample(i, settings.image_size) for i in some])
            for i, found in zip(some, anchors.found(*predict(model, images, settings.precision))):
                row = data.rows[i]
                for (y0, x0, y1, x1), score, label in zip(*found):
                    answers.append({"image_id": row["id"], "category_id": data.ids[label - 1], "score": float(score),
                                    "bbox": [float(x0 * row["width"]), float(y0 * row["height"]),
                                             float((x1 - x0) * row["width"]), float((y1 - y0) * row["height"])]})
        truth = COCO(data.path)
        truth.dataset.setdefault("info", {})  # newer versions want it
        judge = COCOeval(truth, truth.loadRes(answers), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return [float(value) for value in judge.stats]


def train(settings, training, validation, classifier=None):
    """[{"step", "loss" (mean since the last row), "ap", "ap50"}], one for each settings.every steps."""
    torch.set_num_threads(settings.threads)
    dice = random.Random(settings.seed)
    anchors, model = Boxes(settings.image_size), make_model(len(training.ids), settings.seed, classifier)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = settings.bn_momentum
    optimizer = optimizer_of(model, settings.lr)
    order, sums, rows, begin = [], [], [], time.monotonic()
    for step in range(settings.steps):
        if len(order) < settings.batch_size:
            order = dice.sample(range(len(training.rows)), len(training.rows))
        some, order = order[:settings.batch_size], order[settings.batch_size:]
        images, boxes, labels = batch_of([training.sample(i, settings.image_size, dice) for i in some])
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, settings)
        model.train()
        optimizer.zero_grad(set_to_none=True)
        loss = losses(*predict(model, images.contiguous(memory_format=torch.channels_last), settings.precision),
                      anchors.targets(boxes, labels))
        loss.backward()
        optimizer.step()
        sums.append(loss.item())
        if (step + 1) % settings.every == 0 or step + 1 == settings.steps:
            stats = evaluate(model, validation, anchors, settings)
            rows.append({"step": step + 1, "loss": sum(sums) / len(sums), "ap": stats[0], "ap50": stats[1]})
            sums = []
            print(f"  pytorch step {step + 1}: loss {rows[-1]['loss']:.4f}, AP50 {100 * stats[1]:.2f} %, AP "
                  f"{100 * stats[0]:.2f} %, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return rows
