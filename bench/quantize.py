#!/usr/bin/env python3
"""What quantisation-aware training costs in accuracy: trains a network in fp32, fine-tunes it once in fp32 and once
with --quantize for the same number of epochs, evaluates all three and prints the differences.

    bench/quantize.py DATA [--convoy build/convoy] [--arch resnet50] [--epochs 12] [--tune 3] [--lr 0.1]
                      [--tune-lr 0.001] [--asymmetric] [--work FOLDER] [-- OPTION...]

DATA is an image folder with train/ and val/. What follows -- goes to every run of training: --image-size 64,
--batch-size 64, --prof 20 for a short try. The claim is that the quantised network loses less than 1 point of top-1
against the fp32 network of the same length; the exit status is 0 when it does, 1 when it does not."""
import argparse
import json
import os
import subprocess
import sys
import tempfile


def run(words):
    print("+ " + " ".join(words), file=sys.stderr, flush=True)
    subprocess.run(words, check=True)


def train(arguments, name, more):
    folder = os.path.join(arguments.work, name)
    if not os.path.exists(os.path.join(folder, "model_best.safetensors")):
        run([arguments.convoy, "train", arguments.data, "--workspace", folder] + more + arguments.rest)
    return os.path.join(folder, "model_best.safetensors")


def top1(arguments, weights):
    words = [arguments.convoy, "-q", "evaluate", arguments.data, "--weights", weights, "--format", "json"]
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)["top1"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--convoy", default="build/convoy")
    parser.add_argument("--arch", default="resnet50")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--tune", type=int, default=3, help="epochs of both fine-tunings")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--tune-lr", type=float, default=0.001)
    parser.add_argument("--asymmetric", action="store_true")
    parser.add_argument("--work", help="folder of the runs; those that are there already are not repeated")
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:split])
    arguments.rest = words[split + 1:]
    arguments.work = arguments.work or tempfile.mkdtemp(prefix="quantize-")
    base = train(arguments, "fp32", ["--arch", arguments.arch, "--epochs", str(arguments.epochs), "--lr",
                                     str(arguments.lr)])
    tune = ["--pretrained-weights", base, "--epochs", str(arguments.tune), "--lr", str(arguments.tune_lr), "--warmup",
            "0"]
    longer = train(arguments, "fp32-tuned", tune)
    form = [] if arguments.asymmetric else ["--symmetric"]
    quantized = train(arguments, "int8-tuned", tune + ["--quantize"] + form)
    results = {"fp32": top1(arguments, base), "fp32 tuned": top1(arguments, longer),
               "quantised": top1(arguments, quantized)}
    for name, accuracy in results.items():
        print("%-12s %6.2f %%" % (name, accuracy))
    loss = max(results["fp32"], results["fp32 tuned"]) - results["quantised"]
    print("quantisation costs %.2f points of top-1 against the better fp32 network" % loss)
    return 0 if loss < 1 else 1


if __name__ == "__main__":
    sys.exit(main())
