#!/usr/bin/env python3
"""dali.py DUMP_TRANSFORM IMAGES: evaluation by DALI's rules against DALI.

Each image is decoded by both sides' own decoders, which need not agree bit for bit, so DALI gets the pixels that
dump_transform decodes. Resize to 256 without antialiasing and crop to 224: no value may differ by more than one level
(ours are rounded between the two passes), in both forms: subpixel_scale as DALI has it by default, and without."""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from nvidia import dali
from nvidia.dali import fn, pipeline_def, types

RESIZE, SIZE = 256, 224


def dump(program, *words):
    """(lines, bytes) of a call of dump_transform."""
    with tempfile.NamedTemporaryFile() as out:
        lines = subprocess.run([program, out.name, *map(str, words)], check=True, capture_output=True, text=True).stdout
        return [line.split() for line in lines.splitlines()], np.fromfile(out.name, np.uint8)


def transformed(image, subpixel_scale, filter=types.INTERP_LINEAR, antialias=False):
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        pixels = fn.external_source(source=lambda: [image], batch=True)
        resized = fn.resize(pixels, resize_shorter=RESIZE, interp_type=filter, antialias=antialias,
                            subpixel_scale=subpixel_scale)
        return fn.crop(resized, crop=(SIZE, SIZE))
    pipe = pipeline()
    pipe.build()
    return np.asarray(pipe.run()[0].as_array()[0])


def main():
    program, folder = sys.argv[1:]
    files = sorted(str(p) for p in pathlib.Path(folder).rglob("*") if p.suffix.lower() in (".jpeg", ".jpg"))
    lines, pixels = dump(program, "decode", *files)
    images, at = [], 0
    for line in lines:
        assert line[0] == "ok", line
        width, height = int(line[1]), int(line[2])
        images.append(pixels[at:at + width * height * 3].reshape(height, width, 3))
        at += width * height * 3
    bad = 0
    for word, subpixel in (("dali", True), ("dali-rounded", False)):
        _, ours = dump(program, "eval", RESIZE, SIZE, word, *files)
        ours = ours.reshape(-1, SIZE, SIZE, 3).astype(int)
        worst, over, other = 0, 0, 0
        for image, mine in zip(images, ours, strict=True):
            difference = np.abs(mine - transformed(image, subpixel))
            worst, over = max(worst, difference.max()), over + (difference > 1).sum()
            other += (np.abs(mine - transformed(image, not subpixel)) > 1).sum()
        print(f"DALI {dali.__version__}, {len(files)} images, {word}: largest difference {worst}, {over} values over 1; "
              f"against the other form {100 * other / ours.size:.1f} % over 1")
        bad |= over > 0 or other == 0
    # The filters: how far the values are from DALI's, and that plain bilinear would be farther.
    for word, filter, antialias in (("dali-bicubic", types.INTERP_CUBIC, False),
                                    ("dali-triangular", types.INTERP_TRIANGULAR, True)):
        _, ours = dump(program, "eval", RESIZE, SIZE, word, *files)
        ours = ours.reshape(-1, SIZE, SIZE, 3).astype(int)
        worst, over, other = 0, 0, 0
        for image, mine in zip(images, ours, strict=True):
            difference = np.abs(mine - transformed(image, True, filter, antialias))
            worst, over = max(worst, difference.max()), over + (difference > 1).sum()
            other += (np.abs(mine - transformed(image, True)) > 1).sum()
        print(f"{word}: largest difference {worst}, {over} values over 1; against bilinear "
              f"{100 * other / ours.size:.1f} % over 1")
        bad |= over > 0 or other == 0
    sys.exit(bad)


if __name__ == "__main__":
    main()
