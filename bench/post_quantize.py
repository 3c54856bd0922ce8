#!/usr/bin/env python3
"""Post-training quantisation beside NNCF's: points of top-1 that each loses on the same network, over three draws of the
calibration images, and the share of images with the same answer as in floats.

    bench/post_quantize.py WEIGHTS DATA [--convoy build/convoy] [--images 300] [--threads 1] [-- OPTION...]

DATA is an image folder with train/ and val/. What follows -- goes to `convoy quantize`. Convoy's side is what its report says with
--max-drop 100: no layer is left in floats but what makes the factors of a squeeze-and-excitation. NNCF quantises the ONNX file
that `convoy convert` writes and OpenVINO runs both; without the packages nncf, openvino and Pillow only Convoy's side is printed.
Each side is compared with its own network in floats, for Pillow resizes a little differently. Answers, not speed: the machine may
be busy."""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile


def convoy_side(arguments, seed, output):
    words = [arguments.convoy, "-q", "quantize", arguments.weights, output, "--data", arguments.data, "--max-drop", "100",
             "--images", str(arguments.images), "--seed", str(seed), "--threads", str(arguments.threads), "--format", "json"]
    report = json.loads(subprocess.run(words + arguments.rest, check=True, stdout=subprocess.PIPE).stdout)
    accuracy = "ap" if "ap" in report["floats"] else "top1"
    return report["floats"][accuracy], report["lost"], report["agreement"]


def tensor(path, side, resize):
    import numpy
    from PIL import Image
    image = Image.open(path).convert("RGB")
    width, height = image.size
    scale = resize / min(width, height)
    size = (resize, int(height * scale)) if width < height else (int(width * scale), resize)
    left, top = round((size[0] - side) / 2), round((size[1] - side) / 2)
    pixels = numpy.asarray(image.resize(size, Image.BILINEAR).crop((left, top, left + side, top + side)), numpy.float32)
    pixels = (pixels - [123.675, 116.28, 103.53]) / [58.395, 57.12, 57.375]
    return pixels.astype(numpy.float32).transpose(2, 0, 1)[None]


def answers(core, model, images):
    import numpy
    compiled = core.compile_model(model, "CPU")
    parts = [list(compiled([images[i:i + 32]]).values())[0].argmax(1) for i in range(0, len(images), 32)]
    return numpy.concatenate(parts)


def nncf_side(arguments, folder):
    import nncf
    import numpy
    import openvino
    network = os.path.join(folder, "network.onnx")
    subprocess.run([arguments.convoy, "-q", "convert", arguments.weights, network], check=True, stdout=subprocess.DEVNULL)
    info = json.loads(subprocess.run([arguments.convoy, "info", arguments.weights, "--format", "json", "--runs", "0"],
                                     check=True, stdout=subprocess.PIPE).stdout)
    side, resize = info["image_size"], info["eval_resize"]
    core = openvino.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": arguments.threads})
    files = sorted(glob.glob(os.path.join(arguments.data, "val", "*", "*")))
    classes = sorted(os.listdir(os.path.join(arguments.data, "val")))
    labels = numpy.array([classes.index(os.path.basename(os.path.dirname(name))) for name in files])
    images = numpy.concatenate([tensor(name, side, resize) for name in files])
    floats = answers(core, core.read_model(network), images)
    train = sorted(glob.glob(os.path.join(arguments.data, "train", "*", "*")))
    for seed in range(3):
        drawn = sorted(numpy.random.RandomState(seed).permutation(len(train))[:arguments.images])
        data = nncf.Dataset([tensor(train[i], side, resize) for i in drawn])
        rounded = answers(core, nncf.quantize(core.read_model(network), data, subset_size=arguments.images), images)
        yield (100 * (floats == labels).mean(), 100 * ((floats == labels).mean() - (rounded == labels).mean()),
               100 * (floats == rounded).mean())


def show(name, rows):
    rows = list(rows)
    mean = sum(row[1] for row in rows) / len(rows)
    agreement = "" if rows[0][2] is None else "   same answer %.2f %%" % (sum(row[2] for row in rows) / len(rows))
    print("%-8s floats %.2f %%   lost %s: mean %.3f%s" %
          (name, rows[0][0], " ".join("%.3f" % row[1] for row in rows), mean, agreement), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights")
    parser.add_argument("data")
    parser.add_argument("--convoy", default="build/convoy")
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:split])
    arguments.rest = words[split + 1:]
    with tempfile.TemporaryDirectory(prefix="post-quantize-") as folder:
        show("convoy", (convoy_side(arguments, seed, os.path.join(folder, "int8.safetensors")) for seed in range(3)))
        try:
            show("nncf", nncf_side(arguments, folder))
        except ImportError as error:
            print("nncf     not here: %s" % error)


if __name__ == "__main__":
    sys.exit(main())
