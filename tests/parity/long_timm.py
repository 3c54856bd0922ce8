#!/usr/bin/env python3
"""Hold the networks that the parity tests compare with against timm's: state dictionaries have the same names, shapes
and order as Convoy's (LIST_PARAMETERS), and networks.py computes the same logits and gradients from them.

    long_timm.py LIST_PARAMETERS
"""
import subprocess
import sys

import timm
import torch

import networks
from check_networks import state_dict_lines

# Both compute in float64, in other orders at most: a thousand roundings.
LIMIT = 1e-13
PAIRS = (("seresnet50", "se-resnet50", "c/16"), ("seresnext101_32x4d", "se-resnext101-32x4d", "c/16"),
         ("resnext50_32x4d", "resnext50-32x4d", None), ("resnext101_32x4d", "resnext101-32x4d", None),
         ("resnext101_32x8d", "resnext101-32x8d", None), ("resnet50", "resnet50", None))


def gradients(model, images):
    """Logits of a training pass and all gradients of a weighted sum of them."""
    logits = model.train()(images)
    weights = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).reshape(logits.shape)
    model.zero_grad()
    (logits * weights).sum().backward()
    return {"logits": logits.detach(), **{name: p.grad for name, p in model.named_parameters()}}


def check(lister, theirs, ours, squeeze_width):
    torch.manual_seed(1)
    model = timm.create_model(theirs, num_classes=20).double()
    own = networks.build(ours, 20, squeeze_width).double()
    for name, p in model.named_parameters():  # timm starts some at 0: nothing would be compared
        if p.dim() == 1:
            torch.nn.init.normal_(p, 1.0 if name.endswith("weight") else 0.0, 0.3)
    own.load_state_dict(model.state_dict())
    lines = subprocess.run([lister, theirs, "20"] + ([squeeze_width] if squeeze_width else []), check=True,
                           capture_output=True, text=True).stdout.splitlines()
    failed = lines != state_dict_lines(model)
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    a, b = gradients(model, images), gradients(own, images)
    worst = max(float((a[name] - b[name]).norm() / (a[name].norm() + 1e-300)) for name in a)
    print(f"{theirs}: {len(lines)} tensors {'differ' if failed else 'equal'}, largest relative difference {worst:.1e}")
    return failed or not worst <= LIMIT


def main():
    print(f"timm {timm.__version__}, torch {torch.__version__}")
    return 1 if any([check(sys.argv[1], *pair) for pair in PAIRS]) else 0


if __name__ == "__main__":
    sys.exit(main())
