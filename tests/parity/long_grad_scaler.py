#!/usr/bin/env python3
"""The rules of the loss scale, stepped through overflows beside PyTorch's own GradScaler (2.3 or later: older ones have
no update for CPUs).

    long_grad_scaler.py --tool SCALER_DUMP

The scaler holds one parameter with an optimizer; an overflow is an infinite gradient. The scale after each step and the
number of steps that were left out are compared exactly: all factors are powers of two.
"""
import argparse
import random
import subprocess
import sys

import torch

# Convoy's rule, the scale it starts from, and what the program with this rule passes to GradScaler, apex's and
# TensorFlow's being the same update with constants of their own. Bounds that GradScaler lacks are not reached.
CASES = [
    ("torch", 1.0, 100),
    ("torch", 128.0, 100),
    ("torch", 2.0 ** 126, 100),  # near the largest float32, where neither grows any further
    ("torch-fixed", 128.0, 10 ** 9),  # PyTorch's program without --dynamic-loss-scale
    ("torch-fixed", 65536.0, 10 ** 9),
    ("apex", 2.0 ** 16, 2000),
    ("tensorflow", 2.0 ** 15, 2000),
    ("fp16-utils", 2.0 ** 32, 1000),
]


def patterns(interval):
    """Where gradients overflow: by chance, around the places where the scale grows, and nowhere."""
    draw = random.Random(7)
    steps = 2 * interval + 500 if interval < 10 ** 6 else 1000
    rare = [draw.random() < 3 / steps for _ in range(steps)]
    at = {0, 1, 2, interval + 2, interval + 3, 2 * interval + 3, 2 * interval + 4}
    near = [step in at for step in range(steps)]
    return {"by chance": rare, "around the growth": near, "none": [False] * steps}


def follow_torch(start, interval, overflows):
    scaler = torch.amp.GradScaler("cpu", init_scale=start, growth_factor=2.0, backoff_factor=0.5,
                                  growth_interval=interval)
    parameter = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    loss, rows, skipped = torch.ones(()), [], 0
    for overflow in overflows:
        before = parameter.item()
        scaler.scale(loss)  # which makes the scale a tensor
        # The gradient of a loss of slope 1 / 4096, as it is with the scale on it.
        parameter.grad = torch.tensor(float("inf") if overflow else scaler.get_scale() / 4096)
        scaler.step(optimizer)
        scaler.update()
        moved = parameter.item() != before
        if moved == overflow or (moved and parameter.item() - before != -1 / 4096):
            sys.exit("GradScaler did not do what this comparison takes for granted")
        skipped += not moved
        rows.append((scaler.get_scale(), skipped))
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    tool = parser.parse_args().tool
    checks = 0
    for rule, start, interval in CASES:
        for name, overflows in patterns(interval).items():
            text = "".join("x" if overflow else "." for overflow in overflows)
            lines = subprocess.run([tool, rule, repr(start)], input=text, text=True, capture_output=True, check=True)
            found = [(float(a), int(b)) for a, b in (line.split() for line in lines.stdout.splitlines())]
            wanted = follow_torch(start, interval, overflows)
            for step, (a, b) in enumerate(zip(found, wanted)):
                if a != b:
                    sys.exit(f"{rule} from {start}, overflows {name}: after step {step} the scale and the skipped "
                             f"steps are {a}, GradScaler's {b}")
            if len(found) != len(wanted):
                sys.exit(f"{rule}: {len(found)} steps instead of {len(wanted)}")
            checks += len(wanted)
            if len({scale for scale, _ in wanted}) < (1 if name == "none" else 2):
                sys.exit(f"{rule}: the scale never moved; nothing was compared")
    print(f"{checks} steps, PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
