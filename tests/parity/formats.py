"""formats.py DUMP_TRANSFORM: images of the rarer formats, decoded by Convoy and by others."""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image

dump = sys.argv[1]
failures = 0


def decode(path):
    """An array (H, W, 3), or the sentence about what is wrong."""
    with tempfile.NamedTemporaryFile() as out:
        line = subprocess.run([dump, out.name, "decode", path], capture_output=True, text=True).stdout.strip()
        if not line.startswith("ok "):
            return line
        width, height = map(int, line.split()[1:3])
        return np.fromfile(out.name, np.uint8).reshape(height, width, 3)


def check(path, expected, tolerance=0):
    global failures
    got = decode(path)
    name = os.path.basename(path)
    if isinstance(got, str):
        print(f"FAILED: {name}: {got}")
    elif got.shape != expected.shape:
        print(f"FAILED: {name}: shape {got.shape} instead of {expected.shape}")
    elif np.abs(got.astype(int) - expected).max() > tolerance:
        print(f"FAILED: {name}: differs by {np.abs(got.astype(int) - expected).max()}")
    else:
        return
    failures += 1


def check_upright(path, side, expected):
    """A square image as --exif-orientation turns it: the transform of evaluation where it neither resizes nor crops."""
    global failures
    with tempfile.NamedTemporaryFile() as out:
        run(dump, out.name, "eval", str(side), str(side), "exif", path)
        got = np.fromfile(out.name, np.uint8)
    if not np.array_equal(got, expected.reshape(-1)):
        print(f"FAILED: {os.path.basename(path)}: turned otherwise")
        failures += 1


def expect_bad(path, words):
    global failures
    got = decode(path)
    if not isinstance(got, str) or words not in got:
        print(f"FAILED: {os.path.basename(path)}: not refused with '{words}': {got if isinstance(got, str) else got.shape}")
        failures += 1


def picture(generator, width, height):
    """Smooth, with edges: what codecs are made for."""
    y, x = np.mgrid[0:height, 0:width]
    data = np.stack([128 + 120 * np.sin(x / 9 + y / 17), 255 * x / width, 255 * y / height], -1)
    data[height // 3 : height // 2, width // 4 : width // 2] = generator.integers(0, 256, 3)
    return data.astype(np.uint8)


def by_pillow(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def write_bmp(path, rows, width, height, bits, compression=0, masks=b"", old=False, top_down=False, palette=b""):
    if old:
        header = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        header = struct.pack("<IiiHHIIiiII", 40, width, -height if top_down else height, 1, bits, compression, 0, 0, 0, 0, 0)
    start = 14 + len(header) + len(masks) + len(palette)
    with open(path, "wb") as file:
        file.write(b"BM" + struct.pack("<IHHI", start + len(rows), 0, 0, start) + header + masks + palette + rows)


def bitmaps(folder, generator, image):
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        path = os.path.join(folder, mode + ".bmp")
        image.convert(mode).save(path)
        check(path, by_pillow(path))
    kinds = {
        "555": dict(bits=16),
        "565": dict(bits=16, compression=3, masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F)),
        "32": dict(bits=32),
        "32masks": dict(bits=32, compression=3, masks=struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)),
        "topdown": dict(bits=24, top_down=True),
        "old": dict(bits=24, old=True),
        "4": dict(bits=4, palette=generator.bytes(64)),
        "1": dict(bits=1, palette=generator.bytes(8)),
        "8": dict(bits=8, palette=generator.bytes(1024)),
    }
    for name, kind in kinds.items():
        for width, height in ((37, 11), (64, 5), (1, 1)):
            path = os.path.join(folder, f"{name}-{width}.bmp")
            write_bmp(path, generator.bytes((width * kind["bits"] + 31) // 32 * 4 * height), width, height, **kind)
            check(path, by_pillow(path))
    path = os.path.join(folder, "rle.bmp")
    write_bmp(path, b"\0" * 64, 8, 8, 8, compression=1, palette=generator.bytes(1024))
    expect_bad(path, "with compression: convert it to PNG")
    write_bmp(path, b"\0" * 64, 100, 100, 24)
    expect_bad(path, "is a BMP image that is truncated")


def gifs(folder, generator, image):
    for colours in (2, 3, 16, 200, 256):
        for interlace in (0, 1):
            path = os.path.join(folder, f"{colours}-{interlace}.gif")
            image.quantize(colours).save(path, interlace=interlace)
            check(path, by_pillow(path))
    for name, mode in (("grey", "L"), ("one", "1")):
        path = os.path.join(folder, name + ".gif")
        image.convert(mode).save(path)
        check(path, by_pillow(path))
    noise = Image.fromarray(generator.integers(0, 256, (150, 170), dtype=np.uint8), "L")
    path = os.path.join(folder, "noise.gif")  # the table of codes is full again and again
    noise.save(path)
    check(path, by_pillow(path))
    path = os.path.join(folder, "moving.gif")
    frames = [image.quantize(32).rotate(90 * i) for i in range(3)]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=50)
    check(path, by_pillow(path))
    path = os.path.join(folder, "transparent.gif")
    image.quantize(16).save(path, transparency=3)
    check(path, by_pillow(path))
    # A first image that does not fill the screen, with and without a transparent index.
    whole = open(os.path.join(folder, "16-0.gif"), "rb").read()
    for name, extension in (("part", b""), ("part-transparent", b"!\xf9\x04\x01\0\0\x05\0")):
        width, height = struct.unpack("<HH", whole[6:10])
        at = whole.index(b",", 13 + 3 * (2 << (whole[10] & 7)))
        data = whole[:6] + struct.pack("<HH", width + 20, height + 9) + whole[10:at] + extension
        data += b"," + struct.pack("<HH", 7, 5) + whole[at + 5 :]
        path = os.path.join(folder, name + ".gif")
        open(path, "wb").write(data)
        check(path, by_pillow(path))
    for size in (10, 20, len(whole) // 2, len(whole) - 20):
        path = os.path.join(folder, "cut.gif")
        open(path, "wb").write(whole[:size])
        expect_bad(path, "is a GIF image")


def tiffs(folder, image):
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
            path = os.path.join(folder, f"{mode}-{compression}.tif")
            image.convert(mode).save(path, compression=compression)
            check(path, by_pillow(path))
    path = os.path.join(folder, "jpeg.tif")
    image.save(path, compression="jpeg", quality=95)
    check(path, by_pillow(path), 3)  # another conversion of the colours
    # Stored turned: the pixels come as they are stored, and the tag says how to turn them.
    for orientation in (3, 6):
        path = os.path.join(folder, f"turned{orientation}.tif")
        image.save(path, tiffinfo={274: orientation})
        with Image.open(os.path.join(folder, "RGB-raw.tif")) as plain:
            check(path, np.asarray(plain))
    # --exif-orientation turns them as Pillow does, which turns this kind alone when it opens one.
    side = min(image.size)
    square = image.crop((0, 0, side, side))
    for orientation in range(1, 9):
        path = os.path.join(folder, f"square{orientation}.tif")
        square.save(path, tiffinfo={274: orientation})
        check_upright(path, side, by_pillow(path))
    whole = open(os.path.join(folder, "RGB-tiff_lzw.tif"), "rb").read()
    path = os.path.join(folder, "cut.tif")
    for size in (8, 20, len(whole) // 2):
        open(path, "wb").write(whole[:size])
        expect_bad(path, "is a TIFF image that libtiff cannot read")
    path = os.path.join(folder, "float.tif")
    Image.fromarray(np.zeros((4, 4), np.float32), "F").save(path)
    expect_bad(path, "is a TIFF image that libtiff cannot read")


def write_tiff(path, samples, big=False, order="<", alpha=None, planar=False, orientation=None):
    """An array (H, W, samples) of 8 or 16 bits, uncompressed; alpha: ExtraSamples, 0 unspecified, 1 associated, 2 not."""
    height, width, count = samples.shape
    data = (samples.transpose(2, 0, 1) if planar else samples).astype(samples.dtype.newbyteorder(order)).tobytes()
    strips = count if planar else 1
    offset, word, number = (16, "Q", "Q") if big else (8, "I", "H")
    length = {3: 2, 4: 4, 16: 8}
    tags = [(256, 3, [width]), (257, 3, [height]), (258, 3, [8 * samples.itemsize] * count), (259, 3, [1]),
            (262, 3, [2 if count > 2 else 1]), (273, 4, [offset + i * len(data) // strips for i in range(strips)])]
    tags += [(274, 3, [orientation])] if orientation else []
    tags += [(277, 3, [count]), (278, 3, [height]), (279, 4, [len(data) // strips] * strips), (284, 3, [1 + planar])]
    tags += [(338, 3, [alpha])] if alpha is not None else []
    room = 8 if big else 4
    end = offset + len(data)
    behind = end + (8 if big else 2) + len(tags) * (20 if big else 12) + room
    directory, rest = struct.pack(order + number, len(tags)), b""
    for tag, kind, values in tags:
        packed = struct.pack(order + {3: "H", 4: "I"}[kind] * len(values), *values)
        if len(packed) > room:
            where, rest = behind + len(rest), rest + packed
            packed = struct.pack(order + word, where)
        directory += struct.pack(order + "HH" + word, tag, kind, len(values)) + packed.ljust(room, b"\0")
    directory += struct.pack(order + word, 0)
    mark = b"II" if order == "<" else b"MM"
    head = struct.pack(order + "HHHQ", 43, 8, 0, end) if big else struct.pack(order + "HI", 42, end)
    open(path, "wb").write(mark + head + data + directory + rest)


def deep_tiffs(folder, generator, image):
    """Alpha that is not opaque, 16 bits, and BigTIFF."""
    rgb = np.asarray(image)
    height, width = rgb.shape[:2]
    alpha = generator.integers(0, 256, (height, width, 1), np.uint8)
    grey = rgb[..., 1:2]
    wide = np.concatenate([rgb, alpha], -1).astype(np.uint16) << 8 | generator.integers(0, 256, (height, width, 4), np.uint16)
    scaled = ((wide.astype(np.int64) + 128) // 257).astype(np.uint8)
    associated = (rgb.astype(int) * alpha // 255).astype(np.uint8)
    back = np.where(alpha > 0, np.minimum(255 * associated.astype(int) // np.maximum(alpha, 1), 255), associated)
    for big, order, planar in ((False, "<", False), (True, "<", False), (True, ">", True), (False, ">", True)):
        form = f"{'big' if big else 'classic'}{'MI'[order == '<']}{'-planar' if planar else ''}"

        def one(name, samples, expected, kind=None, pillow=True):
            path = os.path.join(folder, f"{name}-{form}.tif")
            write_tiff(path, samples, big, order, kind, planar)
            check(path, expected)
            if pillow and not planar and not big: # this Pillow knows no BigTIFF, and of planes no alpha
                check(path, by_pillow(path))

        one("rgb", rgb, rgb)
        one("unspecified", np.concatenate([rgb, alpha], -1), rgb, 0)
        one("unassociated", np.concatenate([rgb, alpha], -1), rgb, 2)
        one("associated", np.concatenate([associated, alpha], -1), back, 1)
        one("grey-alpha", np.concatenate([grey, alpha], -1), grey.repeat(3, -1), 2)
        one("rgb16", wide[..., :3], scaled[..., :3], None, False)
        one("unassociated16", wide, scaled[..., :3], 2, False)
        one("grey16", wide[..., 1:2], (wide[..., 1:2] >> 8).astype(np.uint8).repeat(3, -1), None, False)


def run(*command):
    return subprocess.run(command, capture_output=True).returncode == 0


def heifs(folder, image):
    encoder, decoder = shutil.which("heif-enc"), shutil.which("heif-convert")
    if not encoder or not decoder:
        print("skipped in part: no heif-enc (scripts/setup --test installs it)")
        return False
    png = os.path.join(folder, "in.png")
    image.save(png)
    made = 0
    for name, options in (("a.heic", []), ("lossless.heic", ["-L"]), ("b.avif", ["-A"]), ("deep.heic", ["-b", "10"])):
        path = os.path.join(folder, name)
        if not run(encoder, *options, png, "-o", path):
            continue
        made += 1
        back = os.path.join(folder, name + ".png")
        if not run(decoder, path, back):
            print(f"skipped in part: heif-convert does not read {name}")
            continue
        # heif-convert keeps 10 bits as 16: rounding to 8 may differ by one.
        check(path, by_pillow(back), 1 if name.startswith("deep") else 0)
        data = open(path, "rb").read()
        for size in (16, 100, len(data) // 2, len(data) - 30):
            cut = os.path.join(folder, "cut-" + name)
            open(cut, "wb").write(data[:size])
            expect_bad(cut, "is a HEIC or AVIF image that libheif cannot read")
        turned = turn(data)
        if turned is None:
            print(f"skipped in part: no place for a rotation in {name}")
            continue
        path = os.path.join(folder, "turned-" + name)
        open(path, "wb").write(turned)
        if run(decoder, path, back):
            check(path, by_pillow(back), 1 if name.startswith("deep") else 0)
            height, width = by_pillow(back).shape[:2]
            if (width, height) != (image.height, image.width):
                raise SystemExit(f"{name} was not turned by the test")
    huge_inside(folder, image, encoder)
    return made > 0


def huge_inside(folder, image, encoder):
    """A small image that is cut out of a tile of a huge one: heif-enc makes such a tile, smaller, of odd sizes."""
    png, path = os.path.join(folder, "odd.png"), os.path.join(folder, "odd.heic")
    image.crop((0, 0, 61, 45)).save(png)
    data = open(path, "rb").read() if run(encoder, png, "-o", path) else b""
    tile = data.find(b"ispe") + 8
    if data.count(b"ispe") < 2 or data[tile : tile + 8] == struct.pack(">II", 61, 45):
        print("skipped in part: heif-enc makes no tile that is larger than the image")
        return
    open(path, "wb").write(data[:tile] + struct.pack(">II", 20000, 20000) + data[tile + 8 :])
    expect_bad(path, "exceeds the maximum image size 16384x16384")


def boxes(data, begin, end):
    """(kind, begin of the box, begin of its content, end)"""
    while begin + 8 <= end:
        size, kind = struct.unpack(">I4s", data[begin : begin + 8])
        size = size or end - begin
        if size < 8:
            return
        yield kind, begin, begin + 8, begin + size
        begin += size


def turn(data):
    """The file with a rotation by 90 degrees: 'irot' among the properties, associated with the primary item. Offsets in
    'iloc' grow with what comes before the data. None: a file of another make."""
    add = struct.pack(">I4sB", 9, b"irot", 1)
    meta = next((box for box in boxes(data, 0, len(data)) if box[0] == b"meta"), None)
    if not meta:
        return None
    inside = {box[0]: box for box in boxes(data, meta[2] + 4, meta[3])}
    if b"iprp" not in inside or b"iloc" not in inside or b"pitm" not in inside:
        return None
    primary = struct.unpack(">H", data[inside[b"pitm"][2] + 4 : inside[b"pitm"][2] + 6])[0]
    parts = {box[0]: box for box in boxes(data, inside[b"iprp"][2], inside[b"iprp"][3])}
    ipco, ipma = parts[b"ipco"], parts[b"ipma"]
    number = len(list(boxes(data, ipco[2], ipco[3]))) + 1
    at, count = ipma[2] + 8, struct.unpack(">I", data[ipma[2] + 4 : ipma[2] + 8])[0]
    if data[ipma[2]] != 0 or data[ipma[2] + 3] & 1:
        return None
    for _ in range(count):
        item, associations = struct.unpack(">HB", data[at : at + 3])
        if item == primary:
            break
        at += 3 + associations
    else:
        return None
    out = bytearray(data)
    out[at + 2] += 1
    out[at + 3 + associations : at + 3 + associations] = bytes([0x80 | number])
    out[ipco[3] : ipco[3]] = add
    more = len(add) + 1
    for box, grown in ((meta, more), (inside[b"iprp"], more), (ipco, len(add)), (ipma, 1)):
        start = box[1] + (len(add) if box is ipma else 0)
        out[start : start + 4] = struct.pack(">I", struct.unpack(">I", out[start : start + 4])[0] + grown)
    return fix_offsets(bytes(out), more)


def fix_offsets(data, more):
    meta = next(box for box in boxes(data, 0, len(data)) if box[0] == b"meta")
    iloc = next(box for box in boxes(data, meta[2] + 4, meta[3]) if box[0] == b"iloc")
    version, sizes = data[iloc[2]], struct.unpack(">H", data[iloc[2] + 4 : iloc[2] + 6])[0]
    offset_size, length_size, base_size, index_size = (sizes >> 12, sizes >> 8 & 15, sizes >> 4 & 15, sizes & 15)
    if version > 1:
        return None
    at, out = iloc[2] + 8, bytearray(data)
    for _ in range(struct.unpack(">H", data[iloc[2] + 6 : iloc[2] + 8])[0]):
        method = struct.unpack(">H", data[at + 2 : at + 4])[0] & 15 if version == 1 else 0
        at += 2 + (2 if version == 1 else 0) + 2 + base_size
        extents = struct.unpack(">H", data[at : at + 2])[0]
        at += 2
        for _ in range(extents):
            at += index_size if version == 1 else 0
            if method == 0:
                value = int.from_bytes(data[at : at + offset_size], "big") + more
                out[at : at + offset_size] = value.to_bytes(offset_size, "big")
            at += offset_size + length_size
    return bytes(out)


def main():
    generator = np.random.default_rng(7)
    image = Image.fromarray(picture(generator, 88, 64))
    complete = True
    with tempfile.TemporaryDirectory() as folder:
        bitmaps(folder, generator, image)
        gifs(folder, generator, image)
        small = os.path.join(folder, "RGB.tif")
        image.save(small)
        if "takes libtiff" in str(decode(small)):
            print("skipped in part: no libtiff")
            complete = False
        else:
            tiffs(folder, image)
            deep_tiffs(folder, generator, image)
        complete = heifs(folder, image) and complete
    if failures or (not complete and os.environ.get("CONVOY_CI")):
        sys.exit(1)
    sys.exit(0 if complete else 77)


main()
