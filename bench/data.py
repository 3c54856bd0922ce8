#!/usr/bin/env python3
"""The loader beside others: how many images of a folder one core reads, decodes and transforms in a second.

Every side makes batches of 32 uint8 images of 224 pixels from the same JPEG files, in one thread on one core: the training
transform (random resized crop with an antialiased resize, mirror) and the validation transform (resize to 256, centre
crop). Each round starts one process of each side for each transform, in an order drawn anew. Reported: medians over the
rounds and what Convoy is times faster. The figure is images for each second of processor time, which other programs on
the machine disturb least; --clock wall takes the wall clock.

    bench/data.py $CONVOY_TEST_DATA/imagenet-samples --rounds 5
    bench/data.py DIR --peers pillow,v2,dali --python PYTHON --json data.json

Peers: pillow (torchvision's transforms on Pillow's images), v2 (torchvision's on tensors, behind its decode_jpeg), dali (NVIDIA
DALI's CPU operators), ffcv (RandomResizedCrop of a .beton file, in which the images are JPEGs of quality 90). Those that PYTHON
cannot import are left out, and said so. The last lines are Convoy with one and with two threads, on the wall clock.

The exit code is 1 when training is below 1.9 times pillow or 1.3 times v2, validation below 2 times pillow, either below dali
or ffcv, or two threads below 1.9 times one. It is 77 where that is not shown: one of the peers asked for (all of them,
without --peers) or a second core is missing, or there are no images.
"""
import argparse
import glob
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
SIZE, RESIZE, BATCH = 224, 256, 32
LEAST = {("train", "pillow"): 1.9, ("train", "v2"): 1.3, ("val", "pillow"): 2.0, ("train", "dali"): 1.0, ("val", "dali"): 1.0,
         ("train", "ffcv"): 1.0, ("val", "ffcv"): 1.0}
LEAST_SCALING = 1.9
MODULES = {"pillow": "torchvision, PIL", "v2": "torchvision.transforms.v2", "dali": "nvidia.dali", "ffcv": "ffcv"}


# ---- the peers, each in a process of its own ----

def each_path(files, train):
    """Paths without end, shuffled anew each time for training."""
    generator = random.Random(0)
    while True:
        if train:
            files = generator.sample(files, len(files))
        yield from files


def batches_of_tensors(paths, load):
    import torch
    while True:
        yield torch.stack([load(next(paths)) for _ in range(BATCH)])


def pillow(files, train):
    import torch
    from PIL import Image
    from torchvision import transforms
    torch.set_num_threads(1)
    steps = [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip()] if train else [
        transforms.Resize(RESIZE), transforms.CenterCrop(SIZE)]
    transform = transforms.Compose([*steps, transforms.PILToTensor()])

    def load(path):
        with open(path, "rb") as file:
            return transform(Image.open(file).convert("RGB"))
    return batches_of_tensors(each_path(files, train), load)


def v2(files, train):
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms import v2 as transforms
    torch.set_num_threads(1)
    steps = [transforms.RandomResizedCrop(SIZE, antialias=True), transforms.RandomHorizontalFlip()] if train else [
        transforms.Resize(RESIZE, antialias=True), transforms.CenterCrop(SIZE)]
    transform = transforms.Compose(steps)
    return batches_of_tensors(each_path(files, train),
                              lambda path: transform(decode_jpeg(read_file(path), mode=ImageReadMode.RGB)))


def dali(files, train):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=None)
    def pipeline():
        encoded, _ = fn.readers.file(files=files, random_shuffle=train)
        if train:
            images = fn.decoders.image_random_crop(encoded, device="cpu", output_type=types.RGB,
                                                   random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
            images = fn.resize(images, resize_x=SIZE, resize_y=SIZE, interp_type=types.INTERP_TRIANGULAR)
            return fn.flip(images, horizontal=fn.random.coin_flip())
        images = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
        images = fn.resize(images, resize_shorter=RESIZE, interp_type=types.INTERP_TRIANGULAR)
        return fn.crop(images, crop=(SIZE, SIZE), dtype=types.UINT8)

    made = pipeline()
    made.build()
    while True:
        yield made.run()


def ffcv(files, train):
    import numpy
    from PIL import Image
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor
    from ffcv.writer import DatasetWriter

    class Images:
        def __len__(self):
            return max(len(files), 8 * BATCH)

        def __getitem__(self, index):
            return numpy.asarray(Image.open(files[index % len(files)]).convert("RGB")), 0

    with tempfile.TemporaryDirectory() as folder:
        packed = os.path.join(folder, "images.beton")
        DatasetWriter(packed, {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()},
                      num_workers=1).from_indexed_dataset(Images())
        steps = [RandomResizedCropRGBImageDecoder((SIZE, SIZE)), RandomHorizontalFlip(), ToTensor()] if train else [
            CenterCropRGBImageDecoder((SIZE, SIZE), ratio=SIZE / RESIZE), ToTensor()]
        loader = Loader(packed, batch_size=BATCH, num_workers=1, batches_ahead=2, drop_last=True,
                        order=OrderOption.RANDOM if train else OrderOption.SEQUENTIAL, pipelines={"image": steps, "label": None})
        while True:
            yield from loader


def run_peer(name, files, train, seconds):
    batches = {"pillow": pillow, "v2": v2, "dali": dali, "ffcv": ffcv}[name](files, train)
    for _ in range(4):
        next(batches)
    begin, begin_cpu, count = time.monotonic(), time.process_time(), 0
    while time.monotonic() - begin < seconds:
        next(batches)
        count += BATCH
    print(json.dumps({"images_per_second": count / (time.monotonic() - begin),
                      "images_per_cpu_second": count / (time.process_time() - begin_cpu)}), flush=True)
    os._exit(0)  # without the peers' clean-up, which is not measured


# ---- the rounds ----

def measure(command, core, folder):
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    pin = (lambda: os.sched_setaffinity(0, {core})) if core is not None else None
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, preexec_fn=pin, cwd=folder, check=False)
    if done.returncode != 0:
        sys.exit(f"failed with exit code {done.returncode}: {' '.join(command)}")
    return json.loads(done.stdout)


def ours(settings, split, threads):
    return [settings.convoy, "-q", "bench", "data", settings.folder, "--split", split, "--image-size", str(SIZE), "--workers",
            str(threads), "--decode", settings.decode, "--seconds", str(settings.seconds), "--format", "json"]


def theirs(settings, split, name):
    return [settings.python, os.path.abspath(__file__), settings.folder, "--peer", name, "--split", split, "--seconds",
            str(settings.seconds)]


def available(settings):
    """The peers that are there, and those that are not."""
    found, missing = [], []
    for name in settings.peers.split(","):
        if name not in MODULES:
            sys.exit(f"{name} is none of {', '.join(MODULES)}")
        test = subprocess.run([settings.python, "-c", f"import {MODULES[name]}"], stderr=subprocess.PIPE, check=False)
        if test.returncode == 0:
            found.append(name)
        else:
            missing.append(name)
            print(f"{name} is left out: {test.stderr.decode().strip().splitlines()[-1]}", file=sys.stderr)
    return found, missing


def run_rounds(settings, peers):
    field = "images_per_cpu_second" if settings.clock == "cpu" else "images_per_second"
    cores = sorted(os.sched_getaffinity(0))
    rates = {}
    for i in range(settings.rounds):
        cases = [(split, name) for split in ("train", "val") for name in ["convoy", *peers]]
        random.Random(i).shuffle(cases)
        if len(cores) > 1:
            cases += [("scaling", 1), ("scaling", 2)] if i % 2 == 0 else [("scaling", 2), ("scaling", 1)]
        for split, name in cases:
            if split == "scaling":
                result = measure(ours(settings, "train", name), None, None)["images_per_second"]
            elif name == "convoy":
                result = measure(ours(settings, split, 1), cores[-1], None)[field]
            else:
                result = measure(theirs(settings, split, name), cores[-1], None)[field]
            rates.setdefault((split, name), []).append(result)
            print(f"round {i + 1}: {split} {name} {result:.0f}", file=sys.stderr, flush=True)
    return rates


def report(settings, peers, missing, rates):
    median = {case: statistics.median(values) for case, values in rates.items()}
    missed, unshown = [], list(missing)
    print(f"| images/s{' of processor time' if settings.clock == 'cpu' else ''}, one thread | "
          + " | ".join(["Convoy", *peers]) + " |")
    print("|---|" + "---|" * (len(peers) + 1))
    for split in ("train", "val"):
        cells = [f"{median[split, 'convoy']:.0f}"]
        for name in peers:
            ratio = median[split, "convoy"] / median[split, name]
            cells.append(f"{median[split, name]:.0f} ({ratio:.2f})")
            if ratio < LEAST.get((split, name), 0):
                missed.append(f"{split}: {ratio:.2f} times {name}, {LEAST[split, name]} wanted")
        print(f"| {'training' if split == 'train' else 'validation'} transform | " + " | ".join(cells) + " |")
    if ("scaling", 2) in median:
        ratio = median["scaling", 2] / median["scaling", 1]
        print(f"\ntwo threads: {median['scaling', 2]:.0f} images/s, one: {median['scaling', 1]:.0f}, ratio {ratio:.2f}")
        if ratio < LEAST_SCALING:
            missed.append(f"two threads are {ratio:.2f} times as fast as one, {LEAST_SCALING} wanted")
    else:
        unshown.append("two threads")
    if settings.json:
        with open(settings.json, "w", encoding="utf-8") as file:
            json.dump([{"case": list(map(str, case)), "rates": values} for case, values in rates.items()], file, indent=1)
    for line in missed:
        print(line, file=sys.stderr)
    if unshown:
        print(f"not shown: {', '.join(unshown)}")
    return 1 if missed else 77 if unshown else 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    venv = os.path.join(os.environ.get("CONVOY_PEERS", os.path.expanduser("~/.cache/convoy-peers")), "bin/python")
    parser.add_argument("folder", nargs="?", default=os.path.join(os.environ.get("CONVOY_TEST_DATA", ""), "imagenet-samples"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement")
    parser.add_argument("--peers", default=",".join(MODULES))
    parser.add_argument("--clock", choices=["cpu", "wall"], default="cpu")
    parser.add_argument("--decode", choices=["exact", "fast"], default="exact")
    parser.add_argument("--convoy", default=os.environ.get("CONVOY", os.path.join(FOLDER, "../build/convoy")))
    parser.add_argument("--python", default=venv if os.path.exists(venv) else "/usr/bin/python3", help="for the peers")
    parser.add_argument("--json", help="every round, to this file")
    parser.add_argument("--peer", choices=list(MODULES), help=argparse.SUPPRESS)
    parser.add_argument("--split", choices=["train", "val"], help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    settings = parse()
    settings.folder = os.path.abspath(settings.folder)
    files = sorted(path for ending in ("jpg", "jpeg", "JPG", "JPEG")
                   for path in glob.glob(os.path.join(glob.escape(settings.folder), f"**/*.{ending}"), recursive=True))
    if not files:
        print(f"skipped: no JPEGs in {settings.folder}")
        return 77
    if settings.peer:
        return run_peer(settings.peer, files, settings.split == "train", settings.seconds)
    peers, missing = available(settings)
    return report(settings, peers, missing, run_rounds(settings, peers))


if __name__ == "__main__":
    sys.exit(main())
