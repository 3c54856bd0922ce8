#!/usr/bin/env python3
"""One training step of SSD320 and its predictions against PyTorch: codes and logits with running statistics and with
those of the batch, the three losses, the gradients of all parameters, the new running statistics and weights.

The network is written down here once more, from the description of the published one: its backbone as TF-slim builds it,
where a block runs at the stride it begins with and the next one reads every second pixel of its end. The rule is that of
step.py, tensor by tensor: Convoy's error against PyTorch's float64 is at most 4 times that of PyTorch's float32; a loss
is one number, and PyTorch's error of it the rms over two paths, NCHW and channels-last.

What would make this a matter of luck is kept away, as in step.py: each batch norm's bias moves into the widest gap of its
channel's activations around zero and, before ReLU6, around 6; the pooling windows have no near ties; and the boxes
are drawn again until no anchor is near the threshold of a match or near to being another's best.

So that everything counts: the scales of the batch norms let a part of the activations reach 6; one convolution is so small
that the epsilon of the backbone's batch norms is as large as the variance of what it makes; running statistics are not
those of the batch; three boxes are larger than the image, so that the coarsest levels have something to find; one image has
no box at all. 64 pixels: the finer of the two strided convolutions of the pyramid is padded on one side only, the other
on both, and the anchors of the coarsest level are not in the middle of their location.

Exit: 0 equal, 1 not, 77 PyTorch is missing (1 where CI=true or CONVOY_CI is set: there it must be installed).
"""
import argparse
import sys
import time

import step  # ends with 77 (or 1) where PyTorch is missing
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from detection import anchors_of, focal_loss, match, overlaps, smooth_l1_loss
from networks import SameConv2d, SameMaxPool2d

MEAN = (123.68, 116.779, 103.939)
REGULARIZATION = 4e-4
ROWS = 100   # for the boxes of an image
CAP = 6.0    # of ReLU6
# Scale and shift of the batch norms before ReLU6 (one in 20 activations on either side of its slope), of a unit's last
# one and of its shortcut's. With half of the activations at 0 each layer would enlarge the rounding of those before it by
# a fifth: after 60 layers it would decide on which side of a kink activations lie.
CAPPED, ADDED, SHORTCUT = (1.8, 3.0), (0.25, 0.1), (1.0, 1.0)
REACH = 0.5  # of a bias: some channels have few values
MATCH_MARGIN = 1e-4  # of intersections over union: a thousand times their rounding


# ---- the network ----

def plain(norm, x, cap, shortcut=0):
    """What follows a convolution: batch norm and ReLU6, or (cap None) the sum with the shortcut and ReLU."""
    z = norm(x) + shortcut
    return F.relu6(z) if cap else F.relu(z)


def backbone_norm(channels):
    return nn.BatchNorm2d(channels, eps=1.001e-5, momentum=0.003)


def head_norm(channels=256):
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.003)


class Unit(nn.Module):
    def __init__(self, inputs, mid, project):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, mid, 1, bias=False), backbone_norm(mid)
        self.conv2, self.bn2 = nn.Conv2d(mid, mid, 3, padding=1, bias=False), backbone_norm(mid)
        self.conv3, self.bn3 = nn.Conv2d(mid, 4 * mid, 1, bias=False), backbone_norm(4 * mid)
        if project:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, 4 * mid, 1, bias=False), backbone_norm(4 * mid))

    def forward(self, x, activate):
        shortcut = self.downsample(x) if hasattr(self, "downsample") else x
        y = activate(self.bn1, self.conv1(x), CAP)
        y = activate(self.bn2, self.conv2(y), CAP)
        return activate(self.bn3, self.conv3(y), None, shortcut)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), backbone_norm(64)
        self.pool = SameMaxPool2d(3, 2)
        for index, count in enumerate((3, 4, 6, 3)):
            mid = 64 << index
            units = [Unit((4 * mid if i else 2 * mid) if index or i else 64, mid, i == 0) for i in range(count)]
            setattr(self, f"layer{index + 1}", nn.ModuleList(units))

    def forward(self, x, activate):
        x, ends = self.pool(activate(self.bn1, self.conv1(x), CAP)), []
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            for unit in layer:
                x = unit(x, activate)
            ends.append(x)
            x = x[:, :, ::2, ::2]
        return ends[1:]


class Smooth(nn.Module):
    def __init__(self, stride):
        super().__init__()
        self.conv, self.bn = SameConv2d(256, 256, 3, stride, bias=False), head_norm()

    def forward(self, x, activate):
        return activate(self.bn, self.conv(x), CAP)


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.lateral3, self.lateral4, self.lateral5 = (nn.Conv2d(n, 256, 1) for n in (512, 1024, 2048))
        self.smooth3, self.smooth4, self.down6, self.down7 = Smooth(1), Smooth(1), Smooth(2), Smooth(2)

    def forward(self, ends, activate):
        twice = lambda x: x.repeat_interleave(2, 2).repeat_interleave(2, 3)
        t5 = self.lateral5(ends[2])
        t4 = twice(t5) + self.lateral4(ends[1])
        t3 = twice(t4) + self.lateral3(ends[0])
        p6 = self.down6(t5, activate)
        return [self.smooth3(t3, activate), self.smooth4(t4, activate), t5, p6, self.down7(p6, activate)]


class TowerLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(256, 256, 3, padding=1, bias=False), nn.ModuleList(head_norm() for _ in range(5))


class Head(nn.Module):
    def __init__(self, classes):
        super().__init__()
        for what, columns in (("box", 4), ("class", classes + 1)):
            setattr(self, what + "_tower", nn.ModuleList(TowerLayer() for _ in range(4)))
            setattr(self, what + "_predictor", nn.Conv2d(256, 6 * columns, 3, padding=1))

    def predict(self, tower, predictor, levels, columns, activate):
        rows = []
        for level, x in enumerate(levels):
            for layer in tower:
                x = activate(layer.bn[level], layer.conv(x), CAP)
            rows.append(predictor(x).permute(0, 2, 3, 1).reshape(len(x), -1, columns))
        return torch.cat(rows, 1)

    def forward(self, levels, activate):
        return [self.predict(getattr(self, what + "_tower"), getattr(self, what + "_predictor"), levels,
                             getattr(self, what + "_predictor").out_channels // 6, activate)
                for what in ("box", "class")]


class Network(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone, self.fpn, self.head = Backbone(), Pyramid(), Head(classes)

    def forward(self, x, activate=plain):
        return self.head(self.fpn(self.backbone(x, activate), activate), activate)


def kernels(model):
    return [p for p in model.parameters() if p.dim() == 4]


# ---- the start: weights, images, boxes ----

def random_weights(settings):
    torch.manual_seed(settings.seed)
    model = Network(settings.classes)
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.weight, std=0.01 if name.startswith("head.") else 0.03)
            if module.bias is not None:
                nn.init.uniform_(module.bias, -0.1, 0.1)
        elif isinstance(module, nn.BatchNorm2d):
            scale, shift = ADDED if name.endswith("bn3") else SHORTCUT if name.endswith("downsample.1") else CAPPED
            nn.init.uniform_(module.weight, 0.8 * scale, 1.2 * scale)
            nn.init.uniform_(module.bias, shift - 0.2, shift + 0.2)
    with torch.no_grad():
        model.head.class_predictor.bias -= 4.6
    return model.double()


def normalise(images, dtype):
    """The bytes are made to be no whole numbers, but exact in float32."""
    return images.to(dtype) * (255 / 256) - torch.tensor(MEAN, dtype=dtype).view(1, 3, 1, 1)


def random_boxes(settings, anchors):
    """boxes (N, 100, 4), labels (N, 100); see above."""
    random = np.random.RandomState(settings.seed)
    for _ in range(100):
        boxes = np.zeros((settings.batch, ROWS, 4), np.float32)
        labels = np.zeros((settings.batch, ROWS), np.int32)
        for n in range(settings.batch - 1):  # the last image has none
            count = 5 + 2 * n
            side = np.exp(random.uniform(np.log(0.3), 0, (count, 2)))
            low = random.uniform(0, 1 - side)
            boxes[n, :count] = np.concatenate([low, low + side], 1)
            labels[n, :count] = random.randint(1, settings.classes + 1, count)
        # As large as the anchors of the three coarsest levels.
        pixels = np.array([[-20, -15, 115, 110], [-125, -110, 133, 150], [-230, -260, 280, 250]])
        boxes[0, :3] = (pixels + random.uniform(-9, 9, (3, 4))) / settings.size
        tables = [overlaps(boxes[n][labels[n] > 0], anchors) for n in range(settings.batch - 1)]
        best = [np.sort(table, axis) for table in tables for axis in (0, 1)]
        rows = [np.abs(table.max(0) - 0.5).min() for table in tables]
        # The two best boxes of an anchor, where there is a match at all, and the two best anchors of a box.
        rows += [np.where(b[-1] > 0.45, b[-1] - b[-2], 1).min() for b in best[0::2]]
        rows += [(b[:, -1] - b[:, -2]).min() for b in best[1::2]]
        if min(rows) > MATCH_MARGIN:
            return boxes, labels
    sys.exit("the boxes keep near ties")


@torch.no_grad()
def prepare(model, images):
    """Moves the kinks away for these images. Leaves running statistics near theirs. Returns the margins and the share of
    activations that reach 6."""
    margins, capped = [], []
    small = model.backbone.layer3[1]

    def activate(norm, x, cap, shortcut=0):
        if norm is small.bn2:  # a power of two, so that the weights stay floats
            factor = 2.0 ** torch.round(torch.log2(norm.eps / x.var((0, 2, 3)).mean()) / 2)
            small.conv2.weight.mul_(factor)
            x = x * factor
        z = norm(x) + shortcut
        z = z + step.leave_kinks(norm.bias, torch.cat([z, z - cap]) if cap else z, REACH)
        margins.append(float(torch.min(z.abs().min(), (z - CAP).abs().min()) if cap else z.abs().min()))
        if cap:
            capped.append(float((z > CAP).double().mean()))
        if norm is model.backbone.bn1:  # where two reach 6, neither has a gradient
            margins.append(float(step.pool_distances(z, "same").min()))
        return F.relu6(z) if cap else F.relu(z)

    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    model.train()(images, activate)
    for norm in norms:
        norm.momentum = 0.003
        norm.running_mean.add_(norm.running_var.sqrt() * (torch.rand_like(norm.running_mean) - 0.5) * 0.4)
        norm.running_var.mul_(torch.rand_like(norm.running_var) * 0.6 + 0.7)
        norm.num_batches_tracked.zero_()
    return min(margins), float(np.mean(capped))


# ---- the runs ----

def forward(settings, state, images, targets, dtype, channels_last=False):
    """(network, its input, predictions and losses of a training pass)"""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    classes, codes_wanted, positives = targets
    model = Network(settings.classes)
    model.load_state_dict(state)
    model = model.to(dtype).to(memory_format=layout)
    x = normalise(images, dtype).contiguous(memory_format=layout)
    codes, logits = model.train()(x)
    classification = focal_loss(logits, classes, positives)
    localization = smooth_l1_loss(codes, codes_wanted.to(dtype), classes, positives)
    regularization = REGULARIZATION / 2 * sum(w.detach().square().sum() for w in kernels(model))
    losses = {"localization_loss": localization, "classification_loss": classification,
              "regularization_loss": regularization, "loss": localization + classification + regularization}
    return model, x, {"codes_training": codes, "logits_training": logits,
                      **{name: value.reshape(1) for name, value in losses.items()}}


def arrays(tensors):
    return {name: value.detach().double().contiguous().numpy() for name, value in tensors.items()}


def run_losses(*arguments):
    """What the training pass gives."""
    with torch.no_grad():
        return arrays(forward(*arguments, channels_last=True)[2])


def run_torch(settings, state, images, targets, dtype):
    """Everything that step_dump writes, as float64 arrays."""
    model, x, out = forward(settings, state, images, targets, dtype)
    (out["localization_loss"] + out["classification_loss"]).backward()
    out.update({f"gradient.{n}": p.grad.clone() for n, p in model.named_parameters()})
    out.update({f"state.{n}": b.clone() for n, b in model.named_buffers() if "running" in n})
    torch.optim.SGD([{"params": kernels(model), "weight_decay": settings.weight_decay},
                     {"params": [p for p in model.parameters() if p.dim() != 4]}], lr=settings.lr,
                    momentum=settings.momentum).step()
    for when in ("first", "last"):  # of one step
        out.update({f"{when}.{n}": p.clone() for n, p in model.named_parameters()})
    out = arrays(out)
    model.load_state_dict(state)
    with torch.no_grad():
        out["codes_inference"], out["logits_inference"] = (y.double().numpy() for y in model.eval()(x))
    return out


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tool", default="build/tests/step_dump", help="the step_dump program")
    parser.add_argument("--work", default=".", help="folder for the files passed between the two")
    parser.add_argument("--keep", action="store_true", help="keep these files")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--classes", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1, help="of weights, images and boxes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.set_defaults(arch="ssd320", padding="same", batches=1, cycle=1, steps=1, lr=0.02, momentum=0.9,
                        weight_decay=REGULARIZATION, label_smoothing=0, squeeze_width=None, freeze="", head_lr=0)
    return parser.parse_args()


def main():
    settings = parse()
    torch.set_num_threads(settings.threads)
    clock = time.monotonic()
    model = random_weights(settings)
    images, _ = step.random_images(model.backbone.conv1, settings, normalise)
    margin, capped = prepare(model, normalise(images, torch.float64))
    state = {k: v.float() if v.is_floating_point() else v for k, v in model.state_dict().items()}
    anchors = anchors_of(settings.size, settings.size).astype(np.float32)
    boxes, labels = random_boxes(settings, anchors)
    classes, codes = (np.stack(part) for part in zip(*(match(b, l, anchors) for b, l in zip(boxes, labels))))
    levels = np.cumsum([6 * (-(-settings.size // 2 ** level)) ** 2 for level in range(3, 8)])
    found = [int((part > 0).sum()) for part in np.split(classes, levels[:-1], axis=1)]
    print(f"distance to a kink {margin:.1e}; {100 * capped:.1f} % of activations reach 6; "
          f"anchors matched, by level: {found}; {time.monotonic() - clock:.1f} s")
    if margin < step.KINK_MARGIN or capped < 0.02 or not all(found):
        sys.exit("the start is not what it should be")
    targets = torch.from_numpy(classes.astype(np.int64)), torch.from_numpy(codes), max(sum(found), 1)

    def timed(name, function):
        begin = time.monotonic()
        result = function()
        print(f"{name}: {time.monotonic() - begin:.1f} s, loss {result['loss'][0]:.6f}", flush=True)
        return result

    run = settings, state, images, targets
    exact = timed("PyTorch float64", lambda: run_torch(*run, torch.float64))
    single = timed("PyTorch float32", lambda: run_torch(*run, torch.float32))
    second = {**single, **timed("PyTorch float32, channels-last", lambda: run_losses(*run, torch.float32))}
    rival = timed(f"Convoy {settings.device}", lambda: step.run_tool(settings, state, {
        "images": (images.float() * (255 / 256)).permute(0, 2, 3, 1).contiguous().numpy(),
        "boxes": boxes, "labels": labels}))
    over = step.show(step.compare(exact, single, second, rival))
    print(f"ssd320, {settings.size} pixels: {'equal' if over == 0 else f'{over} tensors differ'}; "
          f"{time.monotonic() - clock:.0f} s")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
