#!/usr/bin/env python3
"""Compare the rules of a training with PyTorch over 100 optimizer steps: optimizers, learning rates, weight decay,
accumulated gradients, the moving average, the loss scale, mixup, label smoothing and class weights.

tests/tools/rules_dump.c trains a small network without kinks (sigmoids instead of ReLU) by Convoy's trainer; here the
same is done with PyTorch's modules and optimizers, twice: in float64 (the truth) and in float32. The rules around the
optimizers are written from their formulas. Then for each kind of tensor (weights, momentum, losses, ...)

    ratio = rms(Convoy - float64) / rms(PyTorch float32 - float64)      must be at most 4,

each tensor in units of its own rms. All tensors of a kind count together: over a few thousand numbers the rms is
stable, while that of a tensor of eight is luck. 4, because two equally careful float32 programs differ in the order of
their sums; an error of a rule (a wrong factor, a step too late) is thousands of times larger. PyTorch's error is not
taken below the rounding of storing the exact answer. Learning rates and loss scales are compared number by number.

Exit: 0 equal, 1 not, 77 PyTorch is missing (1 where CI=true or CONVOY_CI is set: there it must be installed).
"""
import argparse
import math
import os
import subprocess
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

try:
    import numpy as np
    import torch
    from torch.nn import functional as F

    from step import MEAN, STD, read_safetensors, write_safetensors
except ImportError as error:
    print(f"PyTorch and torchvision are not installed: {error}")
    sys.exit(1 if os.environ.get("CI") == "true" or os.environ.get("CONVOY_CI") else 77)

LIMIT = 4.0  # see above
STEPS = 110  # one more hundred than the good steps after which torch's loss scale doubles, and some that are left out
BATCH, CLASSES, IMAGES = 8, 10, 48
F32_MAX = float(np.finfo(np.float32).max)

CASES = {
    "sgd, cosine by epoch": dict(momentum=0.875, weight_decay=1e-3, lr=0.05, schedule="cosine", warmup=8),
    "sgd with Nesterov, cosine by step, all batch norms exempt, 3 batches a step": dict(
        momentum=0.9, nesterov=1, weight_decay=1e-3, decay_rule="exact", lr=0.05, end_lr=1e-3, schedule="cosine",
        unit="step", warmup=4, steps_per_epoch=2, epochs=55, accumulate=3),
    "sgd, steps by epoch, average": dict(momentum=0.9, lr=0.05, schedule="step", average=0.97),
    "sgd, steps by step, everything decays": dict(momentum=0.9, weight_decay=1e-3, decay_rule="all", lr=0.05,
                                                  schedule="step", unit="step"),
    "rmsprop, linear, average, 2 batches a step": dict(
        optimizer="rmsprop", momentum=0.9, alpha=0.9, eps=0.01, weight_decay=1e-4, decay_rule="weights", lr=2e-3,
        schedule="linear", warmup=5, epochs=120, average=0.9999, accumulate=2),
    "rmsprop without momentum, exponential": dict(optimizer="rmsprop", alpha=0.99, eps=1e-3, lr=1e-3,
                                                  schedule="exponential", lr_decay_epochs=3, warmup=2, epochs=110),
    "sgd, torch's loss scale, 2 batches a step, average": dict(momentum=0.9, lr=5e-4, schedule="linear", unit="step",
                                                               epochs=200, loss_scale=2.0 ** 126, accumulate=2,
                                                               average=0.9),
    "rmsprop, apex's loss scale": dict(optimizer="rmsprop", momentum=0.5, alpha=0.9, eps=0.01, lr=1e-3,
                                       schedule="exponential", lr_decay=0.9, unit="step", steps_per_epoch=4, epochs=30,
                                       loss_scale=2.0 ** 125, loss_scale_rule="apex"),
    "mixup and label smoothing": dict(momentum=0.9, lr=0.05, mixup=0.4, label_smoothing=0.1),
    "TensorFlow's mixup and label smoothing, 2 batches a step": dict(
        momentum=0.9, lr=0.05, mixup=1.0, mixup_rule="tensorflow", label_smoothing=0.1, accumulate=2),
    "class weights and label smoothing": dict(momentum=0.9, lr=0.05, class_weights=1, label_smoothing=0.1),
    "mixup, class weights and label smoothing": dict(momentum=0.9, lr=0.05, mixup=0.4, class_weights=1,
                                                     label_smoothing=0.1),
}
DEFAULTS = dict(optimizer="sgd", momentum=0.0, nesterov=0, alpha=0.9, eps=1e-3, weight_decay=0.0, decay_rule="name",
                lr=0.1, end_lr=0.0, schedule="step", unit="epoch", warmup=0, epochs=STEPS, steps_per_epoch=1,
                lr_decay=0.0, lr_decay_epochs=1, accumulate=1, average=0.0, loss_scale=0.0, loss_scale_rule="torch", label_smoothing=0.0,
                mixup=0.0, mixup_rule="torch", class_weights=0)
CLASS_WEIGHTS = np.exp2(np.linspace(-2, 2, CLASSES)).astype(np.float32)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(8, 16, 3, 2, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(16)
        self.downsample = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 1, 2, bias=False), torch.nn.BatchNorm2d(16))

    def forward(self, x):
        return torch.sigmoid(self.bn1(self.conv1(x)) + self.downsample(x))


class Network(torch.nn.Module):
    """That of rules_dump.c."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 8, 3, 4, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(8)
        self.layer1 = Layer()
        self.fc = torch.nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.fc(self.layer1(torch.sigmoid(self.bn1(self.conv1(x)))).mean((2, 3)))


# ---- the rules, from their formulas ----

def learning_rate(case, step):
    base, warmup, epochs, each = case["lr"], case["warmup"], case["epochs"], case["steps_per_epoch"]
    epoch = step // each

    def exponential(after):
        factor = case["lr_decay"] or 0.001 ** (1 / ((epochs - warmup) // case["lr_decay_epochs"]))
        return base * factor ** math.floor(after / case["lr_decay_epochs"])

    def cosine(progress):
        return case["end_lr"] + 0.5 * (1 + math.cos(math.pi * progress)) * (base - case["end_lr"])

    if case["unit"] == "epoch":
        after, length = epoch - warmup, epochs - warmup
        if epoch < warmup:
            return base * (epoch + 1) / warmup
        return {"step": lambda: base * 0.1 ** sum(fall <= epoch for fall in (30, 60, 80)),
                "linear": lambda: base * (1 - after / length),
                "cosine": lambda: cosine(after / length),
                "exponential": lambda: exponential(after)}[case["schedule"]]()
    if step < warmup * each:
        return base * step / (warmup * each)
    return {"step": lambda: base * 0.1 ** sum(step > fall * each for fall in (30, 60, 80, 90)),
            "linear": lambda: base * (1 - step / (epochs * each)),
            "cosine": lambda: cosine(step / (epochs * each)),
            "exponential": lambda: exponential(step / each - warmup)}[case["schedule"]]()


def is_exempt(name, parameter, rule):
    return {"name": "bn" in name, "exact": "bn" in name or "downsample.1" in name, "weights": parameter.dim() < 2,
            "all": False}[rule]


def make_optimizer(model, case):
    groups = [{"params": [p for n, p in model.named_parameters() if is_exempt(n, p, case["decay_rule"]) == exempt],
               "weight_decay": 0.0 if exempt else case["weight_decay"]} for exempt in (True, False)]
    groups = [group for group in groups if group["params"]]
    if case["optimizer"] == "rmsprop":
        return torch.optim.RMSprop(groups, lr=1, alpha=case["alpha"], eps=case["eps"], momentum=case["momentum"])
    return torch.optim.SGD(groups, lr=1, momentum=case["momentum"], nesterov=case["nesterov"] > 0)


class LossScale:
    """GradScaler's rule, or APEX's. PyTorch's gradients are never scaled here: a power of two changes no digit. Which
    steps overflow is Convoy's word: that is right where the scaled gradient is too large for float32, and where it comes
    near, since sums on the way to it may be larger."""

    NEAR = 2.0 ** 10

    def __init__(self, case, skipped):
        self.scale, self.good, self.skipped = case["loss_scale"], 0, 0
        self.interval, self.largest = (100, math.inf) if case["loss_scale_rule"] == "torch" else (2000, 2.0 ** 24)
        self.stops = np.diff(skipped, prepend=0) > 0

    def step(self, optimizer, gradients, number):
        if self.scale:
            largest = self.scale * max(float(g.abs().max()) for g in gradients)
            if (not self.stops[number] and largest > F32_MAX) or (self.stops[number] and largest < F32_MAX / self.NEAR):
                sys.exit(f"step {number} was {'left out' if self.stops[number] else 'taken'} at {largest:.3g}")
        if self.scale and self.stops[number]:
            self.scale, self.good, self.skipped = self.scale / 2, 0, self.skipped + 1
            return
        optimizer.step()
        self.good += 1
        if self.scale and self.good == self.interval:
            self.scale, self.good = min(2 * self.scale, self.largest), 0


class Mixup:
    """The loss of a batch whose samples Convoy has mixed, as users of PyTorch write it: by both labels where the batch
    shares one coefficient, else by probabilities. `convoy`: its output."""

    def __init__(self, case, convoy, dtype):
        self.case, self.dtype = case, dtype
        self.weights = torch.from_numpy(CLASS_WEIGHTS).to(dtype) if case["class_weights"] else None
        self.smoothing = case["label_smoothing"]
        if case["mixup"]:
            self.partner, self.share = convoy["partner"].astype(np.int64), convoy["coefficient"]
            self.check()

    def check(self):
        one_share = self.case["mixup_rule"] == "torch"
        rows = np.arange(BATCH) if one_share else np.arange(BATCH)[::-1]
        if not ((np.sort(self.partner, axis=1) if one_share else self.partner) == rows).all():
            sys.exit("the partners are not those of the rule")
        if (self.share == self.share[:, :1]).all() != one_share or not 0 <= self.share.min() <= self.share.max() <= 1:
            sys.exit("the coefficients are not those of the rule")
        if len(np.unique(self.share[:, 0])) < 0.9 * len(self.share):
            sys.exit("there are not as many coefficients as batches")

    def entropy(self, logits, target):
        return F.cross_entropy(logits, target, weight=self.weights, label_smoothing=self.smoothing)

    def loss(self, model, x, y, number):
        if not self.case["mixup"]:
            return self.entropy(model(x), y)
        partner = torch.from_numpy(self.partner[number])
        c = torch.from_numpy(self.share[number].copy()).to(self.dtype)
        image = c.view(-1, 1, 1, 1)
        logits = model(image * x + (1 - image) * x[partner])
        if self.case["mixup_rule"] == "torch":
            return c[0] * self.entropy(logits, y) + (1 - c[0]) * self.entropy(logits, y[partner])
        one_hot = F.one_hot(y, CLASSES).to(self.dtype)
        return self.entropy(logits, c.view(-1, 1) * one_hot + (1 - c.view(-1, 1)) * one_hot[partner])


def averaged_state(model):
    return {k: v.detach().clone() for k, v in model.state_dict().items() if "num_batches_tracked" not in k}


def start(case, weights):
    """Where the loss is scaled, the classifier begins so steep that the first scale is too large."""
    steep = 2.0 ** 8 if case["loss_scale"] else 1.0
    return {k: v * steep if k == "fc.weight" else v for k, v in weights.items()}


def run_torch(case, weights, images, labels, dtype, convoy):
    model = Network()
    model.load_state_dict(start(case, weights))
    model = model.to(dtype).train()
    optimizer, scale = make_optimizer(model, case), LossScale(case, convoy["skipped"])
    average, batches, mixup = averaged_state(model), 0, Mixup(case, convoy, dtype)
    mean, std = (torch.tensor(v, dtype=dtype).view(1, 3, 1, 1) for v in (MEAN, STD))
    x = (torch.from_numpy(images).permute(0, 3, 1, 2).to(dtype) - mean) / std
    y = torch.from_numpy(labels).long()
    columns = {"loss": [], "rate": [], "scale": [], "skipped": []}
    for step in range(STEPS):
        rate, total = learning_rate(case, step), 0.0
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        for micro in range(case["accumulate"]):
            first = batches * BATCH % IMAGES
            loss = mixup.loss(model, x[first:first + BATCH], y[first:first + BATCH], batches)
            total += float(loss.detach())
            loss.backward()
            if micro + 1 == case["accumulate"]:
                gradients = [p.grad for p in model.parameters()]
                for g in gradients:
                    g.div_(case["accumulate"])
                scale.step(optimizer, gradients, step)
            decay = min(case["average"], (1 + batches) / (10 + batches))
            for k, v in averaged_state(model).items():
                average[k] = decay * average[k] + (1 - decay) * v
            batches += 1
        for name, value in (("loss", total / case["accumulate"]), ("rate", rate), ("scale", scale.scale),
                            ("skipped", scale.skipped)):
            columns[name].append(value)
    out = {name: np.array(values) for name, values in columns.items()}
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        out[f"weights.{name}"] = parameter.detach().numpy()
        if "momentum_buffer" in state:
            out[f"momentum.{name}"] = state["momentum_buffer"].numpy()
        if "square_avg" in state:
            out[f"square.{name}"] = state["square_avg"].numpy()
    for name, buffer in model.named_buffers():
        if "num_batches_tracked" not in name:
            out[f"state.{name}"] = buffer.numpy()
    if case["average"]:
        out.update({f"average.{k}": v.numpy() for k, v in average.items()})
    return out


# ---- Convoy, and the comparison ----

def run_convoy(case, arguments, weights):
    options = [word for name, value in case.items()
               for word in ("--" + name.replace("_", "-"), repr(value) if isinstance(value, float) else str(value))]
    out = os.path.join(arguments.work, "out.safetensors")
    write_safetensors(os.path.join(arguments.work, "weights.safetensors"),
                      {k: v.numpy() for k, v in start(case, weights).items()})
    subprocess.run([arguments.tool, os.path.join(arguments.work, "weights.safetensors"),
                    os.path.join(arguments.work, "data.safetensors"), out, "--steps", str(STEPS), "--batch",
                    str(BATCH), "--device", arguments.device] + options, check=True)
    return read_safetensors(out)


def relative_errors(tensors, exact, kind):
    """(value - exact) / rms(exact) of all tensors of a kind, one after the other."""
    parts = [(tensors[name].astype(np.float64) - exact[name]).ravel() / np.sqrt(np.mean(exact[name] ** 2))
             for name in sorted(exact) if name.split(".")[0] == kind]
    return np.concatenate(parts)


def rms(values):
    return float(np.sqrt(np.mean(values ** 2)))


def compare(case, exact, single, convoy):
    """Prints a line for each kind; whether all is equal."""
    good = True
    for name in ("rate", "scale", "skipped"):
        # Rates are rounded to float32 once; the rest are small whole numbers and powers of two.
        same = np.allclose(convoy[name], exact[name], rtol=6e-8 if name == "rate" else 0, atol=0)
        if not same:
            step = int(np.argmax(~np.isclose(convoy[name], exact[name], rtol=6e-8, atol=0)))
            print(f"  {name} of step {step}: {convoy[name][step]:.9g} instead of {exact[name][step]:.9g}")
        good = good and same
    kinds = sorted({name.split(".")[0] for name in exact} - {"rate", "scale", "skipped"})
    if not case["momentum"] and case["optimizer"] == "rmsprop":
        assert "momentum" not in kinds  # Convoy's holds the last direction then
    for kind in kinds:
        assert all(name in convoy for name in exact if name.split(".")[0] == kind)
        error, other = rms(relative_errors(convoy, exact, kind)), rms(relative_errors(single, exact, kind))
        other = max(other, 2.0 ** -24 / math.sqrt(3))  # a number's own rounding
        good = good and error <= LIMIT * other
        print(f"  {kind:9} error {error:.2e}, PyTorch float32 {other:.2e}, ratio {error / other:.2f}"
              f"{'' if error <= LIMIT * other else '  TOO FAR'}")
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    weights = Network().state_dict()
    random = np.random.RandomState(4)
    labels = random.randint(0, CLASSES, IMAGES).astype(np.int32)
    images = (random.randint(0, 128, (IMAGES, 32, 32, 3)) + 12 * labels[:, None, None, None]).astype(np.uint8)
    write_safetensors(os.path.join(arguments.work, "data.safetensors"), {"images": images, "labels": labels, "class_weights": CLASS_WEIGHTS})
    failed = 0
    for name, changes in CASES.items():
        case = {**DEFAULTS, **changes}
        convoy = run_convoy(case, arguments, weights)
        exact, single = (run_torch(case, weights, images, labels, dtype, convoy)
                         for dtype in (torch.float64, torch.float32))
        print(f"{name}: loss {exact['loss'][0]:.3f} to {exact['loss'][-1]:.3f}, "
              f"{int(exact['skipped'][-1])} steps left out")
        if case["loss_scale"] and not 0 < exact["skipped"][-1] < 10:
            sys.exit("the loss scale is to stop some steps, but not many")
        failed += not compare(case, exact, single, convoy)
    print("equal" if not failed else f"{failed} of {len(CASES)} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
