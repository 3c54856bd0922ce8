"""SSD320's variables, with momentum and the number of steps, in both kinds of checkpoints that TensorFlow's Saver writes:
`convoy convert` must find every one of them, bit for bit, under its name; and slim's resnet_v1_50 must start a training.

long_tensorflow.py CONVOY
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

convoy = sys.argv[1]
tf1 = tf.compat.v1
tf1.disable_eager_execution()
tf1.disable_resource_variables()
os.chdir(tempfile.mkdtemp(prefix="convoy-tensorflow-"))
UNITS = {1: 3, 2: 4, 3: 6, 4: 3}


def run(*arguments, code=0):
    done = subprocess.run([convoy, *arguments], capture_output=True, text=True)
    assert done.returncode == code, (arguments, done.returncode, done.stderr)
    return done


def norm(scope, channels):
    return [(f"{scope}/{leaf}", (channels,)) for leaf in ("gamma", "beta", "moving_mean", "moving_variance")]


def layer(scope, side, inputs, outputs):
    return [(f"{scope}/weights", (side, side, inputs, outputs)), *norm(f"{scope}/BatchNorm", outputs)]


def biased(scope, side, inputs, outputs):
    return [(f"{scope}/weights", (side, side, inputs, outputs)), (f"{scope}/biases", (outputs,))]


def backbone(root):
    found = layer(f"{root}/conv1", 7, 3, 64)
    inputs = 64
    for block, units in UNITS.items():
        mid = 32 << block
        for unit in range(1, units + 1):
            scope = f"{root}/block{block}/unit_{unit}/bottleneck_v1"
            if unit == 1:
                found += layer(f"{scope}/shortcut", 1, inputs, 4 * mid)
            found += layer(f"{scope}/conv1", 1, inputs, mid) + layer(f"{scope}/conv2", 3, mid, mid)
            found += layer(f"{scope}/conv3", 1, mid, 4 * mid)
            inputs = 4 * mid
    return found


def detector(classes):
    root = "FeatureExtractor/resnet_v1_50"
    found = backbone(root)
    for i in 1, 2, 3:
        found += biased(f"{root}/fpn/projection_{i}", 1, 256 << i, 256)
    for name in "smoothing_1", "smoothing_2", "bottom_up_block5", "bottom_up_block6":
        found += layer(f"{root}/fpn/{name}", 3, 256, 256)
    root = "WeightSharedConvolutionalBoxPredictor"
    for kind, columns in ("Box", 4), ("Class", classes + 1):
        for i in range(4):
            scope = f"{root}/{kind}PredictionTower/conv2d_{i}"
            found.append((f"{scope}/weights", (3, 3, 256, 256)))
            for level in range(5):
                found += norm(f"{scope}/BatchNorm/feature_{level}", 256)
        found += biased(f"{root}/{kind}Predictor", 3, 256, 6 * columns)
    return found


def save(path, values, kind):
    with tf1.Graph().as_default(), tf1.Session() as session:
        holders = {name: tf1.placeholder(value.dtype, value.shape) for name, value in values.items()}
        variables = [tf1.get_variable(name, initializer=holder) for name, holder in holders.items()]
        session.run(tf1.global_variables_initializer(), {holders[name]: value for name, value in values.items()})
        tf1.train.Saver(variables, write_version=kind).save(session, path, write_meta_graph=False, write_state=False)


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__")
    types = {"F32": np.float32, "I64": np.int64}
    return {
        name: np.frombuffer(data, types[entry["dtype"]], int(np.prod(entry["shape"])), 8 + size + entry["data_offsets"][0]).reshape(
            entry["shape"])
        for name, entry in header.items()
    }, metadata


random = np.random.default_rng(1)
shapes = detector(90)
assert len(shapes) == 463
trained = [name for name, _ in shapes if "moving" not in name]
assert len(trained) == 269
values = {name: random.standard_normal(shape, np.float32) for name, shape in shapes}
values.update({f"{name}/Momentum": random.standard_normal(values[name].shape, np.float32) for name in trained})
values["global_step"] = np.int64(12500)
assert len(values) == 733

# ---- both kinds, to Convoy's names, and back to TensorFlow's ----
converted = {}
for kind, path, name in ((tf1.train.SaverDef.V2, "new/model.ckpt-12500", "new/model.ckpt-12500"),
                         (tf1.train.SaverDef.V1, "old/model.ckpt", "old/model.ckpt")):
    os.makedirs(os.path.dirname(path))
    save(path, values, kind)
    run("convert", name, "ours.safetensors")
    ours, metadata = read("ours.safetensors")
    assert metadata["convoy.arch"] == '"ssd320"' and "slim" in metadata["convoy.model"], metadata
    assert sum(not name.startswith("optimizer.") and not name.endswith("num_batches_tracked") for name in ours) == 463
    assert sum(name.startswith("optimizer.momentum_buffer.") for name in ours) == 269
    one = values["FeatureExtractor/resnet_v1_50/block2/unit_1/bottleneck_v1/conv2/weights"]
    assert np.array_equal(ours["backbone.layer2.0.conv2.weight"], one.transpose(3, 2, 0, 1))
    run("convert", "ours.safetensors", "theirs.safetensors", "--naming", "slim")
    theirs, _ = read("theirs.safetensors")
    assert set(theirs) == set(values) - {"global_step"}, set(theirs) ^ set(values)
    for name in theirs:
        assert theirs[name].shape == values[name].shape and theirs[name].tobytes() == values[name].tobytes(), name
    converted[kind] = open("ours.safetensors", "rb").read()
assert len(set(converted.values())) == 1, "the two kinds give different files"

# ---- the classifier of slim as it is published, and with another shape ----
run("-q", "dataset", "shapes", "data", "--boxes", "--train-images", "4", "--val-images", "2", "--image-size", "96")
train = ("train", "data", "--arch", "ssd320", "--image-size", "64", "--batch-size", "2", "--steps", "1", "--lr", "0", "--warmup-lr", "0",
         "--weight-decay", "0", "--pretrained-weights")
root = "resnet_v1_50"
classifier = {name: random.standard_normal(shape, np.float32) * np.float32(0.02) for name, shape in backbone(root)}
classifier.update({name: np.abs(value) + 1 for name, value in classifier.items() if name.endswith(("gamma", "moving_variance"))})
classifier.update({f"{root}/logits/weights": np.zeros((1, 1, 2048, 1000), np.float32), f"{root}/logits/biases": np.zeros(1000, np.float32),
                   f"{root}/mean_rgb": np.zeros(3, np.float32), "global_step": np.int64(1)})
save("resnet_v1_50.ckpt", classifier, tf1.train.SaverDef.V1)
done = run(*train, "resnet_v1_50.ckpt", "--workspace", "run")
assert "TF-slim" in done.stderr, done.stderr
after, metadata = read("run/checkpoint.safetensors")
assert "torchvision" not in metadata["convoy.model"]
for theirs, ours in ("conv1/weights", "conv1.weight"), ("block3/unit_6/bottleneck_v1/conv3/weights", "layer3.5.conv3.weight"):
    assert np.array_equal(after[f"backbone.{ours}"], classifier[f"{root}/{theirs}"].transpose(3, 2, 0, 1)), theirs
assert "holds a detector's backbone alone" in run("convert", "resnet_v1_50.ckpt", "x.pth", code=65).stderr
classifier[f"{root}/block1/unit_2/bottleneck_v1/conv1/weights"] = np.zeros((1, 1, 256, 65), np.float32)
save("wrong.ckpt", classifier, tf1.train.SaverDef.V2)
assert '"backbone.layer1.1.conv1.weight" is 65x256x1x1 instead of 64x256x1x1' in run(*train, "wrong.ckpt", "--workspace", "no", code=65).stderr
print("TensorFlow's checkpoints are read")
