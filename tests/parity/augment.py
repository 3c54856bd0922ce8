"""Compares AutoAugment and each of its operations with Pillow's, and changes of the hue with torchvision's, byte for byte.

augment.py DUMP_TRANSFORM: the program built from tests/tools/dump_transform.c. The images are made here.
"""
import collections
import os
import subprocess
import sys
import tempfile

import numpy as np
import torchvision.transforms.functional as functional
from PIL import Image, ImageEnhance, ImageOps

FILL = (128, 128, 128)
RANGES = {
    "shearX": (0, 0.3), "shearY": (0, 0.3), "translateX": (0, 250), "translateY": (0, 250), "rotate": (0, 30),
    "color": (0.1, 1.9), "contrast": (0.1, 1.9), "sharpness": (0.1, 1.9), "brightness": (0.1, 1.9),
    "posterize": (0, 4), "solarize": (0, 256), "solarizeadd": (0, 110), "autocontrast": (0, 0), "equalize": (0, 0),
    "invert": (0, 0)
}
# Pairs of (probability, operation, level) in tenths: the policy for ImageNet.
POLICY = """8 equalize 1 8 shearY 4; 4 color 9 6 equalize 3; 4 color 1 6 rotate 8; 8 solarize 3 4 equalize 7;
4 solarize 2 6 solarize 2; 2 color 0 8 equalize 8; 4 equalize 8 8 solarizeadd 3; 2 shearX 9 6 rotate 8;
6 color 1 10 equalize 2; 4 invert 9 6 rotate 0; 10 equalize 9 6 shearY 3; 4 color 7 6 equalize 0;
4 posterize 6 4 autocontrast 7; 6 solarize 8 6 color 9; 2 solarize 4 8 rotate 9; 10 rotate 7 8 translateY 9;
0 shearX 0 8 solarize 4; 8 shearY 0 6 color 4; 10 color 0 6 rotate 2; 8 equalize 4 0 equalize 8;
10 equalize 4 6 autocontrast 2; 4 shearY 7 6 solarizeadd 7; 8 posterize 2 6 solarize 10; 6 solarize 8 6 equalize 1;
8 color 6 4 rotate 5"""


def magnitude(name, level):
    value = np.linspace(*RANGES[name], 11)[level]
    return int(np.round(value)) if name == "posterize" else float(value)


def affine(image, matrix, resample):
    return image.transform(image.size, Image.AFFINE, matrix, resample, fillcolor=FILL)


def apply(image, name, level, sign):
    m = magnitude(name, level)
    if name == "shearX":
        return affine(image, (1, m * sign, 0, 0, 1, 0), Image.BICUBIC)
    if name == "shearY":
        return affine(image, (1, 0, 0, m * sign, 1, 0), Image.BICUBIC)
    if name == "translateX":
        return affine(image, (1, 0, m * sign, 0, 1, 0), Image.NEAREST)
    if name == "translateY":
        return affine(image, (1, 0, 0, 0, 1, m * sign), Image.NEAREST)
    if name == "rotate":
        turned = image.convert("RGBA").rotate(m * sign)  # what lies outside is transparent
        return Image.composite(turned, Image.new("RGBA", turned.size, FILL), turned).convert("RGB")
    if name == "solarizeadd":
        values = np.arange(256)
        return image.point(list(np.where(values < 128, np.clip(values + m, 0, 255), values).astype(int)) * 3)
    if name in ("posterize", "solarize"):
        return getattr(ImageOps, name)(image, m)
    if name in ("autocontrast", "equalize", "invert"):
        return getattr(ImageOps, name)(image)
    return getattr(ImageEnhance, name.capitalize())(image).enhance(m)


def make_images(folder, size):
    """Noise, a soft picture, few grey levels, little contrast, one colour, one pixel that differs."""
    generator = np.random.default_rng(size)
    y, x = np.mgrid[0:size, 0:size] / size
    soft = np.stack([x * 255, y * 200 + 20, (np.sin(9 * x + 5 * y) + 1) * 100], -1)
    flat = np.full((size, size, 3), (7, 90, 251))
    spot = np.full((size, size, 3), 40)
    spot[size // 2, size // 3] = (41, 255, 0)
    images = [generator.integers(0, 256, (size, size, 3)), soft + generator.normal(0, 4, soft.shape),
              generator.integers(0, 3, (size, size, 3)) * 100 + 27, 120 + soft / 20, flat, spot]
    files = []
    for index, image in enumerate(images):
        files.append(os.path.join(folder, f"{size}-{index}.png"))
        Image.fromarray(np.clip(image, 0, 255).astype(np.uint8)).save(files[-1])
    return files


def dump(program, folder, arguments, files, size):
    out = os.path.join(folder, "out")
    text = subprocess.run([program, out, *map(str, arguments), *files], check=True, capture_output=True,
                          text=True).stdout
    lines = text.splitlines()
    return lines, np.fromfile(out, dtype=np.uint8).reshape(len(lines), size, size, 3)


def check_operations(program, folder, size):
    failures, changed = [], collections.Counter()
    files = make_images(folder, size)
    lines, ours = dump(program, folder, ["operations", size], files, size)
    for line, image in zip(lines, ours):
        path, name, level, sign, value = line.split()
        level, sign = int(level), int(sign)
        original = Image.open(path)
        theirs = np.asarray(apply(original, name, level, sign))
        if float(value) != magnitude(name, level):
            failures.append(f"{name} {level}: magnitude {value}, expected {magnitude(name, level)}")
        wrong = int((image != theirs).sum())
        if wrong:
            worst = int(np.abs(image.astype(int) - theirs.astype(int)).max())
            failures.append(f"{line}: {wrong} bytes differ, by up to {worst}")
        changed[name] += int((theirs != np.asarray(original)).any())
    failures += [f"{name} never changed an image of {size}" for name in RANGES if not changed[name]]
    print(f"operations at {size} x {size}: {len(lines)} images")
    return failures


def check_autoaugment(program, folder, size, count):
    """The pairs are the policy's, as often as they should be, and both operations are applied in order."""
    failures, drawn, applied, signs = [], collections.Counter(), collections.Counter(), collections.Counter()
    table = {}
    for entry in POLICY.split(";"):
        p, a, i, q, b, j = entry.split()
        table[(a, int(i), b, int(j))] = int(p) / 10, int(q) / 10
    files = (make_images(folder, size)[:2] * count)[:count]
    lines, ours = dump(program, folder, ["autoaugment", size, 4], files, size)
    for line, path, image in zip(lines, files, ours):
        words = line.split()
        steps = [(words[i], *map(int, words[i + 1:i + 4])) for i in (0, 4)]
        key = steps[0][0], steps[0][1], steps[1][0], steps[1][1]
        theirs = Image.open(path)
        drawn[key] += 1
        for index, (name, level, sign, use) in enumerate(steps):
            signs[sign] += 1
            applied[key, index] += use
            theirs = apply(theirs, name, level, sign) if use else theirs
        if (image != np.asarray(theirs)).any():
            failures.append(f"{path}: differs after {line}")
    failures += [f"{key} is not in the policy" for key in drawn if key not in table]
    # Draws are deterministic. Six standard deviations of a binomial: a wrong probability or a missing pair shows.
    for key, chances in table.items():
        for what, n, p, k in [("drawn", count, 1 / 25, drawn[key]),
                              ("first", drawn[key], chances[0], applied[key, 0]),
                              ("second", drawn[key], chances[1], applied[key, 1])]:
            if abs(k - n * p) > 6 * np.sqrt(n * p * (1 - p)):
                failures.append(f"{key}, {what}: {k} of {n}, expected {n * p:.0f}")
    if abs(signs[1] - count) > 6 * np.sqrt(count / 2):
        failures.append(f"{signs[1]} of {2 * count} signs are positive")
    print(f"autoaugment at {size} x {size}: {count} images")
    return failures


def check_hue(program, folder, size):
    failures, changed = [], 0
    files = make_images(folder, size)
    lines, ours = dump(program, folder, ["hue", size], files, size)
    for line, image in zip(lines, ours):
        path, turn = line.split()
        original = Image.open(path)
        theirs = np.asarray(functional.adjust_hue(original, float(turn)))
        wrong = int((image != theirs).sum())
        if wrong:
            worst = int(np.abs(image.astype(int) - theirs.astype(int)).max())
            failures.append(f"hue of {line}: {wrong} bytes differ, by up to {worst}")
        changed += int((theirs != np.asarray(original)).any())
    if changed < len(lines) / 2:
        failures.append(f"the hue of {changed} of {len(lines)} images changed")
    print(f"hue at {size} x {size}: {len(lines)} images")
    return failures


def main():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for size in (32, 57, 224):
            failures += check_operations(sys.argv[1], folder, size)
            failures += check_hue(sys.argv[1], folder, size)
        failures += check_autoaugment(sys.argv[1], folder, 48, 3000)
    for failure in failures[:40]:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
