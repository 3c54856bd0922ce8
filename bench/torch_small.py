#!/usr/bin/env python3
"""Three fixed recipes in the manner of timm, in PyTorch, on one small set: resnet18 from random weights.

    bench/torch_small.py SET --image-size 64 --epochs 60 --seed 0 [--recipes sgd,adamw,rmsprop]

SET/train/<class> and SET/val/<class>. What they share: crops of 8 to 100 % of the area, flips, brightness, contrast and
saturation by up to 0.4, label smoothing 0.1, a cosine after five epochs of warm-up, batches of 32 (of a smaller set: all
of it), weight decay on matrices alone, a validation after each epoch. One line of JSON for each recipe: recipe, top1
(percent, of each epoch), loss (of the validation), validation (processor seconds of all validations).
bench/small_sets.py compares Convoy with them.
"""
import argparse
import json
import math
import sys
import time

import torch
import torchvision
from torch.nn import functional as F
from torchvision import transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WARMUP = 5
RECIPES = {  # learning rate and optimizer
    "sgd": (0.05, lambda groups, rate: torch.optim.SGD(groups, rate, momentum=0.9, nesterov=True, weight_decay=1e-4)),
    "adamw": (1e-3, lambda groups, rate: torch.optim.AdamW(groups, rate, weight_decay=0.05)),
    "rmsprop": (2e-3, lambda groups, rate: torch.optim.RMSprop(groups, rate, alpha=0.9, eps=1e-3, momentum=0.9,
                                                               weight_decay=1e-5)),
}


def loaders(folder, size, batch, workers):
    normalise = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    train = torchvision.datasets.ImageFolder(f"{folder}/train", transforms.Compose(
        [transforms.RandomResizedCrop(size, interpolation=transforms.InterpolationMode.BICUBIC),
         transforms.RandomHorizontalFlip(), transforms.ColorJitter(0.4, 0.4, 0.4), *normalise]))
    val = torchvision.datasets.ImageFolder(f"{folder}/val", transforms.Compose(
        [transforms.Resize(size), transforms.CenterCrop(size), *normalise]))
    keep = workers > 0
    return (torch.utils.data.DataLoader(train, min(batch, len(train)), shuffle=True, drop_last=True, num_workers=workers,
                                        persistent_workers=keep),
            torch.utils.data.DataLoader(val, 64, num_workers=workers, persistent_workers=keep), len(train.classes))


@torch.no_grad()
def evaluate(model, loader):
    """Top-1 in percent, and the plain cross-entropy."""
    model.eval()
    right = total = loss = 0
    for images, labels in loader:
        logits = model(images.contiguous(memory_format=torch.channels_last))
        right += int((logits.argmax(1) == labels).sum())
        loss += float(F.cross_entropy(logits, labels, reduction="sum"))
        total += len(labels)
    return 100 * right / total, loss / total


def train(options, recipe):
    rate, make = RECIPES[recipe]
    torch.manual_seed(options.seed)
    batches, val, classes = loaders(options.data, options.image_size, options.batch_size, options.workers)
    model = torchvision.models.resnet18(num_classes=classes).to(memory_format=torch.channels_last)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = make([{"params": matrices}, {"params": others, "weight_decay": 0.0}], rate)
    top1, losses, validation = [], [], 0
    for epoch in range(options.epochs):
        part = (epoch - WARMUP) / max(1, options.epochs - WARMUP)
        now = rate * (epoch + 1) / (WARMUP + 1) if epoch < WARMUP else rate * (1 + math.cos(math.pi * part)) / 2
        for group in optimizer.param_groups:
            group["lr"] = now
        model.train()
        for images, labels in batches:
            optimizer.zero_grad(set_to_none=True)
            logits = model(images.contiguous(memory_format=torch.channels_last))
            F.cross_entropy(logits, labels, label_smoothing=0.1).backward()
            optimizer.step()
        start = time.process_time()
        accuracy, loss = evaluate(model, val)
        validation += time.process_time() - start
        top1.append(accuracy)
        losses.append(loss)
    return {"recipe": recipe, "top1": top1, "loss": losses, "validation": validation}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--image-size", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for recipe in options.recipes.split(","):
        print(json.dumps(train(options, recipe)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
