#!/usr/bin/env python3
"""Compare training steps of Convoy with PyTorch: logits, loss, gradients, running statistics, weights.

PyTorch runs the steps twice, in float64 (the truth) and in float32; Convoy runs them through tests/tools/step_dump.c
from the same weights and the same uint8 images. For every tensor

    ratio = rms(Convoy - float64) / rms(PyTorch float32 - float64)      must be at most 4.

Why rms: the two errors are sums of many roundings in different orders; over a tensor their rms is stable, single
elements are luck. Why 4: two float32 implementations that are equally careful differ in the order of their sums;
PyTorch's own channels-last path is up to 3 times off its NCHW path here (--rival channels-last shows it).
The float32 error is not taken below the rounding of storing the exact answer in float32: no float32 tensor is nearer
than that, except a tensor of a few elements by luck: up to 16 of them count with the expected rounding, a unit in the
last place over the root of 12; where even that is zero it is one unit in the last place.
After 20 steps the errors of all tensors come from the same few amplified roundings, one draw for each run: there
PyTorch's error is the rms over two draws, its NCHW and its channels-last path. The losses of all steps are one such
vector, measured in the same way. What both come to against the NCHW path alone is printed as information.

Kinks. ReLU and max pooling have derivatives that jump. Among the millions of activations of one step some lie within
the rounding noise (1e-6) of a jump, each implementation then takes its own side, and the gradients of all earlier
layers differ by a thousand times the rounding error: that measures luck, not arithmetic. So the start is chosen such
that in step 0 no activation is near a jump: each batch norm's bias moves by at most 0.1 into the widest gap of its
channel's activations, and near ties in a pooling window are taken out of the images. Squeeze-and-excitation has
a ReLU too, and a gate between the last batch norm's bias and the block's ReLU: a step of the bias moves the activations
of an image by its gate times the step, and the bias of the first layer after it takes the step back, so that the gates
stay. The margins are printed and checked. In later steps the jumps are back, and the network amplifies what they do; so that float32 still
means something after 20 steps at this learning rate, the last batch norm of each block starts with a scale of 0.2 (a
usual start, between the customary 1 and 0), resnet50's last projection too, and all steps see the same batch.

With --precision bf16 both sides compute in it: PyTorch's error is that of its autocast, the rms over NCHW and
channels-last. Steps in bf16 meet thousands of kinks and not a few, so that errors are large and alike: gradients of the
first layers are off by 0.4 of their size, and a ratio of 1.3 was the largest found. There the limit is 2, since one that
is all wrong has no more than 2.5. Only tensors of few elements are luck; for them the unit is bf16's.

With --freeze and --head-lr it is fine-tuning: frozen parameters get no gradient, batch norms whose two parameters are
frozen stand in eval mode (their running statistics are the first batch's), and the classifier has its own rate. The
frozen tensors are compared with the others at the end: they must not have moved at all.

Exit: 0 equal, 1 not, 77 PyTorch is missing (1 where CI=true or CONVOY_CI is set: there it must be installed).
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import time

# Two of these run side by side: threads that wait must not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

try:
    import numpy as np
    import torch
    from torch.nn import functional as F

    import networks
except ImportError as error:
    print(f"PyTorch and torchvision are not installed: {error}")
    sys.exit(1 if os.environ.get("CI") == "true" or os.environ.get("CONVOY_CI") else 77)

LIMIT = 4.0           # see above
BF16_LIMIT = 2.0
KINK_MARGIN = 1e-5    # distance to a jump in step 0: 10 times the noise of a float32 activation of size 1
MEAN = (123.675, 116.28, 103.53)  # ImageNet's, of the 0..255 scale
STD = (58.395, 57.12, 57.375)
BF16_UNITS = 2 ** 16  # of float32 in one of bf16
FEW = 16              # elements of a tensor whose rounding is a matter of luck

# ---- safetensors ----

DTYPES = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "I32": np.int32, "U8": np.uint8}
NAMES = {np.dtype(v): k for k, v in DTYPES.items()}


def write_safetensors(path, tensors):
    """Tensors of the widest type first, so that each lies on a multiple of its size."""
    header, offset, order = {}, 0, sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
    for name in order:
        array = tensors[name]
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(np.ascontiguousarray(tensors[name]).tobytes())


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    length, = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


# ---- the start: weights and images ----

def make_model(settings):
    return networks.build(settings.arch, settings.classes, settings.squeeze_width, settings.padding)


def random_weights(settings):
    """A network with normal(0, sqrt(2 / fan in)) convolutions; see "Kinks" for the batch norms."""
    torch.manual_seed(settings.seed)
    model = make_model(settings)
    last = "bn3" if hasattr(model.layer1[0], "conv3") else "bn2"
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
        elif name.endswith(last) or (last == "bn3" and name == "layer4.0.downsample.1"):
            torch.nn.init.constant_(module.weight, 0.2)
    return model.double()


def random_image(size, random):
    """Smooth noise, 6x6 random colours enlarged, and a little noise of single pixels. uint8 (3, S, S)."""
    coarse = torch.from_numpy(random.rand(1, 3, 6, 6))
    image = F.interpolate(coarse, size=size, mode="bicubic", align_corners=True)[0] * 215 + 20
    return (image + torch.from_numpy(random.randn(3, size, size)) * 15).clamp(0, 255).round().byte()


def normalise(images, dtype):
    mean, std = (torch.tensor(v, dtype=dtype).view(1, 3, 1, 1) for v in (MEAN, STD))
    return (images.to(dtype) - mean) / std


def leave_kinks(bias, z, reach=0.1):
    """Shift a bias, by `reach` at most, so that the widest gap among each channel's values near zero comes to lie around
    zero. z: the values (N, C, H, W) before the ReLU. Returns the shift."""
    values = z.transpose(0, 1).reshape(z.shape[1], -1).sort(dim=1).values
    middle = (values[:, 1:] + values[:, :-1]) / 2
    gap = torch.where(middle.abs() <= reach, values[:, 1:] - values[:, :-1], torch.zeros_like(middle))
    widest, index = gap.max(dim=1)
    shift = torch.where(widest > 0, -middle.gather(1, index[:, None])[:, 0], torch.zeros_like(widest))
    shifted = (bias + shift).float().double()
    shift = shifted - bias
    bias.copy_(shifted)
    return shift.view(1, -1, 1, 1)


def pool_distances(x, padding):
    """The distance of the maximum of each 3x3 window, stride 2, to the next value; infinite for dead windows.
    (N, C, P, Q)"""
    padded = networks.pad_same(x, 3, 2) if padding == "same" else F.pad(x, (1, 1, 1, 1))
    windows = padded.unfold(2, 3, 2).unfold(3, 3, 2)
    top = windows.reshape(*windows.shape[:4], 9).topk(2, dim=-1).values
    return torch.where(top[..., 0] > 0, top[..., 0] - top[..., 1], torch.full_like(top[..., 0], float("inf")))


def change_around(image, place, random):
    """New noise on the pixels under a pooling window: 9 of the 11 in each direction that it sees."""
    rows, columns = (slice(max(4 * at - 4, 0), 4 * at + 5) for at in place)
    patch = image[:, rows, columns]
    noise = torch.from_numpy(random.randn(*patch.shape) * 15)
    image[:, rows, columns] = (patch + noise).clamp(0, 255).round().byte()


@torch.no_grad()
def random_images(conv1, settings, normalised=normalise):
    """Images whose pooling windows have no near ties in the first convolution's output, in units of each channel's
    spread (the batch norm between them keeps the order): where there is one, the pixels under it get new noise.
    uint8 (N, 3, S, S), labels int64 (N)."""
    random = np.random.RandomState(settings.seed)
    chosen, spread = [], None
    while len(chosen) < settings.batch * settings.batches:
        image = random_image(settings.size, random)
        for _ in range(100):
            y = conv1(normalised(image[None], torch.float64))
            spread = y.std(dim=(0, 2, 3), keepdim=True) if spread is None else spread
            near = (pool_distances(y / spread + 100, settings.padding) < 3 * KINK_MARGIN).any(dim=1)[0].nonzero()
            if len(near) == 0:
                break
            for place in near.tolist():
                change_around(image, place, random)
        else:
            sys.exit("an image keeps near ties in max pooling")
        chosen.append(image)
    labels = random.randint(0, settings.classes, len(chosen))
    return torch.stack(chosen), torch.from_numpy(labels)


def is_frozen(name, settings):
    """A parameter under one of the prefixes of --freeze."""
    return any(name == prefix or name.startswith(prefix + ".") for prefix in settings.freeze.split(",") if prefix)


def frozen_norms(model, settings):
    return [m for n, m in model.named_modules() if isinstance(m, torch.nn.BatchNorm2d) and
            is_frozen(n + ".weight", settings) and is_frozen(n + ".bias", settings)]


def train_mode(model, settings):
    """Training as it is with frozen layers."""
    model.train()
    for norm in frozen_norms(model, settings):
        norm.eval()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not is_frozen(name, settings))
    return model


@torch.no_grad()
def prepare(model, images, settings):
    """Moves the kinks away for this batch and sets the running statistics to the batch's. Returns the margins."""
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    frozen = frozen_norms(model, settings)
    margins = []

    def normed(norm, x):
        """The first call sets the statistics, which a frozen batch norm then uses."""
        y = norm.train()(x)
        return norm.eval()(x) if norm in frozen else y

    def passed(z):
        margins.append(float(z.abs().min()))
        return F.relu(z)

    def relu(norm, z):
        return passed(z + leave_kinks(norm.bias, z))

    def squeezed_relu(norm, se, y, shortcut):
        hidden = se.fc1(y.mean((2, 3), keepdim=True))
        passed(hidden + leave_kinks(se.fc1.bias, hidden))
        shift = leave_kinks(norm.bias, y + shortcut / se.gate(y))
        taken = se.fc1.bias - (se.fc1.weight[:, :, 0, 0] @ shift.flatten())
        se.fc1.bias.copy_(taken.float().double())
        y = y + shift
        margins.append(float(se.fc1(y.mean((2, 3), keepdim=True)).abs().min()))
        return passed(se(y) + shortcut)

    for norm in norms:
        norm.momentum = 1.0
    x = relu(model.bn1, normed(model.bn1, model.conv1(images)))
    pool = float(pool_distances(x, settings.padding).min())
    x = model.maxpool(x)
    for block in (block for i in range(1, 5) for block in getattr(model, f"layer{i}")):
        shortcut = normed(block.downsample[1], block.downsample[0](x)) if block.downsample else x
        y = relu(block.bn1, normed(block.bn1, block.conv1(x)))
        if hasattr(block, "conv3"):
            y = relu(block.bn2, normed(block.bn2, block.conv2(y)))
            y = normed(block.bn3, block.conv3(y))
            x = squeezed_relu(block.bn3, block.se, y, shortcut) if hasattr(block, "se") else relu(block.bn3, y + shortcut)
        else:
            x = relu(block.bn2, normed(block.bn2, block.conv2(y)) + shortcut)
    for norm in norms:
        norm.momentum = 0.1
        norm.num_batches_tracked.zero_()
    return min(margins), pool


def start(settings):
    """(state dictionary in float32, images, labels)"""
    model = random_weights(settings).train()
    images, labels = random_images(model.conv1, settings)
    relu, pool = prepare(model, normalise(images[:settings.batch], torch.float64), settings)
    print(f"distance to a kink in step 0: ReLU {relu:.1e}, max pool {pool:.1e}")
    if relu < KINK_MARGIN or pool < KINK_MARGIN:
        sys.exit("the start is too near to a kink")
    return {k: v.float() if v.is_floating_point() else v for k, v in model.state_dict().items()}, images, labels


# ---- the runs ----

def run_torch(settings, state, images, labels, dtype, channels_last=False, narrow=False):
    """Everything that step_dump writes, as float64 arrays. narrow: under autocast to bf16."""
    model = make_model(settings)
    layout = torch.channels_last if channels_last else torch.contiguous_format

    def batch(index):
        part = slice(index * settings.batch, (index + 1) * settings.batch)
        return normalise(images[part], dtype).contiguous(memory_format=layout), labels[part]

    def logits_of(network, x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
            return network(x).to(dtype)

    def loss_of(logits, target):
        return F.cross_entropy(logits, target, label_smoothing=settings.label_smoothing)

    def load():
        model.load_state_dict(state)
        return model.to(dtype).to(memory_format=layout)

    out, parts = {}, {"logits_inference": [], "logits_training": [], "initial_loss": []}
    with torch.no_grad():
        for b in range(settings.batches):
            x, target = batch(b)
            parts["logits_inference"].append(logits_of(load().eval(), x))
            parts["logits_training"].append(logits_of(train_mode(load(), settings), x))
            parts["initial_loss"].append(loss_of(parts["logits_training"][-1], target).reshape(1))
    for name, values in parts.items():
        out[name] = torch.cat(values)

    train_mode(load(), settings)
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    head = [p for n, p in trained if n.startswith("fc.")]
    exempt = [p for n, p in trained if "bn" in n]
    decayed = [p for n, p in trained if "bn" not in n and not n.startswith("fc.")]
    optimizer = torch.optim.SGD([{"params": exempt, "weight_decay": 0.0}, {"params": decayed},
                                 {"params": head, "lr": settings.head_lr or settings.lr}], lr=settings.lr,
                                momentum=settings.momentum, weight_decay=settings.weight_decay)
    losses = []
    for step in range(settings.steps):
        x, target = batch(step % settings.cycle)
        optimizer.zero_grad()
        loss = loss_of(logits_of(model, x), target)
        loss.backward()
        losses.append(loss.detach().reshape(1))
        if step == 0:
            out.update({f"gradient.{n}": p.grad.clone() for n, p in trained})
        optimizer.step()
        if step == 0:
            out.update({f"first.{n}": p.detach().clone() for n, p in trained})
            out.update({f"state.{n}": b.clone() for n, b in model.named_buffers() if "running" in n})
    out.update({f"last.{n}": p.detach().clone() for n, p in model.named_parameters()})
    out["loss"] = torch.cat(losses)
    return {name: value.double().contiguous().numpy() for name, value in out.items()}


def run_convoy(settings, state, images, labels):
    return run_tool(settings, state, {"images": images.permute(0, 2, 3, 1).contiguous().numpy(),
                                      "labels": labels.numpy().astype(np.int32)})


def run_tool(settings, state, inputs):
    """Everything that step_dump writes for these weights and tensors."""
    weights, data, out = (os.path.join(settings.work, f"{settings.arch}.{part}.safetensors")
                          for part in ("weights", "data", "out"))
    write_safetensors(weights, {name: value.numpy() for name, value in state.items()})
    write_safetensors(data, inputs)
    options = {"arch": settings.arch, "batch": settings.batch, "cycle": settings.cycle, "steps": settings.steps, "lr": settings.lr,
               "momentum": settings.momentum, "weight-decay": settings.weight_decay,
               "label-smoothing": settings.label_smoothing, "padding": settings.padding, "device": settings.device,
               "precision": settings.precision, "threads": settings.threads}
    if settings.squeeze_width:
        options["squeeze-width"] = settings.squeeze_width
    if settings.freeze:
        options["freeze"] = settings.freeze
    if settings.head_lr:
        options["head-lr"] = settings.head_lr
    command = [settings.tool, weights, data, out]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    if subprocess.run(command).returncode != 0:
        sys.exit("step_dump failed: " + " ".join(command))
    tensors = read_safetensors(out)
    if not settings.keep:
        for path in (weights, data, out):
            os.remove(path)
    return tensors


# ---- the comparison ----

def rms(values):
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


def compare(exact, single, second, rival, narrow=False):
    """{group: [(ratio, name, relative float32 error, relative error of the rival, ratio against the first float32 path
    alone)]}; NaN counts as infinite. `second`: PyTorch's other float32 path, used where the head of this file says so.
    narrow: all but `exact` are in bf16."""
    if set(exact) != set(rival):
        sys.exit(f"tensors differ: {sorted(set(exact) ^ set(rival))[:5]}")
    groups = {}
    for name, truth in exact.items():
        if truth.shape != rival[name].shape:
            sys.exit(f"{name} has shape {rival[name].shape}, not {truth.shape}")
        size = rms(truth)
        storage = rms(truth.astype(np.float32) - truth)
        own = alone = rms(single[name] - truth)
        if narrow or name.endswith("loss") and name != "initial_loss" or name.startswith("last."):
            own = float(np.hypot(own, rms(second[name] - truth)) / np.sqrt(2))
        unit = float(np.spacing(np.float32(size))) * (BF16_UNITS if narrow else 1)
        storage = max(storage, unit / np.sqrt(12)) if truth.size <= FEW else storage
        own, alone = max(own, storage) or unit, max(alone, storage) or unit
        error = rms(rival[name].astype(np.float64) - truth)
        ratio = error / own if np.isfinite(error) else float("inf")
        groups.setdefault(name.split(".")[0], []).append((ratio, name, own / (size or 1), error / (size or 1), error / alone))
    return groups


def show(groups, limit=LIMIT):
    """Prints the distribution of each group and every tensor over the limit; returns how many there are."""
    over = []
    print(f"{'group':18} {'tensors':>7} {'median':>7} {'90 %':>7} {'max':>7}  {'own error':>10}  worst tensor")
    for group, rows in groups.items():
        ratios = [row[0] for row in rows]
        worst = max(rows)
        print(f"{group:18} {len(rows):7} {np.median(ratios):7.2f} {np.quantile(ratios, 0.9):7.2f} {worst[0]:7.2f}  "
              f"{np.median([row[2] for row in rows]):10.1e}  {worst[1]}")
        over += [row for row in rows if not row[0] <= limit]
    for ratio, name, own, error, _ in sorted(over, reverse=True)[:40]:
        print(f"over {limit:g}: {name}: ratio {ratio:.2f} (relative error {error:.2e}, PyTorch's {own:.2e})")
    return len(over)


def report(settings, groups):
    """Prints what was found and writes --json; returns how many tensors are over the limit."""
    over = show(groups, BF16_LIMIT if settings.precision == "bf16" else LIMIT)
    for group in ("last", "loss"):
        alone = [row[4] for row in groups[group]]
        print(f"information: {group} against PyTorch's NCHW path alone: median {np.median(alone):.2f}, "
              f"max {max(alone):.2f}")
    summary = {"arch": settings.arch, "padding": settings.padding, "squeeze_width": settings.squeeze_width, "image_size": settings.size, "batch_size": settings.batch,
               "steps": settings.steps, "rival": settings.rival or settings.device, "over": over,
               "groups": {g: {"tensors": len(rows), "median": float(np.median([r[0] for r in rows])),
                              "max": max(rows)[0], "worst": max(rows)[1]} for g, rows in groups.items()}}
    if settings.json:
        with open(settings.json, "w") as file:
            json.dump(summary, file, indent=1)
    return over


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tool", default="build/tests/step_dump", help="the step_dump program")
    parser.add_argument("--work", default=".", help="folder for the files passed between the two")
    parser.add_argument("--keep", action="store_true", help="keep these files")
    parser.add_argument("--arch", choices=networks.NETWORKS, default="resnet18")
    parser.add_argument("--squeeze-width", help="16, c/16 (default: the network's)")
    parser.add_argument("--padding", choices=("torch", "same"), default="torch")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--batches", type=int, default=4, help="different batches")
    parser.add_argument("--cycle", type=int, default=1, help="of these the steps take so many in turn")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--head-lr", type=float, default=0, help="of the classifier (0: that of --lr)")
    parser.add_argument("--freeze", default="", help="prefixes of parameters that stay, separated by commas")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--label-smoothing", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1, help="of the weights")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rival", choices=("channels-last", "no-onednn"),
                        help="another float32 path of PyTorch in Convoy's place, to see what the limit means")
    parser.add_argument("--json", help="write the result to this file")
    return parser.parse_args()


def main():
    settings = parse()
    torch.set_num_threads(settings.threads)
    clock = time.monotonic()
    state, images, labels = start(settings)

    def timed(name, function):
        begin = time.monotonic()
        result = function()
        print(f"{name}: {time.monotonic() - begin:.1f} s, loss of the steps "
              + " ".join(f"{v:.4f}" for v in result["loss"]), flush=True)
        return result

    exact = timed("PyTorch float64", lambda: run_torch(settings, state, images, labels, torch.float64))
    narrow = settings.precision == "bf16"
    name = "PyTorch bf16" if narrow else "PyTorch float32"
    single = timed(name, lambda: run_torch(settings, state, images, labels, torch.float32, narrow=narrow))
    second = timed(f"{name}, channels-last",
                   lambda: run_torch(settings, state, images, labels, torch.float32, channels_last=True, narrow=narrow))
    if settings.rival:
        with torch.backends.mkldnn.flags(enabled=settings.rival != "no-onednn"):
            rival = timed(settings.rival, lambda: run_torch(settings, state, images, labels, torch.float32,
                                                            settings.rival == "channels-last", narrow))
    else:
        rival = timed(f"Convoy {settings.device}", lambda: run_convoy(settings, state, images, labels))
    over = report(settings, compare(exact, single, second, rival, narrow))
    print(f"{settings.arch}, {settings.size} pixels: {'equal' if over == 0 else f'{over} tensors differ'}; {time.monotonic() - clock:.0f} s")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
