"""match_boxes.py SIZE COCO_FILE...: which anchors of SSD320 the boxes of each file get, as `convoy check` tells it.

Written from the definition alone, in double precision: five levels of 8 to 128 pixels, squares and rectangles twice as
wide or high of 4 strides and of 4 * sqrt(2), in the middle of the cells where these divide the image; an anchor goes to
the box that it overlaps most, by half at the least; each box then gets its best anchor all the same, and of several that
want one the first box has it. Boxes are those of the whole image, scaled to SIZE x SIZE. An overlap so close to a half
that rounding decides ends the program: such a set compares nothing."""
import json
import math
import sys


def anchors(size):
    for level in range(3, 8):
        stride = 2**level
        count = math.ceil(size / stride)
        offset = stride / 2 if size % stride == 0 else 0
        for y in range(count):
            for x in range(count):
                for aspect in (1, 2, 0.5):
                    for scale in (1, math.sqrt(2)):
                        height = 4 * stride * scale / math.sqrt(aspect)
                        width = 4 * stride * scale * math.sqrt(aspect)
                        cy, cx = y * stride + offset, x * stride + offset
                        yield tuple(v / size for v in (cy - height / 2, cx - width / 2, cy + height / 2, cx + width / 2))


def area(box):
    return (box[2] - box[0]) * (box[3] - box[1])


def overlap(a, b):
    height, width = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if height <= 0 or width <= 0:
        return 0
    return height * width / (area(a) + area(b) - height * width)


def match(boxes, places):
    """Matched anchors, boxes of which no anchor covers half, boxes without anchor."""
    owner, best = {}, [(0, 0)] * len(boxes)
    for place, anchor in enumerate(places):
        most = 0
        for row, box in enumerate(boxes):
            share = overlap(box, anchor)
            if abs(share - 0.5) < 1e-6:
                sys.exit(f"{box} and {anchor} overlap by {share}")
            if share > best[row][0]:
                best[row] = (share, place)
            if share >= 0.5 and share > most:
                most, owner[place] = share, row
    for row in reversed(range(len(boxes))):
        owner[best[row][1]] = row
    covered = {row for place, row in owner.items() if overlap(boxes[row], places[place]) >= 0.5}
    return len(owner), len(boxes) - len(covered), len(boxes) - len(set(owner.values()))


size = int(sys.argv[1])
places = list(anchors(size))
print(f'"anchor_image_size":{size}')
for path in sys.argv[2:]:
    data = json.load(open(path))
    total = [0, 0, 0]
    for image in data["images"]:
        boxes = []
        for a in data["annotations"]:
            if a["image_id"] == image["id"]:
                x, y, w, h = a["bbox"]
                boxes.append((y / image["height"], x / image["width"], (y + h) / image["height"], (x + w) / image["width"]))
        if boxes:
            total = [t + n for t, n in zip(total, match(boxes, places))]
    for name, value in zip(("anchors_matched", "below_half_overlap", "without_anchor"), total):
        print(f'"{name}":{value}')
