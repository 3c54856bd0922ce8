"""Compares Convoy's decoding and transforms with Pillow's and torchvision's.

preprocess.py DUMP_TRANSFORM FOLDER: DUMP_TRANSFORM is the program built from tests/tools/dump_transform.c, FOLDER holds
sample images. Odd images (CMYK, palette, 16 bits, small, elongated, turned by EXIF, ...) are made here.
"""
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import torchvision.transforms as transforms
import torchvision.transforms.functional as functional
from PIL import Image, ImageOps, features

# Pillow may be linked to another version of libjpeg-turbo than Convoy, whose inverse DCT could round otherwise. Of PNGs and WebPs
# every byte must be the same; the sample images are there as such too, so that all resizes are shown on Pillow's own pixels.
JPEG_TOLERANCE = 1


def dump(program, arguments, files):
    """Runs the program; returns [(ok, numbers or sentence)] and the bytes it wrote."""
    with tempfile.NamedTemporaryFile() as out:
        text = subprocess.run([program, out.name, *map(str, arguments), *files], check=True, capture_output=True,
                              text=True).stdout
        data = np.fromfile(out.name, dtype=np.uint8)
    lines = [line.split(" ", 1) for line in text.splitlines()]
    assert len(lines) == len(files), text
    return [(kind == "ok", rest if kind == "bad" else [int(n) for n in rest.split()]) for kind, rest in lines], data


class Check:
    def __init__(self):
        self.worst, self.images, self.failures = 0, 0, []

    def compare(self, path, what, ours, theirs):
        theirs = np.asarray(theirs)
        if ours.shape != theirs.shape:
            self.failures.append(f"{path}{what}: {ours.shape}, expected {theirs.shape}")
            return
        difference = int(np.abs(ours.astype(int) - theirs.astype(int)).max())
        self.worst = max(self.worst, difference)
        self.images += 1
        if difference > (JPEG_TOLERANCE if path.endswith(".jpg") or path.endswith(".JPEG") else 0):
            self.failures.append(f"{path}{what}: differs by {difference}")

    def report(self, what):
        print(f"{what}: {self.images} images, largest difference {self.worst}")
        return self.failures


def open_rgb(path):
    return Image.open(path).convert("RGB")


def check_decode(program, files):
    check, offset = Check(), 0
    answers, data = dump(program, ["decode"], files)
    for path, (ok, numbers) in zip(files, answers):
        if not ok:
            check.failures.append(f"{path}: {numbers}")
            continue
        width, height = numbers[:2]
        size = width * height * 3
        check.compare(path, "", data[offset:offset + size].reshape(height, width, 3), open_rgb(path))
        offset += size
    return check.report("decode")


def check_eval(program, files, resize, size, exif=False, filter="bilinear"):
    check = Check()
    answers, data = dump(program, ["eval", resize, size] + ["exif"] * exif + ["bicubic"] * (filter == "bicubic"), files)
    expected = transforms.Compose([transforms.Resize(resize, transforms.InterpolationMode(filter)),
                                   transforms.CenterCrop(size)])
    bytes_each, offset = size * size * 3, 0
    for path, (ok, numbers) in zip(files, answers):
        if not ok:
            check.failures.append(f"{path}: {numbers}")
            continue
        ours = data[offset:offset + bytes_each].reshape(size, size, 3)
        image = ImageOps.exif_transpose(Image.open(path)).convert("RGB") if exif else open_rgb(path)
        check.compare(path, f" (eval {resize}/{size})", ours, expected(image))
        offset += bytes_each
    return check.report(f"eval, resize {resize}, crop {size}, {filter}{', EXIF' * exif}")


def check_train(program, files, size, seed, filter="bilinear"):
    check, flips = Check(), 0
    answers, data = dump(program, ["train", size, seed] + ["bicubic"] * (filter == "bicubic"), files)
    bytes_each, offset = size * size * 3, 0
    for path, (ok, numbers) in zip(files, answers):
        if not ok:
            check.failures.append(f"{path}: {numbers}")
            continue
        _, _, left, top, width, height, flip = numbers
        image = functional.resized_crop(open_rgb(path), top, left, height, width, [size, size],
                                        transforms.InterpolationMode(filter))
        if flip:
            image = functional.hflip(image)
        flips += flip
        check.compare(path, f" (train {size}, seed {seed}, box {numbers[2:6]})",
                      data[offset:offset + bytes_each].reshape(size, size, 3), image)
        offset += bytes_each
    if len(files) > 20 and not 0 < flips < len(files):
        check.failures.append(f"{flips} of {len(files)} images flipped")
    return check.report(f"train {size}, seed {seed}, {filter}, {flips} flipped")


def noise(generator, height, width, channels=3):
    """Structured enough that chroma upsampling and the DCT have something to do."""
    small = generator.integers(0, 256, (height // 7 + 2, width // 7 + 2, channels), dtype=np.uint8)
    image = np.kron(small, np.ones((7, 7, 1), dtype=np.uint8))[:height, :width].astype(int)
    image = np.clip(image + generator.integers(-20, 20, image.shape), 0, 255).astype(np.uint8)
    return image if channels > 1 else image[:, :, 0]


def make_odd_images(folder):
    """Every kind of JPEG and PNG that becomes RGB by a rule of its own."""
    generator = np.random.default_rng(1)
    rgb = Image.fromarray(noise(generator, 97, 131))
    files = []

    def save(image, name, **options):
        path = os.path.join(folder, name)
        image.save(path, **options)
        files.append(path)

    for quality, subsampling in [(95, 0), (90, 1), (75, 2), (30, 2)]:
        for progressive in (False, True):
            save(rgb, f"q{quality}s{subsampling}p{int(progressive)}.jpg", quality=quality, subsampling=subsampling,
                 progressive=progressive)
    save(Image.fromarray(noise(generator, 97, 131, 4), "CMYK"), "cmyk.jpg")
    save(Image.fromarray(noise(generator, 97, 131, 1), "L"), "grey.jpg")
    save(Image.fromarray(noise(generator, 97, 131, 1), "L"), "grey-progressive.jpg", progressive=True)
    for width, height in [(1, 1), (2, 3), (5, 1), (1, 40), (17, 16), (700, 9), (9, 700)]:
        for subsampling in (0, 2):
            save(Image.fromarray(noise(generator, height, width)), f"size{width}x{height}s{subsampling}.jpg",
                 subsampling=subsampling)
        save(Image.fromarray(noise(generator, height, width)), f"size{width}x{height}.png")
    grey = Image.fromarray(noise(generator, 60, 45, 1), "L")
    save(grey, "grey.png")
    save(grey.convert("1"), "bits1.png")
    save(Image.fromarray(noise(generator, 60, 45, 2), "LA"), "grey-alpha.png")
    save(Image.fromarray(noise(generator, 60, 45, 4), "RGBA"), "rgba.png")
    save(rgb.quantize(200), "palette.png")
    save(rgb.quantize(13), "palette-4-bits.png")
    save(rgb.quantize(200), "palette-transparent.png", transparency=3)
    save(rgb.quantize(200), "palette-alpha.png", transparency=bytes(range(200)))
    save(rgb, "rgb-transparent.png", transparency=(10, 20, 30))
    save(Image.fromarray(generator.integers(0, 700, (33, 21)).astype(np.int32), "I"), "grey16.png")
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        save(rgb, f"exif{orientation}.jpg", exif=exif)
        save(rgb, f"exif{orientation}.png", exif=exif)
        if features.check("webp"):
            save(rgb, f"exif{orientation}.webp", exif=exif)
    if features.check("webp"):
        for quality in (30, 95):
            save(rgb, f"lossy{quality}.webp", quality=quality)
        save(Image.fromarray(noise(generator, 60, 45, 4), "RGBA"), "rgba.webp", quality=80)
        save(Image.fromarray(noise(generator, 60, 45, 4), "RGBA"), "rgba-lossless.webp", lossless=True, exact=True)
    files.extend(write_raw_pngs(folder, generator))
    return files


def write_raw_pngs(folder, generator):
    """PNGs that Pillow cannot write: 16-bit colour, 2 and 4 bits of grey, interlaced."""
    import struct
    import zlib

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    def write(name, width, height, depth, color, channels, interlaced=False):
        def rows(w, h):
            length = (w * depth * channels + 7) // 8
            return b"".join(b"\0" + generator.bytes(length) for _ in range(h)) if w and h else b""

        if interlaced:
            passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
            data = b"".join(rows((width - x + dx - 1) // dx, (height - y + dy - 1) // dy) for x, y, dx, dy in passes)
        else:
            data = rows(width, height)
        palette = chunk(b"PLTE", generator.bytes(3 * min(256, 2**depth))) if color == 3 else b""
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" +
                       chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlaced))) +
                       palette + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))
        return path

    files = []
    for color, channels, depths in [(0, 1, (1, 2, 4, 8, 16)), (2, 3, (8, 16)), (3, 1, (1, 2, 4, 8)), (4, 2, (8, 16)),
                                    (6, 4, (8, 16))]:
        for depth in depths:
            for interlaced in (False, True):
                files.append(write(f"raw-c{color}-d{depth}-i{int(interlaced)}.png", 37, 29, depth, color, channels,
                                   interlaced))
    return files


def as_png(paths, folder):
    """Pillow's pixels of the images."""
    files = [os.path.join(folder, f"sample{i}.png") for i in range(len(paths))]
    for path, file in zip(paths, files):
        open_rgb(path).save(file, compress_level=1)
    return files


def main():
    program, folder = sys.argv[1:]
    samples = sorted(os.path.join(folder, name) for name in os.listdir(folder))
    assert len(samples) >= 30, f"{folder} holds {len(samples)} images only"
    failures = []
    with tempfile.TemporaryDirectory() as odd_folder:
        odd = make_odd_images(odd_folder)
        files = samples + odd
        exact = as_png(samples, odd_folder) + [path for path in odd if path.endswith(".png")]
        assert len(exact) >= 60
        failures += check_decode(program, files)
        failures += check_eval(program, files, 256, 224)
        for resize, size in [(256, 224), (64, 64), (73, 64), (232, 224), (32, 48), (512, 448)]:
            failures += check_eval(program, exact, resize, size)
        failures += check_eval(program, files, 256, 224, exif=True)
        for resize, size in [(256, 224), (64, 64), (512, 448)]:
            failures += check_eval(program, exact, resize, size, filter="bicubic")
        for seed in range(3):
            failures += check_train(program, files if seed == 0 else exact, 224, seed)
        failures += check_train(program, exact, 96, 5, filter="bicubic")
        failures += check_train(program, exact * 4, 64, 17)
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    random.seed(0)
    sys.exit(main())
