#!/usr/bin/env python3
"""PyTorch's side of gpu_peer.py: one measurement or one loss curve, in a process of its own, as one line of JSON.

    gpu_torch.py measure --mode train|infer --variant V --arch A --precision P --batch-size N [--image-size S] [--wait F]
    gpu_torch.py curve --data DIR --precision P --seed N --steps N --rate R --crop C

Variants: eager, graph (eager, the whole step in one CUDA graph), compile, compile-max (mode max-autotune). Networks are
defined here (plain torch.nn): ResNet-50 v1.5, ResNeXt101-32x4d and SE-ResNeXt101-32x4d; SSD320, which can only be
trained, is that of torch_detector.py with its losses, its targets in GPU memory before the clock starts.

With --wait F a process compiles, runs two steps, makes F.ready and then waits for F before it measures: several can
compile at once and then measure one after the other. cuDNN's trials come after the wait.
"""
import argparse
import json
import os
import sys
import time

VARIANTS = ("eager", "graph", "compile", "compile-max")
NETWORKS = {  # bottlenecks of each stage, groups, width of a group in the first stage, hidden units of the gates
    "resnet50": ((3, 4, 6, 3), 1, 64, None),
    "resnext101-32x4d": ((3, 4, 23, 3), 32, 4, None),
    "se-resnext101-32x4d": ((3, 4, 23, 3), 32, 4, 16),
}
DETECTOR, DETECTOR_CLASSES, DETECTOR_SIZE, OBJECTS = "ssd320", 90, 320, 8


# ---- networks ----

def build(arch, classes):
    import torch
    from torch import nn

    blocks, groups, base, hidden = NETWORKS[arch]

    def conv_norm(inside, outside, kernel, stride=1, groups=1):
        return [nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False),
                nn.BatchNorm2d(outside)]

    class Gate(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.down, self.up = nn.Conv2d(channels, hidden, 1), nn.Conv2d(hidden, channels, 1)

        def forward(self, x):
            return x * self.up(self.down(x.mean((2, 3), keepdim=True)).relu()).sigmoid()

    class Bottleneck(nn.Module):
        def __init__(self, inside, stage, stride):
            super().__init__()
            width, outside = groups * base << stage, 256 << stage
            layers = [*conv_norm(inside, width, 1), nn.ReLU(True), *conv_norm(width, width, 3, stride, groups),
                      nn.ReLU(True), *conv_norm(width, outside, 1)]
            self.path = nn.Sequential(*layers, *([Gate(outside)] if hidden else []))
            same = stride == 1 and inside == outside
            self.shortcut = nn.Identity() if same else nn.Sequential(*conv_norm(inside, outside, 1, stride))

        def forward(self, x):
            return (self.path(x) + self.shortcut(x)).relu_()

    layers = [*conv_norm(3, 64, 7, 2), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for stage, count in enumerate(blocks):
        for block in range(count):
            layers.append(Bottleneck(inside, stage, 2 if block == 0 and stage > 0 else 1))
            inside = 256 << stage
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return model.to(memory_format=torch.channels_last)


# ---- a detector ----

def detector_with_losses(torch):
    """The network of torch_detector.py; forward(images, classes, codes, positives) is the sum of its losses in float32."""
    import torch_detector

    class WithLosses(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = torch_detector.make_model(DETECTOR_CLASSES, 0)

        def forward(self, images, *targets):
            codes, logits = self.network(images, torch_detector.activate)
            with torch.autocast(images.device.type, enabled=False):
                return torch_detector.losses(codes.float(), logits.float(), targets)

    return WithLosses()


def targets_of(torch, settings, device, seed):
    """(classes (N, A), codes (N, A, 4), number of matched anchors) of random boxes, in GPU memory."""
    import numpy
    import torch_detector

    dice = numpy.random.RandomState(seed)
    boxes, labels = [], []
    for _ in range(settings.batch_size):
        side = dice.uniform(0.1, 0.6, (OBJECTS, 2))
        low = dice.uniform(0, 1 - side)
        boxes.append(numpy.concatenate([low, low + side], 1).astype(numpy.float32))
        labels.append(dice.randint(1, DETECTOR_CLASSES + 1, OBJECTS).astype(numpy.int32))
    classes, codes, positives = torch_detector.Boxes(settings.image_size).targets(boxes, labels)
    return classes.to(device), codes.to(device), torch.tensor(float(positives), device=device)


# ---- one measurement ----

WARM_UP = 6

def prepare(settings):
    """(torch, device, type of autocast or None)"""
    import torch

    tf32 = settings.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    device = torch.device(settings.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    elif settings.variant == "graph":
        sys.exit("the variant graph needs a GPU")
    return torch, device, {"fp16": torch.float16, "bf16": torch.bfloat16}.get(settings.precision)


def compiled(torch, settings, function):
    if not settings.variant.startswith("compile"):
        return function
    if not hasattr(torch, "compile"):
        sys.exit(f"PyTorch {torch.__version__} has no torch.compile")
    if settings.variant == "compile":
        return torch.compile(function)
    return torch.compile(function, mode="max-autotune")


def make_optimizer(torch, parameters, device, rate):
    options = {"lr": rate, "momentum": 0.9, "weight_decay": 1e-4}
    if device.type == "cuda":
        try:
            return torch.optim.SGD(parameters, fused=True, **options), True
        except (TypeError, RuntimeError):  # before 2.3
            pass
    return torch.optim.SGD(parameters, **options), False


def training_step(settings, torch, device, half, rate=1e-3, classes=1000):
    """A function of images (N, C, H, W), channels-last, and labels (of a detector: targets_of) that trains one step and
    returns the loss."""
    detector = settings.arch == DETECTOR
    model = (detector_with_losses(torch) if detector else build(settings.arch, classes)).to(device).train()
    optimizer, fused = make_optimizer(torch, model.parameters(), device, rate)
    network = compiled(torch, settings, model)
    scaling = half == torch.float16 and device.type == "cuda"
    if scaling and settings.variant == "graph" and not fused:
        sys.exit("a loss scaler in a CUDA graph needs a fused optimizer")
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        scaler = torch.amp.GradScaler("cuda", enabled=scaling)
    else:
        scaler = torch.cuda.amp.GradScaler(enabled=scaling)

    def step(images, *wanted):
        # In a graph the casts of the weights must be part of each replay.
        with torch.autocast(device.type, dtype=half, enabled=half is not None,
                            cache_enabled=settings.variant != "graph"):
            loss = network(images, *wanted) if detector else torch.nn.functional.cross_entropy(network(images), *wanted)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def inference_step(settings, torch, device, half):
    """A function of images that returns probabilities. The weights are in the type of the arithmetic."""
    model = build(settings.arch, 1000).to(device).eval()
    if half is not None:
        model = model.to(half)
    if settings.variant.startswith("compile"):
        try:
            import torch._inductor.config as inductor

            inductor.freezing = True  # folds batch norm into the convolutions
        except ImportError:
            pass
    network = compiled(torch, settings, model)

    def step(images):
        with torch.no_grad():
            return network(images).float().softmax(1)

    return step


def captured(torch, step, places):
    """The step as one CUDA graph that reads its inputs from `places`."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(5):
            step(*places)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step(*places)

    def replay(*inputs):
        for place, value in zip(places, inputs):
            place.copy_(value)
        graph.replay()
        return result

    return replay


def make_batches(settings, torch, device, half):
    """Four batches in GPU memory. Weights under autocast stay fp32; the images may come in the type of the products."""
    generator = torch.Generator(device).manual_seed(0)
    size = (settings.batch_size, 3, settings.image_size, settings.image_size)
    batches = []
    for _ in range(4):
        images = torch.randn(size, generator=generator, device=device).to(half or torch.float32)
        images = images.contiguous(memory_format=torch.channels_last)
        if settings.arch == DETECTOR:
            batches.append((images, *targets_of(torch, settings, device, len(batches))))
        elif settings.mode == "train":
            batches.append((images, torch.randint(0, 1000, size[:1], generator=generator, device=device)))
        else:
            batches.append((images,))
    return batches


def compile_and_wait(torch, settings, step, batch):
    """Two steps with what cuDNN takes untried, which compile everything; then until the file is there."""
    torch.backends.cudnn.benchmark = False
    for _ in range(2):
        step(*batch)
    if settings.device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    open(settings.wait + ".ready", "w").close()
    while not os.path.exists(settings.wait):
        time.sleep(0.05)
    torch.backends.cudnn.benchmark = True


def run_measure(settings):
    if settings.arch == DETECTOR and settings.mode == "infer":
        sys.exit("ssd320 can only be trained here")
    torch, device, half = prepare(settings)
    torch.manual_seed(0)
    batches = make_batches(settings, torch, device, half)
    if settings.mode == "train":
        step = training_step(settings, torch, device, half)
    else:
        step = inference_step(settings, torch, device, half)
    if settings.wait:
        compile_and_wait(torch, settings, step, batches[0])
    if settings.variant == "graph":
        step = captured(torch, step, [value.clone(memory_format=torch.preserve_format) for value in batches[0]])
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for i in range(WARM_UP):
        step(*batches[i % 4])
    wait()
    if device.type == "cuda" and settings.variant in ("eager", "compile"):
        # What trying algorithms took does not count; that of a graph is counted when it is made.
        torch.cuda.reset_peak_memory_stats()
    # Training: the clock runs over many steps, whose losses are read one step late, as `convoy train` does.
    # Inference: each batch is waited for.
    times, last, begin = [], None, time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < settings.seconds:
        start = time.perf_counter()
        result = step(*batches[len(times) % 4])
        if settings.mode == "infer":
            result.cpu()
        else:
            if last is not None:
                last.item()
            last = result.clone()
        times.append(time.perf_counter() - start)
    wait()
    total, ordered = time.perf_counter() - begin, sorted(times)

    def quantile(q):
        return 1000 * ordered[round(q * (len(ordered) - 1))]

    result = {"images_per_second": settings.batch_size * len(times) / total, "iterations": len(times),
              "version": torch.__version__, "peak_memory_mib": None, "reserved_memory_mib": None}
    if settings.mode == "infer":
        result["latency_ms"] = {"average": 1000 * total / len(times), "p50": quantile(0.5), "p90": quantile(0.9),
                                "p95": quantile(0.95), "p99": quantile(0.99)}
    if device.type == "cuda":
        result["peak_memory_mib"] = torch.cuda.max_memory_allocated() / 2**20
        result["reserved_memory_mib"] = torch.cuda.max_memory_reserved() / 2**20
        result["device"] = torch.cuda.get_device_name()
    print(json.dumps(result))


# ---- a loss curve ----

def load_folder(torch, folder, size):
    """Images (N, 3, S, S) in 0..255 and labels of DIR/train/<class>/."""
    import numpy
    from PIL import Image

    train, images, labels = os.path.join(folder, "train"), [], []
    for label, name in enumerate(sorted(os.listdir(train))):
        for file in sorted(os.listdir(os.path.join(train, name))):
            with Image.open(os.path.join(train, name, file)) as image:
                images.append(numpy.asarray(image.convert("RGB").resize((size, size), Image.BILINEAR)))
            labels.append(label)
    return torch.from_numpy(numpy.stack(images)).permute(0, 3, 1, 2).float(), torch.tensor(labels)


def random_crops(torch, images, least, generator):
    """Crops of an area in [least, 1], of 3:4 to 4:3, half of them mirrored, back at the images' size."""
    count = len(images)
    area = torch.empty(count).uniform_(least, 1, generator=generator)
    ratio = torch.exp(torch.empty(count).uniform_(-0.2877, 0.2877, generator=generator))
    width, height = (area * ratio).sqrt().clamp_(max=1), (area / ratio).sqrt().clamp_(max=1)
    theta = torch.zeros(count, 2, 3)
    theta[:, 0, 0] = width * (1 - 2 * torch.randint(0, 2, (count,), generator=generator))
    theta[:, 1, 1] = height
    theta[:, 0, 2] = (1 - width) * torch.empty(count).uniform_(-1, 1, generator=generator)
    theta[:, 1, 2] = (1 - height) * torch.empty(count).uniform_(-1, 1, generator=generator)
    grid = torch.nn.functional.affine_grid(theta.to(images), list(images.shape), align_corners=False)
    return torch.nn.functional.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def run_curve(settings):
    torch, device, half = prepare(settings)
    torch.manual_seed(settings.seed)
    generator = torch.Generator().manual_seed(settings.seed)
    images, labels = load_folder(torch, settings.data, settings.image_size)
    images, labels = images.to(device), labels.to(device)
    step = training_step(settings, torch, device, half, settings.rate, int(labels.max()) + 1)
    mean = torch.tensor((123.675, 116.28, 103.53), device=device).view(1, 3, 1, 1)
    std = torch.tensor((58.395, 57.12, 57.375), device=device).view(1, 3, 1, 1)
    losses, order = [], []
    while len(losses) < settings.steps:
        if len(order) < settings.batch_size:
            order = torch.randperm(len(images), generator=generator).tolist()
        chosen = torch.tensor(order[:settings.batch_size], device=device)
        order = order[settings.batch_size:]
        crops = random_crops(torch, images[chosen], settings.crop, generator).sub_(mean).div_(std)
        losses.append(step(crops.contiguous(memory_format=torch.channels_last), labels[chosen]).item())
    print(json.dumps({"losses": losses, "version": torch.__version__}))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    measure, curve = verbs.add_parser("measure"), verbs.add_parser("curve")
    for one in (measure, curve):
        one.add_argument("--arch", choices=(*NETWORKS, DETECTOR) if one is measure else NETWORKS, default="resnet50")
        one.add_argument("--precision", choices=("fp32", "tf32", "fp16", "bf16"), default="fp16")
        one.add_argument("--batch-size", type=int, default=64)
        one.add_argument("--image-size", type=int, help=f"224, of {DETECTOR} {DETECTOR_SIZE}")
        one.add_argument("--device", default="cuda:0")
        one.add_argument("--variant", choices=VARIANTS, default="eager")
    measure.add_argument("--mode", choices=("train", "infer"), default="train")
    measure.add_argument("--wait", help="compile, make WAIT.ready and wait for this file before measuring")
    measure.add_argument("--seconds", type=float, default=3, help="of measuring, after at least 3 steps")
    curve.add_argument("--data", required=True, help="a folder as `convoy dataset shapes` makes it")
    curve.add_argument("--seed", type=int, default=0)
    curve.add_argument("--steps", type=int, default=200)
    curve.add_argument("--rate", type=float, default=0.02, help="learning rate")
    curve.add_argument("--crop", type=float, default=0.35, help="least area of a crop")
    settings = parser.parse_args()
    settings.image_size = settings.image_size or (DETECTOR_SIZE if settings.arch == DETECTOR else 224)
    return settings


def main():
    settings = parse()
    (run_measure if settings.verb == "measure" else run_curve)(settings)


if __name__ == "__main__":
    main()
