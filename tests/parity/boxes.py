"""Compares the detection transform with numpy: mirror, crop, TensorFlow 1's resize, and what happens to the boxes; with
--tensorflow also with TensorFlow's own decoder, resize and crop sampler.

boxes.py DUMP_PROGRAM COCO_FILE IMAGE_FOLDER SIZE DRAWS [--tensorflow]
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

program, coco_file, folder, size, draws = sys.argv[1:6]
size, draws = int(size), int(draws)
use_tensorflow = "--tensorflow" in sys.argv
f32 = np.float32
failures = []


def expect(good, what):
    if not good:
        failures.append(what)
        print("FAILED", what)


def taps(source):
    """Where each position of the result reads, as float32 has it."""
    at = np.arange(size, dtype=f32) * (f32(source) / f32(size))
    low = at.astype(np.int32)
    return low, np.minimum(low + 1, source - 1), at - low.astype(f32)


def resize(image):
    """Bilinear, no half pixels, no filter: first along x, then along y."""
    x_low, x_high, x_part = taps(image.shape[1])
    y_low, y_high, y_part = taps(image.shape[0])
    image = image.astype(f32)
    x_part, y_part = x_part[None, :, None], y_part[:, None, None]
    top = image[y_low][:, x_low] + (image[y_low][:, x_high] - image[y_low][:, x_low]) * x_part
    bottom = image[y_high][:, x_low] + (image[y_high][:, x_high] - image[y_high][:, x_low]) * x_part
    return top + (bottom - top) * y_part


def move(boxes, labels, width, height, mirrored, window):
    """Boxes (n, 4) of ymin, xmin, ymax, xmax after the mirror and the crop."""
    boxes = boxes.copy()
    if mirrored:
        boxes[:, 1], boxes[:, 3] = f32(1) - boxes[:, 3], f32(1) - boxes[:, 1]
    x, y, w, h = window
    edges = np.array([f32(y) / f32(height), f32(x) / f32(width), f32(y + h) / f32(height), f32(x + w) / f32(width)], f32)
    inside = (boxes[:, 0] < edges[2]) & (boxes[:, 1] < edges[3]) & (boxes[:, 2] > edges[0]) & (boxes[:, 3] > edges[1])
    boxes, labels = boxes[inside], labels[inside]
    sides = edges[[2, 3]] - edges[[0, 1]]
    return np.clip((boxes - edges[[0, 1, 0, 1]]) / sides[[0, 1, 0, 1]], f32(0), f32(1)), labels


def read_truth():
    with open(coco_file) as file:
        data = json.load(file)
    slots = {id: slot for slot, id in enumerate(sorted(category["id"] for category in data["categories"]), 1)}
    images = sorted(data["images"], key=lambda image: image["file_name"].encode())
    truth = []
    for image in images:
        width, height = image["width"], image["height"]
        boxes, labels = [], []
        for one in data["annotations"]:
            x, y, w, h = one["bbox"]
            if one["image_id"] == image["id"] and w > 0 and h > 0 and x + w <= width and y + h <= height:
                boxes.append([y / height, x / width, (y + h) / height, (x + w) / width])
                labels.append(slots[one["category_id"]])
        truth.append((image, np.array(boxes, f32).reshape(-1, 4), np.array(labels, np.int32)))
    return truth


def check_tensorflow(path, decoded, result):
    import tensorflow as tf
    with open(path, "rb") as file:
        theirs = tf.image.decode_jpeg(file.read(), channels=3).numpy()
    expect(np.array_equal(theirs, decoded), f"TensorFlow decodes {path} otherwise")
    resized = tf.compat.v1.image.resize(decoded, [size, size], method="bilinear", align_corners=False).numpy()
    # The same operations in the same order, which their compiler may contract: a few roundings at 255.
    expect(np.abs(resized - result).max() < 1e-4, f"TensorFlow resizes {path} otherwise")


def sampler(width, height, count):
    """Crops of TensorFlow's sampler: mean area, and range of width / height."""
    import tensorflow as tf
    areas, ratios = [], []
    for seed in range(count):
        begin, crop, _ = tf.image.stateless_sample_distorted_bounding_box(
            [height, width, 3], [[[0.2, 0.2, 0.8, 0.8]]], (seed, 1), min_object_covered=0.0,
            aspect_ratio_range=(0.75, 3.0), area_range=(0.75, 1.0), max_attempts=100)
        h, w, _ = crop.numpy()
        areas.append(h * w / (height * width))
        ratios.append(w / h)
    return np.mean(areas), min(ratios), max(ratios)


def main():
    truth = read_truth()
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([program, coco_file, out.name, str(size), str(draws)], check=True)
        data = out.read()
    at, kept, ours = 0, [], []
    worst_pixel = worst_box = boxes_seen = 0
    decoded = {}

    def take(dtype, count):
        nonlocal at
        values = np.frombuffer(data, dtype, count, at)
        at += values.nbytes
        return values

    while at < len(data):
        sample, width, height, training, mirrored, *window = take(np.int32, 9)
        if not training:
            decoded[sample] = take(np.uint8, width * height * 3).reshape(height, width, 3)
        result = take(f32, size * size * 3).reshape(size, size, 3)
        kept.append((sample, width, height, training, mirrored, window, result, take(f32, 400).reshape(100, 4),
                     take(np.int32, 100)))
    expect(len(kept) == len(truth) * (draws + 1), f"{len(kept)} results")
    for sample, width, height, training, mirrored, window, result, boxes, labels in kept:
        image, true_boxes, true_labels = truth[sample]
        expect((width, height) == (image["width"], image["height"]), f"size of {image['file_name']}")
        x, y, w, h = window
        source = decoded[sample][:, ::-1] if mirrored else decoded[sample]
        worst_pixel = max(worst_pixel, np.abs(resize(source[y:y + h, x:x + w]) - result).max())
        expected, expected_labels = move(true_boxes, true_labels, width, height, mirrored, window)
        expected, expected_labels = expected[:100], expected_labels[:100]
        count = len(expected)
        expect(np.array_equal(labels[:count], expected_labels) and not labels[count:].any() and not boxes[count:].any(),
               f"labels of {image['file_name']}")
        if count:
            worst_box = max(worst_box, np.abs(boxes[:count] - expected).max())
        boxes_seen += count
        if training:
            ours.append(w * h / (width * height))
        elif use_tensorflow:
            check_tensorflow(os.path.join(folder, image["file_name"]), decoded[sample], result)
    # The same operations of single precision in the same order.
    expect(worst_pixel == 0, f"a pixel is {worst_pixel} off")
    expect(worst_box == 0, f"a box is {worst_box} off")
    expect(not ours or min(ours) >= 0.75 and max(ours) > 0.95, "areas of the crops")
    if use_tensorflow:
        # The check values of tests/unit/data/test_transform_detection.c; 2000 draws of deviation 0.08: three of their mean's.
        for width, height, area, low, high in ((640, 480, 0.808, 1.00, 1.78), (480, 640, 0.805, 0.75, 1.00)):
            mean, least, most = sampler(width, height, 2000)
            expect(abs(mean - area) < 0.006 and abs(least - low) < 0.03 and abs(most - high) < 0.03,
                   f"TensorFlow's crops of {width} x {height}: {mean} {least} {most}")
    print(f"{len(kept)} images with {boxes_seen} boxes, {len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
