#!/usr/bin/env python3
"""Compare every network with the same one in PyTorch (networks.py): the state dictionary's names, shapes and order, the
parameters, and the multiply-adds of `convoy info`, counted here by hooks at one pass.

    check_networks.py LIST_PARAMETERS CONVOY

Exit: 0 equal, 1 not, 77 PyTorch is missing (1 where CI=true or CONVOY_CI is set: there it must be installed).
"""
import json
import os
import subprocess
import sys

try:
    import torch
    from torch import nn

    import networks
except ImportError as error:
    print(f"PyTorch and torchvision are not installed: {error}")
    sys.exit(1 if os.environ.get("CI") == "true" or os.environ.get("CONVOY_CI") else 77)


def state_dict_lines(model):
    return [f"{name} {'x'.join(map(str, value.shape)) or '-'}" for name, value in model.state_dict().items()]


def multiply_adds(model, size):
    """Of convolutions and linear layers, for one image."""
    total = 0

    def count(module, inputs, output):
        nonlocal total
        places = output.numel() // output.shape[1]
        total += places * module.weight.numel()

    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.register_forward_hook(count)
    with torch.no_grad():
        model.eval()(torch.zeros(1, 3, size, size))
    return total


def check(tools, arch, classes, squeeze_width, padding, size):
    lister, convoy = tools
    model = networks.build(arch, classes, squeeze_width, padding)
    option = [squeeze_width] if squeeze_width else []
    ours = subprocess.run([lister, arch, str(classes)] + option, check=True, capture_output=True, text=True)
    ours, theirs = ours.stdout.splitlines(), state_dict_lines(model)
    problems = [f"{mine!r} instead of {other!r}" for mine, other in zip(ours, theirs) if mine != other]
    if len(ours) != len(theirs):
        problems.append(f"{len(ours)} tensors instead of {len(theirs)}")
    command = [convoy, "info", arch, "--format", "json", "--num-classes", str(classes), "--padding", padding,
               "--image-size", str(size), "--batch-size", "2"]
    command += ["--squeeze-width", squeeze_width] if squeeze_width else []
    facts = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    parameters = sum(p.numel() for p in model.parameters())
    macs = multiply_adds(model, size)
    if facts["parameters"] != parameters:
        problems.append(f"{facts['parameters']} parameters instead of {parameters}")
    if round(facts["gmac"] * 1e9) != macs:
        problems.append(f"{facts['gmac'] * 1e9:.0f} multiply-adds instead of {macs}")
    print(f"{arch:20} {classes} classes, {padding}, {size} pixels: {len(ours)} tensors, {parameters} parameters, "
          f"{macs / 1e9:.3f} GMAC, training of 2 images {facts['training_memory']['mib']:.0f} MiB: "
          + ("equal" if not problems else "; ".join(problems[:3])), flush=True)
    return len(problems)


DETECTORS = ["ssd320"]  # ssd320.py compares it
NOT_IN_TORCHVISION = ["resnext101-32x8d-basic"]  # whose basic blocks have no groups


def main():
    tools = sys.argv[1:3]
    known = json.loads(subprocess.run([tools[1], "info", "--format", "json"], check=True, capture_output=True,
                                      text=True).stdout)["architectures"]
    failed = sorted(known) != sorted([*networks.NETWORKS, *DETECTORS, *NOT_IN_TORCHVISION])
    if failed:
        print(f"the program knows {known}, this script {list(networks.NETWORKS)}")
    for arch in networks.NETWORKS:
        failed += check(tools, arch, 1000, None, "torch", 224)
    for arch in ("se-resnet50", "se-resnext101-32x4d"):
        failed += check(tools, arch, 1001, "c/16", "same", 97)
    failed += check(tools, "se-resnet50", 7, "24", "same", 64)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
