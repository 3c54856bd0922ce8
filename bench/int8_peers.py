#!/usr/bin/env python3
"""Networks of 8-bit integers beside OpenVINO's and ONNX Runtime's, and beside Convoy's own floats, on one CPU.

    bench/int8_peers.py --weights FLOATS.safetensors --quantized INT8.safetensors [--batch-sizes 1,32] [--rounds 5]

Every round gives each side its turn, in an order drawn anew; reported is the median over the rounds of the median time of a
batch. Convoy is `convoy bench infer` over random images in memory; OpenVINO runs
what NNCF's post-training quantisation makes of the ONNX file in floats, ONNX Runtime the ONNX file of the quantised network.
Needs the packages openvino, nncf, onnxruntime and numpy in this Python. Nothing else may run on the machine."""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time


def median_ms(call, seconds):
    call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def convoy_side(arguments, weights, batch, precision):
    words = [arguments.convoy, "-q", "bench", "infer", "--weights", weights, "--batch-size", str(batch), "--image-size",
             str(arguments.image_size), "--threads", str(arguments.threads), "--iterations",
             str(max(3, arguments.images // batch)), "--format", "json"]
    words += ["--precision", precision] if precision else []
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads), OMP_PROC_BIND="close")
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(done.stdout)[0]["latency_ms"]["p50"]


def convert(arguments, weights, output):
    subprocess.run([arguments.convoy, "-q", "convert", weights, output, "--image-size", str(arguments.image_size)],
                   check=True, stdout=subprocess.DEVNULL)
    return output


def peers(arguments, folder, batch):
    import numpy
    import onnxruntime
    import openvino
    import nncf
    shape = (batch, 3, arguments.image_size, arguments.image_size)
    x = numpy.random.RandomState(0).randn(*shape).astype(numpy.float32)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    session = onnxruntime.InferenceSession(convert(arguments, arguments.quantized, os.path.join(folder, "int8.onnx")), options)
    core = openvino.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": arguments.threads})
    model = core.read_model(convert(arguments, arguments.weights, os.path.join(folder, "floats.onnx")))
    model.reshape(list(shape))
    draws = numpy.random.RandomState(1)
    data = nncf.Dataset([draws.randn(*shape).astype(numpy.float32) for _ in range(2)])
    compiled = core.compile_model(nncf.quantize(model, data, subset_size=2), "CPU")
    ours = core.read_model(os.path.join(folder, "int8.onnx"))
    ours.reshape(list(shape))
    compiled_ours = core.compile_model(ours, "CPU")
    return {"OpenVINO int8 (NNCF)": lambda: median_ms(lambda: compiled([x]), arguments.seconds),
            "OpenVINO int8 (this file)": lambda: median_ms(lambda: compiled_ours([x]), arguments.seconds),
            "ONNX Runtime int8": lambda: median_ms(lambda: session.run(None, {"input": x}), arguments.seconds)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--quantized", required=True)
    parser.add_argument("--convoy", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/convoy"))
    parser.add_argument("--batch-sizes", default="1,32")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--images", type=int, default=40, help="of a turn of Convoy")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of a turn of a peer")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    order = random.Random(0)
    for batch in map(int, arguments.batch_sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            sides = peers(arguments, folder, batch)
            for name, weights, precision in (("Convoy int8", arguments.quantized, None), ("Convoy fp32", arguments.weights, "fp32"),
                                             ("Convoy bf16", arguments.weights, "bf16")):
                sides[name] = lambda w=weights, p=precision: convoy_side(arguments, w, batch, p)
            times = {name: [] for name in sides}
            for _ in range(arguments.rounds):
                turn = list(sides)
                order.shuffle(turn)
                for name in turn:
                    times[name].append(sides[name]())
        own = statistics.median(times["Convoy int8"])
        for name in times:
            value = statistics.median(times[name])
            print("batch %-3d %-26s %9.2f ms   %.2f times Convoy int8   %s" %
                  (batch, name, value, value / own, " ".join("%.1f" % t for t in times[name])), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
