#!/usr/bin/env python3
"""Compare fake quantisation with PyTorch: the operation itself, then 20 training steps of a quantised resnet18.

    quantize.py --tools FOLDER --work FOLDER

The operation: torch.fake_quantize_per_tensor_affine with the same scale and zero point, forward and backward, on values
of which some lie beyond the range. PyTorch multiplies by the inverse of the scale where Convoy divides, so that a value
within a rounding (2^-22 of its level) of the middle between two levels may go either way, by one level; there, and only
there, a difference of one level is allowed. All other values agree to a rounding of the product, gradients exactly.

The network: PyTorch's resnet18 with quantizers written down here once more from doc/training.md, from the same weights
and images. It runs in float64 (the truth: only what decides about a level is done in float32, as the definition says) and
in float32. Where a value lies next to the middle between two levels, the last bit decides about a level, which is a
thousand times what rounding does to float32; which values those are is another draw for each implementation. So

    ratio = rms(Convoy - float64) / rms(PyTorch float32 - float64)      must be at most 4

for the losses of the steps together, for all ranges, and for all weights after them, and not for single tensors, where two
draws of a few levels may well be further apart. The asymmetric run (4 steps) rounds from the first step on, and there the
test must tell quantised from plain training: in the first block, before thousands of values could fall the other way, the
ranges of a plain run must be 10 times as far from the truth as Convoy's. The symmetric one (20 steps) waits three steps, in which it must be plain training.
The folded run (4 steps) is that of TensorFlow's rewrite: its correction factors are written down here as its source has them, and
PyTorch differentiates them.

Exit: 0 equal, 1 not, 77 PyTorch is missing (1 where CI=true or CONVOY_CI is set: there it must be installed).
"""
import argparse
import os
import subprocess
import sys

import step  # ends with 77 (or 1) where PyTorch is missing

import numpy as np
import torch
from torch.nn import functional as F

LIMIT = 4.0
SIZE, BATCH, CYCLE, CLASSES = 64, 4, 2, 10
STEPS, DELAY = {"asymmetric": 4, "symmetric": 20, "folded-asymmetric": 4}, {"symmetric": 3}
LEARNING_RATE, MOMENTUM, DECAY = 0.01, 0.9, 1e-4

# What follows rounded values, but before thousands of them could fall the other way.
EARLY = ("layer1.0.conv2.input_quantizer", "layer1.0.bn2.output_quantizer", "layer1.1.conv1.input_quantizer")


# ---- the definition once more ----

def widened(low, high, symmetric, weights):
    low, high = min(low, 0.0), max(high, 0.0)
    if symmetric:
        below = 127 if weights else 128
        low, high = min(low, -high * below / 127), max(high, -low * 127 / below)
    return low, high


def levels_of(observed, symmetric, weights):
    """scale, lowest level, highest level, zero point; in float32."""
    low, high = np.float32(observed[0]), np.float32(observed[1])
    if symmetric:
        return high / np.float32(127), -127 if weights else -128, 127, 0
    least = 1 if weights else 0
    scale = (high - low) / np.float32(255 - least)
    zero = np.float32(least) - low / scale
    zero = int(min(max(np.floor(zero + np.float32(0.5)), least), 255))
    return scale, least - zero, 255 - zero, zero


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, low, high, weights, folds):
        exact = x.float() / float(scale)
        level = exact.round()
        seen = exact if folds else level  # TensorFlow cuts gradients at the ends of the range, of weights too
        ctx.save_for_backward(torch.ones_like(level, dtype=torch.bool) if weights and not folds else
                              (seen >= low) & (seen <= high))
        return (level.clamp(low, high) * float(scale)).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0], None, None, None, None, None


class Quantizers:
    """One for each name; `observed` like the state in the file."""

    def __init__(self, form, delay):
        self.symmetric, self.folds, self.delay, self.observed = form == "symmetric", "folded" in form, delay, {}

    def __call__(self, name, x, weights=False):
        old = self.observed.setdefault(name, np.zeros(3, np.float32))
        low, high = widened(float(x.min()), float(x.max()), self.symmetric, weights)
        if not weights:
            share = (1 - 0.999) / (1 - 0.999 ** (float(old[2]) + 1))
            low, high = (float(o) + (v - float(o)) * share if share < 1 else v for o, v in zip(old, (low, high)))
        new = self.observed[name] = np.array([low, high, old[2] + 1], np.float32)
        if new[2] <= self.delay:
            return x
        scale, lowest, highest, _ = levels_of(new, self.symmetric, weights)
        return Round.apply(x, scale, lowest, highest, weights, self.folds)


def forward(model, x, q):
    """resnet18 with quantizers."""
    name_of = {module: name for name, module in model.named_modules()}

    def folded(module, bn, x):  # fold_batch_norms.py of TensorFlow's contrib.quantize, with FoldFusedBatchNormGrad
        y = F.conv2d(x, module.weight, None, module.stride, module.padding)
        mean, variance, count = y.mean((0, 2, 3)), y.var((0, 2, 3), unbiased=False), y.numel() // y.shape[1]
        multiplier = bn.weight * torch.rsqrt(variance + bn.eps)
        bias = bn.bias - mean * multiplier
        scale = torch.rsqrt(bn.running_var + bn.eps) / torch.rsqrt(variance + bn.eps)
        weight = (scale[:, None, None, None] * module.weight) * multiplier[:, None, None, None]
        weight = q(name_of[module] + ".weight_quantizer", weight, True)
        y = F.conv2d(x, weight, None, module.stride, module.padding)
        y = y * (1 / scale)[None, :, None, None] + bias[None, :, None, None]
        with torch.no_grad():
            bn.running_mean.lerp_(mean, bn.momentum)
            bn.running_var.lerp_(variance * (count / (count - 1)), bn.momentum)
        return y

    def conv(module, bn, x):  # x is quantised already
        if q.folds:
            return folded(module, bn, x)
        weight = q(name_of[module] + ".weight_quantizer", module.weight, True)
        return bn(F.conv2d(x, weight, None, module.stride, module.padding))

    x = q("conv1.input_quantizer", x)
    x = F.max_pool2d(F.relu(conv(model.conv1, model.bn1, x)), 3, 2, 1)
    blocks = [block for stage in (model.layer1, model.layer2, model.layer3, model.layer4) for block in stage]
    for block in blocks:
        name = name_of[block]
        x = q(name + ".conv1.input_quantizer", x)
        y = q(name + ".conv2.input_quantizer", F.relu(conv(block.conv1, block.bn1, x)))
        y = q(name + ".bn2.output_quantizer", conv(block.conv2, block.bn2, y))
        if block.downsample is not None:
            x = conv(block.downsample[0], block.downsample[1], x)
            x = q(name + ".downsample.1.output_quantizer", x)
        x = F.relu(y + x)
    x = q(name_of[blocks[-1]] + ".output_quantizer", x).mean((2, 3))
    weight = q("fc.weight_quantizer", model.fc.weight, True)
    return F.linear(q("fc.input_quantizer", x), weight, model.fc.bias)


# ---- the operation ----

def check_operation(arguments, symmetric, device):
    random = np.random.RandomState(1 + symmetric)
    observed = np.array([-2.5 * 128 / 127 if symmetric else -1.7, 2.5, 1], np.float32)
    x = np.concatenate([random.randn(200001) * 1.5, np.linspace(-4, 4, 8001)]).astype(np.float32)
    dy = random.randn(len(x)).astype(np.float32)
    given, result = (os.path.join(arguments.work, name) for name in ("op-in.safetensors", "op-out.safetensors"))
    step.write_safetensors(given, {"x": x, "dy": dy, "observed": observed})
    subprocess.run([os.path.join(arguments.tools, "quantize_dump"), given, result, device,
                    "symmetric" if symmetric else "asymmetric"], check=True)
    ours = step.read_safetensors(result)
    scale, low, high, zero = levels_of(observed, symmetric, False)
    leaf = torch.from_numpy(x).requires_grad_()
    theirs = torch.fake_quantize_per_tensor_affine(leaf, float(scale), zero, low + zero, high + zero)
    theirs.backward(torch.from_numpy(dy))
    level = x.astype(np.float64) / np.float64(scale)
    near = np.abs(level - np.floor(level) - 0.5) <= np.maximum(np.abs(level), 1) * 2.0 ** -22
    off = np.abs(ours["y"] - theirs.detach().numpy())
    product = np.maximum(np.abs(ours["y"]), scale) * 2.0 ** -22
    wrong = (off > product) & ~(near & (off <= scale + product))
    wrong_gradient = (ours["dx"] != leaf.grad.numpy()) & ~near
    cut = int((ours["dx"] == 0).sum())
    print("operation, %s, %s: %d values, %d cut, %d beside a middle, %d wrong, %d gradients wrong" %
          ("symmetric" if symmetric else "asymmetric", device, len(x), cut, int(near.sum()), int(wrong.sum()),
           int(wrong_gradient.sum())), flush=True)
    assert 1000 < cut < len(x) // 4 and near.sum() < len(x) // 1000
    return not wrong.any() and not wrong_gradient.any()


# ---- the network ----

def run_torch(model, images, labels, dtype, steps, q):
    """losses and what is left: weights and ranges."""
    model = model.to(dtype).train()
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM)
    losses, first = [], None
    for s in range(steps):
        part = slice(s % CYCLE * BATCH, (s % CYCLE + 1) * BATCH)
        logits = forward(model, step.normalise(images[part], dtype), q)
        loss = F.cross_entropy(logits, labels[part])
        first = dict(q.observed) if s == 0 else first
        optimizer.zero_grad()
        loss.backward()
        for name, parameter in model.named_parameters():
            if ".bn" not in name and not name.startswith("bn") and "bn" not in name:
                parameter.grad.add_(parameter.detach(), alpha=DECAY)
        optimizer.step()
        losses.append(float(loss))
    found = {"loss": np.array(losses), "weights": np.concatenate([p.detach().double().numpy().ravel() for p in
                                                                  model.parameters()])}
    found["ranges"] = np.concatenate([q.observed[name][:2] for name in sorted(q.observed)]).astype(np.float64)
    found["early"] = np.concatenate([first[name][:2] for name in EARLY]).astype(np.float64)
    return found


def start(seed):
    settings = argparse.Namespace(arch="resnet18", classes=CLASSES, squeeze_width=None, padding="torch", seed=seed)
    model = step.random_weights(settings).float()
    random = np.random.RandomState(seed)
    images = torch.stack([step.random_image(SIZE, random) for _ in range(BATCH * CYCLE)])
    return model, images, torch.from_numpy(random.randint(0, CLASSES, BATCH * CYCLE))


def copy_of(model):
    settings = argparse.Namespace(arch="resnet18", classes=CLASSES, squeeze_width=None, padding="torch")
    other = step.make_model(settings)
    other.load_state_dict(model.state_dict())
    return other


def run_convoy(arguments, model, images, labels, form, names):
    weights, data, out = (os.path.join(arguments.work, name + ".safetensors") for name in ("weights", "data", "out"))
    tensors = {name: value.numpy() for name, value in model.state_dict().items()}
    tensors.update({name + ".observed": np.zeros(3, np.float32) for name in names})
    step.write_safetensors(weights, tensors)
    step.write_safetensors(data, {"images": images.permute(0, 2, 3, 1).contiguous().numpy(),
                                  "labels": labels.numpy().astype(np.int32)})
    subprocess.run([os.path.join(arguments.tools, "step_dump"), weights, data, out, "--batch", str(BATCH), "--cycle",
                    str(CYCLE), "--steps", str(STEPS[form]), "--lr", str(LEARNING_RATE), "--quantize", form,
                    "--quant-delay", str(DELAY.get(form, 0))], check=True)
    ours = step.read_safetensors(out)
    parameters = np.concatenate([ours["last." + name].astype(np.float64).ravel() for name, _ in
                                 model.named_parameters()])
    ranges = np.concatenate([ours["last_state." + name + ".observed"][:2] for name in sorted(names)])
    return {"loss": ours["loss"].astype(np.float64), "weights": parameters, "ranges": ranges.astype(np.float64),
            "early": np.concatenate([ours["state." + name + ".observed"][:2] for name in EARLY]).astype(np.float64)}


def rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


def check_network(arguments, form):
    model, images, labels = start(3)
    steps, delay = STEPS[form], DELAY.get(form, 0)
    truth_q, float_q = (Quantizers(form, delay) for _ in range(2))
    truth = run_torch(copy_of(model), images, labels, torch.float64, steps, truth_q)
    theirs = run_torch(copy_of(model), images, labels, torch.float32, steps, float_q)
    plain = run_torch(copy_of(model), images, labels, torch.float32, max(delay, 1), Quantizers(form, steps))
    ours = run_convoy(arguments, model, images, labels, form, sorted(truth_q.observed))
    good = True
    for what in ("loss", "ranges", "weights"):
        own, other = rms(ours[what] - truth[what]), rms(theirs[what] - truth[what])
        good &= own <= LIMIT * other
        print("%-17s %-8s Convoy %.2e, PyTorch float32 %.2e, ratio %.2f" % (form, what, own, other, own / other),
              flush=True)
    # Before the delay is over it is plain training; without one the first logits are rounded already.
    if delay:
        apart = float(np.abs(ours["loss"][:delay] - plain["loss"][:delay]).max())
        print("           until the delay is over losses are %.1e from those of plain training" % apart)
        return good and apart <= 2e-5  # float32's rounding, amplified by a few steps: measured at 1e-6
    apart = rms(plain["early"] - truth["early"]) / rms(ours["early"] - truth["early"])
    print("           early ranges of plain training are %.0f times as far" % apart)
    return good and apart >= 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", required=True)
    parser.add_argument("--work", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    good = True
    for symmetric in (False, True):
        for device in ("cpu", "ref"):
            good &= check_operation(arguments, symmetric, device)
    for form in STEPS:
        good &= check_network(arguments, form)
    print("equal" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
