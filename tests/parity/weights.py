"""Weights files against the libraries that people load them with.

  weights.py --convoy PROGRAM --work FOLDER --with torchvision|timm|safetensors

torchvision: state dicts of PyTorch go through Convoy in every naming and format and come back with the same bits, dtypes
and order, loaded with weights_only=True and strict=True; views, halves, checkpoints as training programs write them, and
files that must be refused. timm and safetensors: the same for those libraries. Exits 77 where a library is missing.
"""
import argparse
import collections
import os
import subprocess
import sys


def skip(what):
    print(f"skipped: {what} is missing")
    sys.exit(1 if os.environ.get("CONVOY_CI") else 77)


try:
    import torch
    import torchvision
except ImportError:
    skip("torch or torchvision")

checks = failures = 0


def expect(good, what):
    global checks, failures
    checks += 1
    if not good:
        failures += 1
        print("FAILED:", what)


class Convoy:
    def __init__(self, program, work):
        self.program, self.work = program, work

    def path(self, name):
        return os.path.join(self.work, name)

    def run(self, *arguments):
        return subprocess.run([self.program, "-q", *arguments], capture_output=True, text=True)

    def convert(self, source, target, *options):
        done = self.run("convert", self.path(source), self.path(target), *options)
        expect(done.returncode == 0, f"convert {source} {target} {options}: {done.stderr}")
        return self.path(target)

    def refuse(self, source, code, text):
        done = self.run("info", self.path(source))
        expect(done.returncode == code and text in done.stderr and done.stderr.count("\n") == 1,
               f"{source}: exit {code} with {text!r}, not {done.returncode}: {done.stderr}")

    def save(self, value, name, **options):
        torch.save(value, self.path(name), **options)


def load(path):
    return torch.load(path, map_location="cpu", weights_only=True)


def same(a, b):
    """Same names in the same order, same types, same bits (NaN too)."""
    def bits(tensor):
        return tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor
    return list(a) == list(b) and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and torch.equal(bits(a[k]), bits(b[k])) for k in a)


def randomize(model):
    """Weights and statistics of their own, so that no two tensors could stand for each other."""
    generator = torch.Generator().manual_seed(0)
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
        else:
            tensor.fill_(17)
    return model


def nvidia(state):
    """The names of NVIDIA's current programs."""
    renamed = collections.OrderedDict()
    for name, tensor in state.items():
        if name.startswith("layer"):
            name = f"layers.{int(name[5]) - 1}{name[6:]}"
        name = name.replace(".se.fc1.", ".squeeze.squeeze.").replace(".se.fc2.", ".squeeze.expand.")
        squeeze = name.endswith(("squeeze.weight", "expand.weight"))
        renamed[name] = tensor.flatten(1) if squeeze else tensor
    return renamed


def nvidia2019(state):
    return collections.OrderedDict(
        (name.replace(f"layers.{name[7]}", f"layer{int(name[7]) + 1}", 1) if name.startswith("layers.") else name, tensor)
        for name, tensor in nvidia(state).items())


def legacy(state):
    """timm's legacy SE networks: the names alone."""
    renamed = collections.OrderedDict()
    for name, tensor in state.items():
        if name.startswith(("conv1.", "bn1.")):
            name = "layer0." + name
        renamed[name.replace("fc.", "last_linear.") if name.startswith("fc.") else
                name.replace(".se.", ".se_module.")] = tensor
    return renamed


def round_trips(convoy, name, model):
    """Every scheme and format, in both directions."""
    state = model.state_dict()
    convoy.save(state, "in.pth")
    schemes = {"torchvision": lambda s: s, "timm": lambda s: s, "nvidia": nvidia, "nvidia2019": nvidia2019}
    for scheme, rename in schemes.items():
        convoy.save(rename(state), "named.pth")
        there = load(convoy.convert("in.pth", "there.pth", "--naming", scheme))
        expect(same(there, rename(state)), f"{name}: written with --naming {scheme}")
        back = load(convoy.convert("named.pth", "back.pt"))
        expect(same(back, state), f"{name}: read from {scheme}")
    convoy.save(legacy(state), "named.pth")
    expect(same(load(convoy.convert("named.pth", "back.pth")), state), f"{name}: read from timm's legacy names")
    convoy.convert("in.pth", "x.safetensors")
    convoy.convert("x.safetensors", "y.pth.tar")
    state_again = load(convoy.convert("y.pth.tar", "back.pth"))
    expect(same(state_again, state), f"{name}: through safetensors and .pth.tar")
    expect(not model.load_state_dict(state_again, strict=True).missing_keys, f"{name}: strict loading")


def training_programs(convoy, model):
    """Checkpoints as NVIDIA's, torchvision's and timm's programs save them."""
    state = model.state_dict()
    parallel = collections.OrderedDict(("module." + k, v) for k, v in state.items())
    groups = [[p for n, p in model.named_parameters() if "bn" in n], [p for n, p in model.named_parameters() if "bn" not in n]]
    optimizer = torch.optim.SGD([{"params": groups[0], "weight_decay": 0}, {"params": groups[1], "weight_decay": 0.25}],
                                lr=0.5, momentum=0.875)
    model.train()
    model(torch.rand(2, 3, 32, 32)).square().mean().backward()
    optimizer.step()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    parallel = collections.OrderedDict(("module." + k, v) for k, v in state.items())
    arguments = argparse.Namespace(lr=0.1, model="resnet18", output=None)

    convoy.save({"epoch": 3, "arch": ("resnet18", "fanin"), "state_dict": parallel, "best_prec1": 61.5,
                 "state_dict_ema": parallel, "optimizer": optimizer.state_dict()}, "nvidia.pth.tar")
    convoy.save({"model": state, "optimizer": optimizer.state_dict(), "lr_scheduler": {"last_epoch": 3}, "epoch": 3,
                 "args": arguments, "model_ema": {**{"module." + k: v for k, v in parallel.items()},
                                                  "n_averaged": torch.tensor(7)}}, "torchvision.pth")
    convoy.save({"epoch": 3, "arch": "resnet18", "state_dict": state, "version": 2, "args": arguments,
                 "amp_scaler": {"scale": 65536.0}, "metric": 61.5, "state_dict_ema": state}, "timm.pth.tar")
    for source in "nvidia.pth.tar", "torchvision.pth", "timm.pth.tar":
        expect(same(load(convoy.convert(source, "out.pth")), state), f"{source}: weights")
        expect(same(load(convoy.convert(source, "out.pth", "--ema")), state), f"{source}: average")
    convoy.convert("nvidia.pth.tar", "all.safetensors")
    again = torch.load(convoy.convert("all.safetensors", "again.pth.tar"), map_location="cpu")
    expect(again["epoch"] == 3 and again["best_prec1"] == 61.5 and again["arch"] == "resnet18", "NVIDIA's numbers")
    expect(same(again["state_dict"], state) and same(again["state_dict_ema"], state), "NVIDIA's weights")
    saved = optimizer.state_dict()
    for number, entry in saved["state"].items():
        expect(torch.equal(again["optimizer"]["state"][number]["momentum_buffer"], entry["momentum_buffer"]),
               f"momentum {number}")
    fresh = torch.optim.SGD([{"params": groups[0]}, {"params": groups[1]}], lr=1)
    fresh.load_state_dict(again["optimizer"])
    expect([g["weight_decay"] for g in fresh.param_groups] == [0, 0.25] and fresh.param_groups[0]["lr"] == 0.5 and
           fresh.param_groups[1]["momentum"] == 0.875, "the optimizer's numbers")
    fresh.step()


def odd_tensors(convoy, model):
    """Memory orders and types that state dicts come in."""
    state = model.state_dict()
    odd = collections.OrderedDict(state)
    big = torch.cat([state["fc.weight"], state["fc.weight"]])
    odd["fc.weight"] = big[len(big) // 2:]                       # a piece of a larger storage
    odd["layer1.0.conv1.weight"] = state["layer1.0.conv1.weight"].contiguous(memory_format=torch.channels_last)
    odd["conv1.weight"] = state["conv1.weight"].permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    odd["bn1.weight"] = torch.nn.Parameter(state["bn1.weight"])
    convoy.save(odd, "odd.pth")
    expect(same(load(convoy.convert("odd.pth", "out.pth")), state), "views")
    for dtype in torch.float64, torch.float16, torch.bfloat16:
        typed = collections.OrderedDict((k, v.to(dtype) if v.is_floating_point() else v) for k, v in state.items())
        convoy.save(typed, "typed.pth")
        convoy.convert("typed.pth", "typed.safetensors")
        expect(same(load(convoy.convert("typed.safetensors", "out.pth")), typed), f"{dtype}")


def old_format(convoy, model):
    """What PyTorch before 1.6 wrote, and what it still writes when asked to."""
    old = {"_use_new_zipfile_serialization": False}
    state = model.state_dict()
    convoy.save(state, "old.pth", **old)
    expect(same(load(convoy.convert("old.pth", "out.pth")), state), "the format before 1.6")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.875)
    sum(parameter.sum() for parameter in model.parameters()).backward()
    optimizer.step()
    convoy.save({"epoch": 3, "state_dict": {"module." + name: tensor.half() if tensor.dtype == torch.float32 else tensor
                                            for name, tensor in state.items()}, "optimizer": optimizer.state_dict()},
                "old.pth.tar", **old)
    halves = collections.OrderedDict((name, tensor.half() if tensor.dtype == torch.float32 else tensor)
                                     for name, tensor in state.items())
    expect(same(load(convoy.convert("old.pth.tar", "out.pth")), halves), "a checkpoint of the format before 1.6")
    views = collections.OrderedDict((name, tensor.t().contiguous().t() if tensor.ndim == 2 else tensor)
                                    for name, tensor in state.items())
    convoy.save(views, "old.pth", **old)
    expect(same(load(convoy.convert("old.pth", "out.pth")), state), "views in the format before 1.6")
    convoy.save(model, "old.pth", **old)
    convoy.refuse("old.pth", 65, "torchvision.models.resnet.ResNet")


class Whole(torch.nn.Module):
    """A model saved as a whole: its class is a global that no reader may call."""
    pass


def refused(convoy, model):
    state = model.state_dict()
    convoy.save(Whole(), "whole.pth")
    convoy.refuse("whole.pth", 65, "__main__.Whole")
    convoy.save(state, "four.pth", pickle_protocol=4)
    convoy.refuse("four.pth", 65, "protocol 4")
    torch.jit.script(torch.nn.Linear(2, 2)).save(convoy.path("script.pt"))
    convoy.refuse("script.pt", 65, "TorchScript")
    convoy.save({"state_dict": {k: v.to(torch.complex64) for k, v in state.items() if k == "fc.bias"}}, "complex.pth")
    convoy.refuse("complex.pth", 65, "torch.ComplexFloatStorage")
    convoy.save(torch.zeros(3), "single.pth")
    convoy.refuse("single.pth", 65, "a single tensor")
    with open(convoy.path("in.pth"), "rb") as file:
        content = bytearray(file.read())
    content[len(content) // 2] ^= 1
    with open(convoy.path("flipped.pth"), "wb") as file:
        file.write(content)
    convoy.refuse("flipped.pth", 65, "wrong CRC")
    with open(convoy.path("cut.pth"), "wb") as file:
        file.write(content[:len(content) * 9 // 10])
    convoy.refuse("cut.pth", 65, "truncated")


def with_torchvision(convoy):
    for name in "resnet18", "resnet50":
        model = randomize(getattr(torchvision.models, name)(num_classes=11))
        round_trips(convoy, name, model)
    small = randomize(torchvision.models.resnet18(num_classes=11))
    odd_tensors(convoy, small)
    convoy.save(small.state_dict(), "in.pth")
    old_format(convoy, small)
    refused(convoy, small)
    training_programs(convoy, small)


def with_timm(convoy):
    try:
        import timm
    except ImportError:
        skip("timm")
    for name in "resnet18", "resnet50", "resnext50_32x4d", "seresnet50", "seresnext101_32x4d":
        round_trips(convoy, name, randomize(timm.create_model(name, num_classes=11)))
    state = randomize(timm.create_model("legacy_seresnext101_32x4d", num_classes=11)).state_dict()
    convoy.save(state, "in.pth")
    read = load(convoy.convert("in.pth", "out.pth"))
    expect(same(legacy(read), state), "legacy_seresnext101_32x4d")


def with_safetensors(convoy):
    try:
        import safetensors.torch
    except ImportError:
        skip("safetensors")
    state = randomize(torchvision.models.resnet18(num_classes=11)).state_dict()
    safetensors.torch.save_file(dict(state), convoy.path("in.safetensors"), metadata={"format": "pt"})
    expect(same(load(convoy.convert("in.safetensors", "out.pth")), state), "safetensors from Python")
    convoy.save(state, "in.pth")
    written = safetensors.torch.load_file(convoy.convert("in.pth", "out.safetensors"))
    expect(same({k: written[k] for k in state}, state) and len(written) == len(state), "safetensors to Python")
    with safetensors.safe_open(convoy.path("out.safetensors"), "pt") as file:
        expect(file.metadata()["convoy.arch"] == '"resnet18"', "metadata")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--convoy", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--with", dest="library", action="append", choices=["torchvision", "timm", "safetensors"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("torch", torch.__version__)
    for library in options.library:
        convoy = Convoy(options.convoy, options.work)
        {"torchvision": with_torchvision, "timm": with_timm, "safetensors": with_safetensors}[library](convoy)
    print(f"{checks} checks, {failures} failed")
    sys.exit(1 if failures or not checks else 0)


main()
