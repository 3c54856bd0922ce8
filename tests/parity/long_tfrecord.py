"""Compares Convoy's TFRecords and its transforms by TensorFlow's rules with TensorFlow.

long_tfrecord.py CONVOY DUMP_TRANSFORM DATA
"""
import csv
import os
import random
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

convoy, dump_program, data = sys.argv[1:]
samples = os.path.join(data, "imagenet-samples")
failures = []

# Both compute in float32 with the same operations in the same order; a compiler may contract them, which is worth a few
# roundings at 255.
TOLERANCE = 1e-4


def expect(good, what):
    if not good:
        failures.append(what)
        print("FAILED", what)


def run(*arguments):
    return subprocess.run([convoy, *arguments], check=True, capture_output=True, text=True).stdout


def dump(arguments, files, dtype):
    """Runs the program; returns its numbers for each file, and everything it wrote."""
    with tempfile.NamedTemporaryFile() as out:
        text = subprocess.run([dump_program, out.name, *map(str, arguments), *files], check=True, capture_output=True,
                              text=True).stdout
        values = np.fromfile(out.name, dtype=dtype)
    lines = [line.split() for line in text.splitlines()]
    assert len(lines) == len(files) and all(line[0] == "ok" for line in lines), text
    return [[int(n) for n in line[1:]] for line in lines], values


def read(path):
    with open(path, "rb") as file:
        return file.read()


def decode(path):
    return tf.image.decode_jpeg(read(path), channels=3, fancy_upscaling=False, dct_method="INTEGER_FAST").numpy()


def resize(image, height, width):
    """As tf.image.resize was in TensorFlow 1."""
    return tf.compat.v1.image.resize(image, [height, width], method="bilinear", align_corners=False).numpy()


# ---- transforms ----

def check_decode(files):
    shapes, values = dump(["tf-decode"], files, np.uint8)
    at = worst = 0
    for path, (width, height, *_) in zip(files, shapes):
        ours = values[at:at + width * height * 3].reshape(height, width, 3)
        at += ours.size
        theirs = decode(path)
        expect(ours.shape == theirs.shape, f"size of {path}")
        worst = max(worst, np.abs(ours.astype(int) - theirs.astype(int)).max())
    print(f"decode: {len(files)} images, largest difference {worst}")
    # Both are libjpeg-turbo, whose fast inverse DCT is one algorithm.
    expect(worst == 0, f"decoded pixels differ by {worst}")


def check_evaluation(files, short, size):
    shapes, values = dump(["tf-eval", short, size], files, np.float32)
    ours, worst, shorter = values.reshape(len(files), size, size, 3), 0.0, 0
    for path, got in zip(files, ours):
        image = decode(path)
        height, width = tf.cast(image.shape[0], tf.float32), tf.cast(image.shape[1], tf.float32)
        scale = tf.cast(short, tf.float32) / tf.minimum(height, width)
        full = int(tf.cast(height * scale, tf.int32)), int(tf.cast(width * scale, tf.int32))
        shorter += min(full) < short
        full = tuple(max(side, size) for side in full)
        image = resize(image, *full)
        top, left = (full[0] - size) // 2, (full[1] - size) // 2
        worst = max(worst, np.abs(image[top:top + size, left:left + size] - got).max())
    print(f"evaluation {short}/{size}: {len(files)} images ({shorter} lose a row to rounding), largest difference "
          f"{worst:.3g}")
    expect(worst <= TOLERANCE, f"evaluation {short}/{size} differs by {worst}")


def check_training(files, size, seed):
    boxes, values = dump(["tf-train", size, seed], files, np.float32)
    ours, worst, rounded = values.reshape(len(files), size, size, 3), 0.0, []
    for path, box, got in zip(files, boxes, ours):
        _, _, x, y, width, height, flip = box
        image = tf.image.crop_to_bounding_box(decode(path), y, x, height, width)
        image = tf.image.flip_left_right(image) if flip else image
        want = resize(image, size, size)
        worst = max(worst, np.abs(want - got).max())
        rounded.append(np.abs(want - np.rint(want)).mean())
    flips = sum(box[6] for box in boxes)
    print(f"training {size}: {len(files)} crops, {flips} mirrored, largest difference {worst:.3g}; rounding to bytes "
          f"would change a value by {np.mean(rounded):.3f} on average")
    expect(worst <= TOLERANCE, f"training {size} differs by {worst}")


def check_crops(path, draws):
    """The distribution of the crop: means of place and size, and of their squares, by two samples of `draws`."""
    boxes, _ = dump(["tf-train", 1, 3], [path] * draws, np.float32)
    height, width, _ = decode(path).shape
    ours = np.array([box[2:6] for box in boxes], dtype=float)
    theirs = np.empty_like(ours)
    none = tf.zeros([1, 0, 4])

    @tf.function
    def crop():
        return tf.image.sample_distorted_bounding_box(
            [height, width, 3], none, seed=1, min_object_covered=0.1, aspect_ratio_range=[0.75, 1.33],
            area_range=[0.05, 1.0], max_attempts=100, use_image_if_no_bounding_boxes=True)

    for i in range(draws):
        begin, extent, _ = crop()
        theirs[i] = [begin[1], begin[0], extent[1], extent[0]]
    for power in (1, 2):
        a, b = ours ** power, theirs ** power
        spread = np.sqrt((a.var(axis=0) + b.var(axis=0)) / draws)
        off = np.abs(a.mean(axis=0) - b.mean(axis=0)) / spread
        print(f"crops: means of power {power} of x, y, width, height differ by {np.round(off, 2)} standard errors")
        # Eight comparisons at 4.5 standard errors: one run in 18,000 would fail by chance; the seeds are fixed.
        expect((off < 4.5).all(), f"crops are drawn from another distribution: {off}")
    for name, ends in (("smallest", ours.min(axis=0) - theirs.min(axis=0)),
                       ("largest", ours.max(axis=0) - theirs.max(axis=0))):
        print(f"crops: {name} values differ by {ends}")


# ---- records ----

FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string, ""),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64, -1),
    "image/class/text": tf.io.FixedLenFeature([], tf.string, ""),
    "image/class/synset": tf.io.FixedLenFeature([], tf.string, ""),
    "image/filename": tf.io.FixedLenFeature([], tf.string, ""),
    "image/height": tf.io.FixedLenFeature([], tf.int64, -1),
    "image/width": tf.io.FixedLenFeature([], tf.int64, -1),
    "image/channels": tf.io.FixedLenFeature([], tf.int64, -1),
    "image/colorspace": tf.io.FixedLenFeature([], tf.string, ""),
    "image/format": tf.io.FixedLenFeature([], tf.string, ""),
    "image/object/bbox/xmin": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/ymin": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/xmax": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/ymax": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/label": tf.io.VarLenFeature(tf.int64),
}


def images_of(folder):
    """[(path, class)] of an image folder, by class and path."""
    classes = sorted(os.listdir(folder))
    return [(os.path.join(folder, name, file), index, name) for index, name in enumerate(classes)
            for file in sorted(os.listdir(os.path.join(folder, name)))]


def small_set(folder, per_class):
    """A part of imagenette-64 as links."""
    for part in ("train", "val"):
        source = os.path.join(data, "imagenette-64", part)
        for name in sorted(os.listdir(source)):
            os.makedirs(os.path.join(folder, part, name))
            for file in sorted(os.listdir(os.path.join(source, name)))[:per_class]:
                os.symlink(os.path.join(source, name, file), os.path.join(folder, part, name, file))


def check_writing(folder, records):
    """TensorFlow reads what Convoy wrote."""
    run("dataset", "tfrecord", folder, records, "--train-shards", "3")
    for part, prefix in (("train", "train"), ("val", "validation")):
        files = sorted(tf.io.gfile.glob(os.path.join(records, prefix + "-*")))
        found = {}
        for message in tf.data.TFRecordDataset(files):
            record = tf.io.parse_single_example(message, FEATURES)
            found[record["image/filename"].numpy().decode()] = record
        images = images_of(os.path.join(folder, part))
        expect(len(found) == len(images), f"{prefix}: {len(found)} records of {len(images)} images")
        for path, label, name in images:
            record = found[os.path.basename(path)]
            image = tf.io.decode_jpeg(record["image/encoded"])
            expect(record["image/encoded"].numpy() == read(path), f"bytes of {path}")
            expect(record["image/class/label"].numpy() == label + 1, f"label of {path}")
            expect(record["image/class/text"].numpy().decode() == name, f"text of {path}")
            expect(record["image/class/synset"].numpy().decode() == name, f"synset of {path}")
            expect((record["image/height"], record["image/width"]) == (image.shape[0], image.shape[1]),
                   f"size of {path}")
            expect(record["image/channels"] == 3 and record["image/colorspace"] == b"RGB" and
                   record["image/format"] == b"JPEG", f"format of {path}")
            expect(all(record["image/object/bbox/" + key].values.shape == (0,)
                       for key in ("xmin", "ymin", "xmax", "ymax", "label")), f"boxes of {path}")
        print(f"TensorFlow reads {len(found)} records of {prefix}-*")


def feature(value):
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    if isinstance(value, int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    return tf.train.Feature(float_list=tf.train.FloatList(value=value))


def write_with_tensorflow(folder, records, shards):
    """An image folder as its program's builder writes it, in the order of the folder."""
    os.makedirs(records)
    for part, prefix in (("train", "train"), ("val", "validation")):
        images = images_of(os.path.join(folder, part))
        for shard in range(shards):
            path = os.path.join(records, f"{prefix}-{shard:05d}-of-{shards:05d}")
            with tf.io.TFRecordWriter(path) as writer:
                for image, label, name in images[len(images) * shard // shards:len(images) * (shard + 1) // shards]:
                    writer.write(tf.train.Example(features=tf.train.Features(feature={
                        "image/encoded": feature(read(image)),
                        "image/class/label": feature(label + 1),
                        "image/class/synset": feature(name.encode()),
                        "image/class/text": feature(b"something readable"),
                        "image/filename": feature(os.path.basename(image).encode()),
                        "image/height": feature(64),
                        "image/width": feature(64),
                        "image/channels": feature(3),
                        "image/colorspace": feature(b"RGB"),
                        "image/format": feature(b"JPEG"),
                        "image/object/bbox/xmin": feature([0.1, 0.5]),
                        "image/object/bbox/ymin": feature([0.2, 0.5]),
                        "image/object/bbox/xmax": feature([0.6, 1.0]),
                        "image/object/bbox/ymax": feature([0.7, 1.0]),
                    })).SerializeToString())


def losses(source, folder, *options):
    """The losses of a few steps of training, as text."""
    log = os.path.join(folder, "steps.csv")
    run("train", source, "--workspace", os.path.join(folder, "run"), "--arch", "resnet18", "--image-size", "32",
        "--eval-resize", "36", "--batch-size", "16", "--epochs", "1", "--prof", "6", "--training-only", "--recipe",
        "reference", "--log-every-step", log, "--precision", "fp32", "--no-checkpoints", *options)
    with open(log, newline="") as file:
        return [row["loss"] for row in csv.DictReader(file)]


def check_reading(folder, work):
    """Convoy trains on what TensorFlow wrote as on the folder, and finds every damaged byte."""
    records = os.path.join(work, "tensorflow")
    write_with_tensorflow(folder, records, 4)
    run("dataset", "index", records, os.path.join(work, "idx"))
    with open(os.path.join(work, "idx", "train-00001-of-00004")) as file:
        places = [tuple(map(int, line.split())) for line in file]
    sizes = [len(message.numpy()) + 16
             for message in tf.data.TFRecordDataset(os.path.join(records, "train-00001-of-00004"))]
    expect([size for _, size in places] == sizes, "sizes of the index")
    expect([at for at, _ in places] == list(np.cumsum([0] + sizes[:-1])), "offsets of the index")
    expect("no problems found" in run("check", records), "check")
    expected = losses(folder, os.path.join(work, "a"))
    expect(len(expected) == 6, "six steps")
    expect(losses(records, os.path.join(work, "b")) == expected, "losses over TensorFlow's records")
    expect(losses(records, os.path.join(work, "c"), "--data-idx-dir", os.path.join(work, "idx")) == expected,
           "losses with index files")
    print(f"training over TensorFlow's records: losses {', '.join(expected)} as over the folder")


def main():
    random.seed(1)
    files = sorted(os.path.join(samples, name) for name in os.listdir(samples)
                   if name.lower().endswith((".jpeg", ".jpg")))
    check_decode(files)
    check_evaluation(files, 256, 224)
    check_evaluation(files, 97, 97)
    check_training(files, 224, 5)
    check_training(files * 3, 33, 6)
    check_crops(files[0], 3000)
    with tempfile.TemporaryDirectory() as work:
        folder = os.path.join(work, "images")
        small_set(folder, 12)
        check_writing(folder, os.path.join(work, "records"))
        check_reading(folder, work)
        shutil.rmtree(folder)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
