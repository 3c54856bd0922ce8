"""ONNX files that Convoy writes, computed by another program, against `convoy classify --logits` on the same pixels.

    onnx_file.py --convoy PROGRAM --tool random_weights --work FOLDER --with torch|onnxruntime CASE...

A case is ARCH:SIZE, ARCH:SIZE:PADDING or "all:SIZE" for every architecture. Each file must pass onnx.checker with shape
inference. Then three images of noise and gradients, already of the network's size so that no resize comes between, are
computed one by one and as one batch. What the other program sees is (pixel - mean) / std with mean and std from the
file's own metadata.

  torch        the graph executed node by node with torch's functions, by ONNX's definition of each operation
  onnxruntime  ONNX Runtime on the CPU, with its own fusions

Both sides compute in fp32 and add in other orders. The weights are random, the largest logits between 1 and 11. The
limit of 1e-4 is on the largest difference divided by the largest logit of the image or by 1, whichever is more:
absolute for logits below 1, relative above. The rounding of fp32 was measured 40 times below it and less.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import onnx
from onnx import numpy_helper

LIMIT = 1e-4
CLASSES = 10
IMAGES = 3


def write_png(path, pixels):
    """(H, W, 3) uint8, without a library: what is read back must be exactly this."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def make_images(folder, size):
    os.makedirs(folder, exist_ok=True)
    random = np.random.RandomState(size)
    images = []
    for i in range(IMAGES):
        slope = np.linspace(0, 255, size).reshape((-1, 1, 1) if i % 2 else (1, -1, 1))
        pixels = (0.5 * slope + 0.5 * random.randint(0, 256, (size, size, 3))).astype(np.uint8)
        write_png(os.path.join(folder, "%d.png" % i), pixels)
        images.append(pixels)
    return np.stack(images)


def attributes(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def run_with_torch(path, images):
    """ONNX's operations of opset 13, as far as our files use them; anything else is an error. The first output, or all
    of them where there are several."""
    import torch
    from torch.nn import functional as F

    def pad(x, pads, value):
        top, left, bottom, right = pads
        return F.pad(x, (left, right, top, bottom), value=value)

    def conv(a, x, w, b=None):
        x = pad(x, a.get("pads", (0, 0, 0, 0)), 0.0)
        assert list(a["kernel_shape"]) == list(w.shape[2:])
        return F.conv2d(x, w, b, a.get("strides", 1), 0, a.get("dilations", 1), a.get("group", 1))

    def max_pool(a, x):
        return F.max_pool2d(pad(x, a["pads"], -float("inf")), a["kernel_shape"], a["strides"])

    def gemm(a, x, w, b):
        assert a == {"transB": 1}
        return x @ w.T + b

    def unsqueeze(a, x, axes):
        for axis in sorted(axes.tolist()):
            x = x.unsqueeze(axis)
        return x

    operations = {
        "Conv": conv,
        "BatchNormalization": lambda a, x, scale, shift, mean, var:
            F.batch_norm(x, mean, var, scale, shift, False, 0.0, a["epsilon"]),
        "Relu": lambda a, x: torch.relu(x),
        "Sigmoid": lambda a, x: torch.sigmoid(x),
        "Add": lambda a, x, y: x + y,
        "Mul": lambda a, x, y: x * y,
        "MaxPool": max_pool,
        "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdim=True),
        "Flatten": lambda a, x: x.flatten(a["axis"]),
        "Unsqueeze": unsqueeze,
        "Gemm": gemm,
    }
    def quantize(a, x, scale, zero):
        limits = torch.iinfo(zero.dtype)
        return torch.clamp(torch.round(x / scale) + zero.float(), limits.min, limits.max)

    def dequantize(a, x, scale, zero=None):
        shape = [-1] + [1] * (x.dim() - 1) if scale.dim() else []
        offset = 0 if zero is None else zero.float().reshape(shape)
        return (x.float() - offset) * scale.reshape(shape)

    operations["QuantizeLinear"], operations["DequantizeLinear"] = quantize, dequantize
    # Detectors.
    def resize(a, x, region, scales):
        assert (a["mode"], a["coordinate_transformation_mode"], a["nearest_mode"]) == (b"nearest", b"asymmetric", b"floor")
        assert region is None and scales.tolist() == [1, 1, 2, 2]
        return x.repeat_interleave(2, 2).repeat_interleave(2, 3)

    def take(a, x, starts, ends, axes):
        return x.narrow(int(axes), int(starts), min(int(ends), x.shape[int(axes)]) - int(starts))

    def reshape(a, x, shape):
        return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(shape.tolist())])

    operations.update({
        "Resize": resize,
        "Slice": take,
        "Reshape": reshape,
        "Transpose": lambda a, x: x.permute(*a["perm"]),
        "Concat": lambda a, *x: torch.cat(x, a["axis"]),
        "Clip": lambda a, x, low, high: torch.clamp(x, float(low), float(high)),
        "Exp": lambda a, x: torch.exp(x),
        "Sub": lambda a, x, y: x - y,
    })
    graph = onnx.load(path).graph
    values = {"": None}
    values |= {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in graph.initializer}
    values[graph.input[0].name] = torch.from_numpy(images)
    with torch.no_grad():
        for node in graph.node:
            values[node.output[0]] = operations[node.op_type](attributes(node), *(values[name] for name in node.input))
    outputs = [values[output.name].numpy() for output in graph.output]
    return outputs if len(outputs) > 1 else outputs[0]


def run_with_onnxruntime(path, images):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    outputs = session.run(None, {"input": images})
    return outputs if len(outputs) > 1 else outputs[0]


class Comparison:
    def __init__(self, arguments):
        self.arguments = arguments
        self.run = {"torch": run_with_torch, "onnxruntime": run_with_onnxruntime}[arguments.program]
        self.failures = 0

    def path(self, name):
        return os.path.join(self.arguments.work, name)

    def fail(self, text):
        print("FAILED: " + text)
        self.failures += 1

    def command(self, *words):
        return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE).stdout

    def check_file(self, path, arch, size):
        """Returns (mean, std) of the metadata."""
        onnx.checker.check_model(onnx.load(path), full_check=True)
        model = onnx.load(path)
        metadata = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
        shape = model.graph.input[0].type.tensor_type.shape.dim
        expected = {"arch": metadata["convoy.arch"] == arch,
                    "classes": metadata["convoy.classes"] == ['caf\u00e9 "%d"' % i for i in range(CLASSES)],
                    "size": metadata["convoy.preprocessing"]["image_size"] == size,
                    "interpolation": metadata["convoy.preprocessing"]["interpolation"] == "bilinear",
                    "input": [d.dim_param or d.dim_value for d in shape] == ["batch", 3, size, size],
                    "opset": [(o.domain, o.version) for o in model.opset_import] == [("", 13)]}
        for what, right in expected.items():
            if not right:
                self.fail("%s: %s is not as expected" % (arch, what))
        return tuple(np.float32(metadata["convoy.preprocessing"][key]) for key in ("mean", "std"))

    def compare(self, arch, size, padding):
        weights, written, folder = self.path("weights.safetensors"), self.path("out.onnx"), self.path("images-%d" % size)
        pixels = make_images(folder, size)
        self.command(self.arguments.tool, arch, CLASSES, 224, size, weights)
        more = ["--padding", padding] if padding else []
        self.command(self.arguments.convoy, "-q", "convert", weights, written, "--image-size", size, *more)
        mean, std = self.check_file(written, arch, size)
        answers = json.loads(self.command(self.arguments.convoy, "-q", "classify", folder, "--weights", weights,
                                          "--image-size", size, "--eval-resize", size, "--logits", "--format", "json",
                                          *more))
        ours = np.array([answer["logits"] for answer in answers])
        assert [os.path.basename(answer["file"]) for answer in answers] == ["%d.png" % i for i in range(IMAGES)]
        images = ((pixels - mean) / std).astype(np.float32).transpose(0, 3, 1, 2)
        images = np.ascontiguousarray(images)
        scale = np.maximum(np.abs(ours).max(axis=1), 1.0)
        worst = {}
        for name, theirs in (("batch 1", np.concatenate([self.run(written, images[i:i + 1]) for i in range(IMAGES)])),
                             ("batch 3", self.run(written, images))):
            worst[name] = float((np.abs(theirs - ours).max(axis=1) / scale).max())
            if not worst[name] <= LIMIT:
                self.fail("%s at %d, %s: logits differ by %.3g" % (arch, size, name, worst[name]))
        # Different images must have different logits: a file that ignores its input would compare well with itself.
        if not np.abs(ours[0] - ours[1]).max() > 100 * LIMIT:
            self.fail("%s at %d: two images give the same logits" % (arch, size))
        print("%-20s %4d %-6s largest logit %6.2f  difference, batch 1 %.2e  batch 3 %.2e" %
              (arch, size, padding or "", np.abs(ours).max(), worst["batch 1"], worst["batch 3"]), flush=True)
        os.remove(weights)
        os.remove(written)

    def detector(self, size):
        """A detector's boxes and scores of all anchors, and what convoy detect finds with the same weights.

        Boxes are shares of the image, scores lie between 0 and 1; both sides compute in fp32. 1e-4 as above. The search
        for the best boxes is done here in numpy, by the rules of doc/onnx.md; where two scores or overlaps are equal but
        for rounding another box may win, which changes one of a hundred in a few images: the scores that are found are
        compared, sorted, and each box with the anchor that has its score."""
        run, written, folder = self.path("detector"), self.path("detector.onnx"), self.path("images-%d" % size)
        data, weights = self.path("shapes"), os.path.join(run, "checkpoint.safetensors")
        pixels = make_images(folder, size)
        self.command(self.arguments.convoy, "-q", "dataset", "shapes", data, "--boxes", "--train-images", 4,
                     "--val-images", 1, "--image-size", 96, "--classes", 3)
        self.command(self.arguments.convoy, "-q", "train", data, "--arch", "ssd320", "--image-size", size, "--batch-size", 2,
                     "--steps", 2, "--warmup-steps", 1, "--workspace", run)
        self.command(self.arguments.convoy, "-q", "convert", weights, written)
        onnx.checker.check_model(onnx.load(written), full_check=True)
        model = onnx.load(written)
        metadata = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
        names, ids = metadata["convoy.classes"], metadata["convoy.category_ids"]
        preprocessing = metadata["convoy.preprocessing"]
        answers = json.loads(self.command(self.arguments.convoy, "-q", "detect", folder, "--weights", weights,
                                          "--threshold", 0, "--format", "json", "--precision", "fp32"))
        images = (pixels - np.float32(preprocessing["mean"])) / np.float32(preprocessing["std"])
        images = np.ascontiguousarray(images.astype(np.float32).transpose(0, 3, 1, 2))
        boxes, scores = self.run(written, images)
        worst = 0.0
        for image, answer in enumerate(answers):
            expected = find_objects(boxes[image], scores[image])
            found = sorted((d["score"] for d in answer["detections"]), reverse=True)
            if len(found) != len(expected) or not found:
                self.fail("detector: %d objects, %d expected" % (len(found), len(expected)))
                continue
            worst = max(worst, np.abs(np.array(found) - expected).max())
            for d in answer["detections"]:
                label = ids.index(d["class_id"])
                assert names[label] == d["class"]
                x, y, w, h = np.array(d["bbox"]) / size
                clipped = np.clip(boxes[image], 0, 1)
                distance = np.abs(clipped - [y, x, y + h, x + w]).max(1) + np.abs(scores[image][:, label] - d["score"])
                worst = max(worst, distance.min())
        print("detector at %d: %d anchors, %d objects, difference %.2e" %
              (size, boxes.shape[1], sum(len(a["detections"]) for a in answers), worst), flush=True)
        if not worst <= LIMIT:
            self.fail("detector: boxes or scores differ by %.3g" % worst)

    def quantized(self, form):
        """A network that was trained to be quantised, with batch norms whose scale is negative or nothing among them.

        Both sides round to the same levels, but a sum that lies next to the middle between two of them falls this way
        or that by its last bit, and what sees the other level may do so too: by the end a few values in a thousand
        stand one level apart. Measured: the largest difference 1.5 % of the largest logit, root of the mean square
        0.6 %. Three times as much is allowed; a wrong scale, shift or zero point gives more than 30 %."""
        size, runs = 64, self.path("run-" + form)
        weights, written, folder = os.path.join(runs, "checkpoint.safetensors"), self.path("q.onnx"), self.path("images-q")
        pixels = make_images(folder, size)
        self.command(self.arguments.convoy, "-q", "train", "--data-backend", "synthetic", "--num-classes", CLASSES,
                     "--arch", "resnet18", "--image-size", size, "--batch-size", 16, "--prof", 4, "--epochs", 1,
                     "--training-only", "--workspace", runs, "--quantize", *(["--symmetric"] if form == "symmetric" else []))
        turn_norms(weights)
        self.command(self.arguments.convoy, "-q", "convert", weights, written)
        onnx.checker.check_model(onnx.load(written), full_check=True)
        model = onnx.load(written)
        preprocessing = json.loads({e.key: e.value for e in model.metadata_props}["convoy.preprocessing"])
        mean, std = (np.float32(preprocessing[key]) for key in ("mean", "std"))
        answers = json.loads(self.command(self.arguments.convoy, "-q", "classify", folder, "--weights", weights,
                                          "--eval-resize", size, "--logits", "--format", "json"))
        ours = np.array([answer["logits"] for answer in answers])
        images = np.ascontiguousarray(((pixels - mean) / std).astype(np.float32).transpose(0, 3, 1, 2))
        theirs, largest = self.run(written, images), np.abs(ours).max()
        worst, typical = np.abs(theirs - ours).max() / largest, np.sqrt(np.mean((theirs - ours) ** 2)) / largest
        nodes = [node.op_type for node in model.graph.node]
        print("quantised, %-10s largest logit %6.2f  difference %.2e, typical %.2e" % (form, largest, worst, typical))
        if not (worst <= 0.045 and typical <= 0.018):
            self.fail("quantised, %s: logits differ" % form)
        if nodes.count("BatchNormalization") or nodes.count("QuantizeLinear") < 30 or (
                theirs.argmax(1) != ours.argmax(1)).any():
            self.fail("quantised, %s: the file is not as expected" % form)
        self.integers(written)

    def integers(self, path):
        """ONNX Runtime computes in integers: every convolution, every addition, the classifier."""
        if self.run is not run_with_onnxruntime:
            return
        import onnxruntime

        options, plan = onnxruntime.SessionOptions(), self.path("optimised.onnx")
        options.optimized_model_filepath, options.log_severity_level = plan, 3
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        nodes = [node.op_type for node in onnx.load(plan).graph.node]
        found = [nodes.count(name) for name in ("QLinearConv", "Conv", "QLinearAdd", "Add", "QGemm")]
        if found != [20, 0, 8, 0, 1]:
            self.fail("ONNX Runtime has QLinearConv, Conv, QLinearAdd, Add, QGemm: %s" % found)

    def half_weights(self):
        """Weights of other types are written as the same values in fp32."""
        plain, half, written = self.path("f32.safetensors"), self.path("f16.safetensors"), self.path("f16.onnx")
        self.command(self.arguments.tool, "resnet18", CLASSES, 64, 1, plain)
        expected = rewrite_as_half(plain, half)
        self.command(self.arguments.convoy, "-q", "convert", half, written)
        found = {t.name: numpy_helper.to_array(t) for t in onnx.load(written).graph.initializer}
        for name in set(expected) | set(found):
            if name not in found or name not in expected or not np.array_equal(found[name], expected[name]):
                self.fail("f16 weights: %s is not what it was" % name)
        print("f16 weights: %d constants compared" % len(found))


def find_objects(boxes, scores):
    """The scores of the best boxes of one image, falling."""
    kept = []
    area = np.maximum(boxes[:, 2] - boxes[:, 0], 0) * np.maximum(boxes[:, 3] - boxes[:, 1], 0)
    inside = np.clip(boxes, 0, 1)
    visible = (inside[:, 2] - inside[:, 0]) * (inside[:, 3] - inside[:, 1]) > 0
    for label in range(scores.shape[1]):
        order = [i for i in np.argsort(-scores[:, label], kind="stable") if scores[i, label] > 1e-8]
        chosen = []
        while order and len(chosen) < 100:
            best, order = order[0], np.array(order[1:], int)
            chosen.append(best)
            low, high = np.maximum(boxes[order, :2], boxes[best, :2]), np.minimum(boxes[order, 2:], boxes[best, 2:])
            common = np.prod(np.maximum(high - low, 0), axis=1)
            overlap = np.where(common > 0, common / np.maximum(area[order] + area[best] - common, 1e-30), 0)
            order = list(order[~(overlap > np.float32(0.6))])
        kept += [(scores[i, label], visible[i]) for i in chosen]
    # The best hundred are visible ones: those that are nothing but outside the image are removed before the cut.
    return np.array(sorted((score for score, seen in kept if seen), reverse=True)[:100])


def turn_norms(path):
    """Batch norms of a safetensors file with scales of both signs, one of nothing and one of nearly nothing."""
    data = bytearray(open(path, "rb").read())
    length, = struct.unpack("<Q", data[:8])
    random = np.random.RandomState(1)
    for name, entry in sorted((n, e) for n, e in json.loads(bytes(data[8:8 + length])).items() if n != "__metadata__"):
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if name.endswith("weight") and ("bn" in name or "downsample.1" in name) and not name.startswith("optimizer"):
            values = np.frombuffer(bytes(data[begin:end]), "<f4") * random.choice([-1, 1], (end - begin) // 4)
            values[:2] = 0, 1e-12
            data[begin:end] = values.astype("<f4").tobytes()
    with open(path, "wb") as file:
        file.write(data)


def rewrite_as_half(path, to):
    """Every f32 tensor of a safetensors file becomes f16; returns the values that a reader should see."""
    data = open(path, "rb").read()
    length, = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    expected, parts, offset = {}, [], 0
    for name, entry in sorted(header.items(), key=lambda item: item[1].get("data_offsets", [0])[0]):
        if name == "__metadata__":
            continue
        part = body[entry["data_offsets"][0]:entry["data_offsets"][1]]
        if entry["dtype"] == "F32":
            values = np.frombuffer(part, "<f4").astype("<f2")
            expected[name] = values.astype(np.float32).reshape(entry["shape"])
            entry["dtype"], part = "F16", values.tobytes()
        entry["data_offsets"] = [offset, offset + len(part)]
        offset += len(part)
        parts.append(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(to, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))
    return expected


def main():
    parser = argparse.ArgumentParser()
    for name in ("convoy", "tool", "work"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--with", dest="program", choices=("torch", "onnxruntime"), required=True)
    parser.add_argument("--detector", type=int, metavar="SIZE", help="a detector too, of this image size")
    parser.add_argument("cases", nargs="+")
    arguments = parser.parse_args()
    comparison = Comparison(arguments)
    names = comparison.command(arguments.tool, "--list").decode().split()
    for case in arguments.cases:
        arch, size, padding = (case.split(":") + [None])[:3]
        for name in names if arch == "all" else [arch]:
            comparison.compare(name, int(size), padding)
    if arguments.detector:
        comparison.detector(arguments.detector)
    for form in ("symmetric", "asymmetric"):
        comparison.quantized(form)
    comparison.half_weights()
    return 1 if comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
