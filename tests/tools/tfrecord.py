"""TFRecords read and written by nothing but Python, from the descriptions of the formats: framing, CRC-32C, and protobuf's
wire format of tf.train.Example. Used by tests/cli/tfrecord.sh and tests/cli/boxes.sh.

tfrecord.py check FOLDER RECORDS [INDEX]   the records are exactly the image folder's
tfrecord.py write FOLDER RECORDS           writes an image folder in another writer's manner
tfrecord.py check-boxes FOLDER RECORDS     the records are exactly what TensorFlow's program makes of a COCO folder
tfrecord.py write-boxes FOLDER RECORDS     writes a COCO folder in another writer's manner
"""
import glob
import hashlib
import json
import os
import struct
import sys

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# ---- reading ----

def records(path):
    """(offset, size with the frame, payload) of each record, with its checksums compared."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        length, check = struct.unpack_from("<QI", data, at)
        assert check == masked_crc(data[at:at + 8]), f"{path}: length at {at}"
        payload = data[at + 12:at + 12 + length]
        check, = struct.unpack_from("<I", data, at + 12 + length)
        assert check == masked_crc(payload), f"{path}: payload at {at}"
        yield at, length + 16, payload
        at += length + 16
    assert at == len(data), path


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """(number, wire type, value) of a message."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        elif tag & 7 == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        else:
            length = {1: 8, 5: 4}[tag & 7]
            value, at = data[at:at + length], at + length
        yield tag >> 3, tag & 7, value


def values_of(kind, data):
    """The values of a BytesList (1), FloatList (2) or Int64List (3)."""
    values = []
    for number, wire, value in fields(data):
        assert number == 1
        if kind == 1:
            values.append(value)
        elif kind == 2:
            values += struct.unpack(f"<{len(value) // 4}f", value)
        elif wire == 0:
            values.append(value)
        else:
            at = 0
            while at < len(value):
                one, at = varint(value, at)
                values.append(one)
    return values


def example(payload):
    """{key: (kind, values)}"""
    (number, _, features), = fields(payload)
    assert number == 1
    found = {}
    for number, _, entry in fields(features):
        assert number == 1
        parts = dict((number, value) for number, _, value in fields(entry))
        (kind, _, data), = fields(parts[2])
        found[parts[1].decode()] = kind, values_of(kind, data)
    return found


def jpeg_size(data):
    at = 2
    while True:
        marker, length = data[at + 1], struct.unpack_from(">H", data, at + 2)[0]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return struct.unpack_from(">HH", data, at + 5)
        at += 2 + length


def images_of(folder):
    for label, name in enumerate(sorted(os.listdir(folder))):
        for file in sorted(os.listdir(os.path.join(folder, name))):
            with open(os.path.join(folder, name, file), "rb") as image:
                yield label, name, file, image.read()


def check_part(folder, files, index, boxes):
    found = {}
    for path in files:
        places = []
        for offset, size, payload in records(path):
            places.append(f"{offset} {size}\n")
            keys = example(payload)
            found[keys["image/class/text"][1][0], keys["image/filename"][1][0]] = keys
        if index:
            with open(os.path.join(index, os.path.basename(path))) as file:
                assert file.read() == "".join(places), f"index of {path}"
    count = 0
    for label, name, file, image in images_of(folder):
        height, width = jpeg_size(image)
        name, file = name.encode(), file.encode()
        expected = {
            "image/encoded": (1, [image]), "image/height": (3, [height]), "image/width": (3, [width]),
            "image/channels": (3, [3]), "image/colorspace": (1, [b"RGB"]), "image/format": (1, [b"JPEG"]),
            "image/filename": (1, [file]), "image/class/label": (3, [label + 1]), "image/class/synset": (1, [name]),
            "image/class/text": (1, [name]), "image/object/bbox/label": (3, [label + 1] * len(boxes.get(file, []))),
        }
        expected.update({"image/object/bbox/" + edge: (2, [box[i] for box in boxes.get(file, [])])
                         for i, edge in enumerate(("xmin", "ymin", "xmax", "ymax"))})
        assert found[name, file] == expected, f"{name}/{file}: {found[name, file]}"
        count += 1
    assert count == len(found), f"{len(found)} records of {count} images"
    return count


def boxes_of(path):
    boxes = {}
    for line in open(path):
        name, *edges = line.strip().split(",")
        boxes.setdefault(name.encode(), []).append([struct.unpack("<f", struct.pack("<f", float(edge)))[0] for edge in edges])
    return boxes


def check(folder, folder_of_records, index=None, csv=None):
    counts = []
    boxes = boxes_of(csv) if csv else {}
    for part, prefix in (("train", "train-"), ("val", "validation-")):
        files = sorted(os.path.join(folder_of_records, name) for name in os.listdir(folder_of_records)
                       if name.startswith(prefix))
        assert all(name.endswith(f"-of-{len(files):05d}") for name in files), files
        counts.append(check_part(os.path.join(folder, part), files, index, boxes))
    print(*counts)


# ---- writing ----

def encode(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def text(number, data):
    return encode(number << 3 | 2) + encode(len(data)) + data


def write(folder, out):
    """In the folder's order, in files named otherwise, the label not packed, the image in the middle, with a box."""
    os.makedirs(out)
    for part, prefix in (("train", "train"), ("val", "validation")):
        images = list(images_of(os.path.join(folder, part)))
        for shard in range(2):
            with open(os.path.join(out, f"{prefix}-{'ab'[shard]}"), "wb") as file:
                for label, name, _, image in images[len(images) * shard // 2:len(images) * (shard + 1) // 2]:
                    features = {
                        "image/class/synset": text(1, text(1, name.encode())),
                        "image/encoded": text(1, text(1, image)),
                        "image/class/label": text(3, encode(1 << 3) + encode(label + 1)),
                    }
                    for edge, value in (("xmin", 0.25), ("ymin", 0.25), ("xmax", 0.75), ("ymax", 0.75)):
                        features["image/object/bbox/" + edge] = text(2, text(1, struct.pack("<f", value)))
                    payload = text(1, b"".join(text(1, text(1, key.encode()) + text(2, value))
                                               for key, value in features.items()))
                    head = struct.pack("<Q", len(payload))
                    file.write(head + struct.pack("<I", masked_crc(head)) + payload +
                               struct.pack("<I", masked_crc(payload)))


# ---- COCO ----

def scenes_of(folder, part):
    """(image, its annotations, file's bytes) in the order of the COCO file, and names of the categories."""
    (path,) = glob.glob(os.path.join(folder, "annotations", f"instances_{part}*.json"))
    with open(path) as file:
        data = json.load(file)
    images = os.path.join(folder, os.path.basename(path)[len("instances_"):-len(".json")])
    kept = {image["id"]: [] for image in data["images"]}
    sizes = {image["id"]: (image["width"], image["height"]) for image in data["images"]}
    for one in data["annotations"]:
        x, y, w, h = one["bbox"]
        width, height = sizes[one["image_id"]]
        if w > 0 and h > 0 and x + w <= width and y + h <= height:
            kept[one["image_id"]].append(one)
    scenes = []
    for image in data["images"]:
        with open(os.path.join(images, image["file_name"]), "rb") as file:
            scenes.append((image, kept[image["id"]], file.read()))
    return scenes, {category["id"]: category["name"] for category in data["categories"]}


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def edges_of(image, objects):
    """{edge: values} as shares."""
    width, height = image["width"], image["height"]
    boxes = [one["bbox"] for one in objects]
    return {"xmin": [single(x / width) for x, y, w, h in boxes], "xmax": [single((x + w) / width) for x, y, w, h in boxes],
            "ymin": [single(y / height) for x, y, w, h in boxes], "ymax": [single((y + h) / height) for x, y, w, h in boxes]}


def check_boxes(folder, folder_of_records):
    counts = []
    for part in ("train", "val"):
        files = sorted(glob.glob(os.path.join(folder_of_records, f"coco_{part}.record-*")))
        assert files and all(name.endswith(f"-of-{len(files):05d}") for name in files), files
        found = [list(records(path)) for path in files]
        scenes, names = scenes_of(folder, part)
        assert sum(map(len, found)) == len(scenes)
        for index, (image, objects, data) in enumerate(scenes):
            keys = example(found[index % len(files)][index // len(files)][2])
            expected = {
                "image/height": (3, [image["height"]]), "image/width": (3, [image["width"]]),
                "image/filename": (1, [image["file_name"].encode()]), "image/source_id": (1, [str(image["id"]).encode()]),
                "image/key/sha256": (1, [hashlib.sha256(data).hexdigest().encode()]),
                "image/encoded": (1, [data]), "image/format": (1, [b"jpeg"]),
                "image/object/class/text": (1, [names[one["category_id"]].encode() for one in objects]),
                "image/object/is_crowd": (3, [one["iscrowd"] for one in objects]),
                "image/object/area": (2, [single(one["area"]) for one in objects]),
            }
            expected.update({"image/object/bbox/" + edge: (2, values)
                             for edge, values in edges_of(image, objects).items()})
            assert keys == expected, f"image {image['id']}: {keys.keys()} {expected.keys()}"
        counts += [len(scenes), sum(len(objects) for _, objects, _ in scenes)]
    with open(os.path.join(folder_of_records, "label_map.pbtxt")) as file:
        text = file.read()
    assert text == "".join(f'item {{\n  name: "{name}"\n  id: {id}\n}}\n' for id, name in sorted(names.items())), text
    print(*counts)


def list_of(kind, values):
    if kind == 1:
        return text(1, b"".join(text(1, value) for value in values))
    if kind == 2:
        return text(2, b"".join(encode(1 << 3 | 5) + struct.pack("<f", value) for value in values))
    return text(3, b"".join(encode(1 << 3) + encode(value) for value in values))


def write_boxes(folder, out):
    """In two files of other names, lists not packed, the image in the middle, masks that nobody reads, without areas."""
    os.makedirs(out)
    for part in ("train", "val"):
        scenes, names = scenes_of(folder, part)
        for shard in range(2):
            with open(os.path.join(out, f"my_{part}_{'ab'[shard]}.tfrecord"), "wb") as file:
                for image, objects, data in scenes[len(scenes) * shard // 2:len(scenes) * (shard + 1) // 2]:
                    features = {
                        "image/object/class/text": list_of(1, [f"/m/{one['category_id']}".encode() for one in objects]),
                        "image/encoded": list_of(1, [data]),
                        "image/object/mask": list_of(1, [b"mask"] * len(objects)),
                        "image/source_id": list_of(1, [str(image["id"]).encode()]),
                        "image/height": list_of(3, [image["height"]]), "image/width": list_of(3, [image["width"]]),
                    }
                    for edge, values in edges_of(image, objects).items():
                        features["image/object/bbox/" + edge] = list_of(2, values)
                    payload = text(1, b"".join(text(1, text(1, key.encode()) + text(2, value))
                                               for key, value in features.items()))
                    head = struct.pack("<Q", len(payload))
                    file.write(head + struct.pack("<I", masked_crc(head)) + payload +
                               struct.pack("<I", masked_crc(payload)))
    with open(os.path.join(out, "their_map.pbtxt"), "w") as file:
        for id, name in names.items():
            file.write(f"item {{ name: '/m/{id}', id: {id}; display_name: \"{name}\" }} # one\n")


{"check": check, "write": write, "check-boxes": check_boxes, "write-boxes": write_boxes}[sys.argv[1]](*sys.argv[2:])
