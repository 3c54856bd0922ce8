"""Trains a torchvision network the way `convoy train` does: the same transforms, initialisation, schedule, loss and
weight-decay rule, PyTorch's arithmetic, loader and random numbers. Used by imagenette.py and shapes.py."""
import math
import sys
import time

import torch
import torchvision
from torch.nn import functional as F
from torchvision import transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# Names and defaults of `convoy train`.
DEFAULTS = {
    "arch": "resnet18", "image-size": 64, "eval-resize": 64, "epochs": 10, "batch-size": 64, "lr": 0.05,
    "lr-schedule": "cosine", "end-lr": 0.0, "warmup": 0, "momentum": 0.9, "nesterov": False, "weight-decay": 1e-4,
    "bn-weight-decay": False, "label-smoothing": 0.0, "model-config": "fanin", "last-bn-0-init": False, "seed": 0,
    "min-crop-area": 0.08, "precision": "fp32", "training-only": False,
}


def learning_rate(options, epoch):
    """One value for each epoch, counted from 0 (doc/training.md)."""
    base, warmup, epochs = options["lr"], options["warmup"], options["epochs"]
    if epoch < warmup:
        return base * (epoch + 1) / warmup
    part = (epoch - warmup) / (epochs - warmup)
    if options["lr-schedule"] == "cosine":
        end = options["end-lr"]
        return end + 0.5 * (1 + math.cos(math.pi * part)) * (base - end)
    if options["lr-schedule"] == "linear":
        return base * (1 - part)
    return base * 0.1 ** sum(border <= epoch for border in (30, 60, 80))


def make_model(options, classes):
    model = getattr(torchvision.models, options["arch"].replace("-", "_"))(
        num_classes=classes, zero_init_residual=bool(options["last-bn-0-init"]))
    mode = "fan_in" if options["model-config"].endswith("fanin") else "fan_out"
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity="relu")
    return model.to(memory_format=torch.channels_last)


def make_optimizer(options, model):
    """Parameters whose name contains "bn" do not decay; everything else does, the projections' batch norms too."""
    exempt = [p for n, p in model.named_parameters() if "bn" in n and not options["bn-weight-decay"]]
    names = {id(p) for p in exempt}
    decayed = [p for p in model.parameters() if id(p) not in names]
    return torch.optim.SGD([{"params": exempt, "weight_decay": 0.0}, {"params": decayed}], lr=options["lr"],
                           momentum=options["momentum"], nesterov=bool(options["nesterov"]),
                           weight_decay=options["weight-decay"])


def make_loaders(options, folder, workers):
    normalise = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    size = options["image-size"]
    train = torchvision.datasets.ImageFolder(f"{folder}/train", transforms.Compose(
        [transforms.RandomResizedCrop(size, scale=(options["min-crop-area"], 1.0)), transforms.RandomHorizontalFlip(),
         *normalise]))
    val = torchvision.datasets.ImageFolder(f"{folder}/val", transforms.Compose(
        [transforms.Resize(options["eval-resize"]), transforms.CenterCrop(size), *normalise]))
    if train.classes != val.classes:
        sys.exit(f"{folder}: train and val have different classes")
    batch = options["batch-size"]
    return (torch.utils.data.DataLoader(train, batch, shuffle=True, drop_last=True, num_workers=workers),
            torch.utils.data.DataLoader(val, batch, num_workers=workers), len(train.classes))


@torch.no_grad()
def evaluate(model, loader):
    """Top-1 in percent."""
    model.eval()
    right = total = 0
    for images, labels in loader:
        logits = model(images.contiguous(memory_format=torch.channels_last))
        right += int((logits.argmax(1) == labels).sum())
        total += len(labels)
    return 100 * right / total


def train(folder, given, threads=2, workers=2, log=sys.stderr):
    """Returns {"top1": [after each epoch; none with training-only], "loss": [mean of each epoch's steps], "seconds": total}.
    Precision bf16 is autocast's. Unknown options are ignored."""
    options = {name: given.get(name, value) for name, value in DEFAULTS.items()}
    torch.set_num_threads(threads)
    torch.manual_seed(options["seed"])
    train_loader, val_loader, classes = make_loaders(options, folder, workers)
    model = make_model(options, classes)
    optimizer = make_optimizer(options, model)
    begin, result = time.monotonic(), {"top1": [], "loss": []}
    for epoch in range(options["epochs"]):
        rate = learning_rate(options, epoch)
        for group in optimizer.param_groups:
            group["lr"] = rate
        model.train()
        total, steps = 0.0, 0
        for images, labels in train_loader:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=options["precision"] == "bf16"):
                logits = model(images.contiguous(memory_format=torch.channels_last))
            loss = F.cross_entropy(logits.float(), labels, label_smoothing=options["label-smoothing"])
            loss.backward()
            optimizer.step()
            total, steps = total + loss.item(), steps + 1
        result["loss"].append(total / max(steps, 1))
        if not options["training-only"]:
            result["top1"].append(evaluate(model, val_loader))
        print(f"  pytorch epoch {epoch + 1}/{options['epochs']}: loss {result['loss'][-1]:.5f}, top-1 "
              f"{result['top1'][-1] if result['top1'] else math.nan:.2f} %, lr {rate:g}, "
              f"{time.monotonic() - begin:.0f} s", file=log, flush=True)
    result["seconds"] = time.monotonic() - begin
    return result
