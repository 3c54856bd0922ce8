"""Asks a server what tests/cli/serve.sh wants to know.

support_serve.py ADDRESS PART CLASSIFIED DETECTED [PROCESS]: CLASSIFIED and DETECTED are what `convoy classify` and `convoy
detect` say about their images; the classifier is called "shapes", the detector "checkpoint"."""
import base64
import http.client
import json
import os
import re
import signal
import socket
import struct
import sys
import threading
import time
import urllib.parse

address = urllib.parse.urlsplit(sys.argv[1])
part = sys.argv[2]
classified, detected = (json.load(open(path)) if path != "/dev/null" else [] for path in sys.argv[3:5])
files = [answer["file"] for answer in classified]
pictures = [answer["file"] for answer in detected]
side = 32


def read(path):
    with open(path, "rb") as file:
        return file.read()


def ask(method, path, body=None, headers=None, connection=None):
    """Status, headers and body of an answer."""
    link = connection or http.client.HTTPConnection(address.hostname, address.port, timeout=120)
    link.request(method, path, body, headers or {})
    answer = link.getresponse()
    data = answer.read()
    if not connection:
        link.close()
    return answer.status, answer.headers, data


def ask_json(method, path, body=None, headers=None, connection=None):
    status, _, data = ask(method, path, body, headers, connection)
    return status, json.loads(data)


def refused(expected, pattern, method, path, body=None, headers=None):
    status, answer = ask_json(method, path, body, headers)
    assert status == expected and set(answer) == {"error"}, (status, answer)
    assert re.search(pattern, answer["error"]) and not answer["error"].endswith("."), answer


def near(a, b, most=1e-5):
    assert len(a) == len(b)
    for x, y in zip(a, b):
        assert abs(x - y) <= most * max(1, abs(y)), (x, y)


def same_class(answer, expected, count):
    assert [p["index"] for p in answer["predictions"]] == [p["index"] for p in expected["predictions"]][:count], answer
    assert [p["class"] for p in answer["predictions"]] == [p["class"] for p in expected["predictions"]][:count]
    near([p["probability"] for p in answer["predictions"]], [p["probability"] for p in expected["predictions"]][:count])


def same_objects(answer, expected):
    """Objects of nearly equal scores change places, and the last ones are others, where images are computed in batches of
    another size."""
    assert (answer["width"], answer["height"]) == (expected["width"], expected["height"])
    found, known = answer["detections"], expected["detections"]
    assert len(found) == len(known) > 0
    near([d["score"] for d in found], [d["score"] for d in known], 1e-5)

    def twin(object):
        return any(object["class_id"] == other["class_id"] and object["class"] == other["class"] and
                   all(abs(x - y) < 1e-2 for x, y in zip(object["bbox"], other["bbox"])) for other in known)

    assert sum(map(twin, found)) >= 0.9 * len(found), (found, known)


def form(parts):
    """The body of a form and its type. parts: (field, file name or None, bytes)."""
    boundary = "----a-boundary-of-parts"
    body = b""
    for field, name, data in parts:
        file = f'; filename="{name}"' if name is not None else ""
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"{file}\r\n\r\n'.encode() + data + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def infer(request, model="shapes", binary=b"", headers=None):
    text = json.dumps(request).encode()
    headers = dict(headers or {})
    if binary:
        headers["Inference-Header-Content-Length"] = str(len(text))
    status, answer_headers, data = ask("POST", f"/v2/models/{model}/infer", text + binary, headers)
    size = answer_headers.get("Inference-Header-Content-Length")
    answer = json.loads(data[: int(size)] if size else data)
    return status, answer, data[int(size) :] if size else b""


def tensor(images):
    """Numbers that no image has, but every one of them its own."""
    return [((i * 2654435761 >> 7) % 2000) / 500 - 2 for i in range(images * 3 * side * side)]


def text_of(path):
    return base64.b64encode(read(path)).decode()


def test_pages():
    link = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    status, index = ask_json("GET", "/", connection=link)
    socket_before = link.sock
    assert status == 200 and [n["name"] for n in index["networks"]] == ["shapes", "checkpoint"], index
    assert [n["task"] for n in index["networks"]] == ["classify", "detect"]
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/shapes/ready", "/v2/models/shapes/versions/1/ready"):
        status, _, body = ask("GET", path, connection=link)
        assert status == 200 and True in json.loads(body).values(), (path, body)
    assert link.sock is socket_before is not None, "the connection was closed between requests"
    assert ask_json("GET", "/v2")[1]["extensions"] == ["binary_tensor_data", "classification"]
    assert ask_json("GET", "/v2/models")[1] == {"models": ["shapes", "checkpoint"]}
    status, model = ask_json("GET", "/v2/models/shapes")
    assert model == ask_json("GET", "/v2/models/shapes/versions/1")[1]
    assert model["inputs"][0] == {"name": "input", "datatype": "FP32", "shape": [-1, 3, side, side]}
    assert model["inputs"][1] == {"name": "images", "datatype": "BYTES", "shape": [-1]}
    assert [o["shape"] for o in model["outputs"]] == [[-1, 10], [-1, 10]] and model["parameters"]["arch"] == "resnet18"
    model = ask_json("GET", "/v2/models/checkpoint")[1]
    assert [o["name"] for o in model["outputs"]] == ["boxes", "scores", "class_ids", "count"]
    status, headers, body = ask("HEAD", "/v2/models/shapes")
    assert status == 200 and body == b"" and int(headers["Content-Length"]) > 100


def test_alive():
    assert ask_json("GET", "/v2/health/live") == (200, {"live": True})


def test_answers():
    for topk in (1, 3, 10, 11):
        status, answers = ask_json("POST", f"/classify?topk={topk}", read(files[0]))
        assert status == 200 and len(answers) == 1 and answers[0]["file"] == "image"
        same_class(answers[0], classified[0], topk)
        assert "logits" not in answers[0]
    status, answers = ask_json("POST", "/classify?model=shapes&logits=1", read(files[1]), {"Content-Type": "image/jpeg"})
    assert len(answers[0]["predictions"]) == 5
    near(answers[0]["logits"], classified[1]["logits"])
    # A body in pieces, without its length before it.
    link = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    data = read(files[2])
    pieces = [data[i : i + 100] for i in range(0, len(data), 100)]
    link.request("POST", "/classify", iter(pieces), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    same_class(json.loads(link.getresponse().read())[0], classified[2], 5)
    # All of them as files of a form, with one that is no image among them; by their names.
    parts = [("images", name, read(name)) for name in files]
    parts.insert(1, ("images", "notes \u00e4.txt", b"no image"))
    parts.insert(2, ("images", "nothing", b""))
    status, answers = ask_json("POST", "/classify?topk=10", *form(parts))
    assert status == 200 and len(answers) == len(files) + 2
    assert answers[1]["file"] == "notes \u00e4.txt" and "is no image" in answers[1]["error"], answers[1]
    assert answers[2]["file"] == "nothing" and answers[2]["error"]
    for answer, expected in zip(answers[:1] + answers[3:], classified):
        assert answer["file"] == expected["file"]
        same_class(answer, expected, 10)
    # In two pieces, wherever they end: one file, not an empty one and one.
    body, headers = form([("image", "in pieces.jpg", read(files[0]))])
    begin = body.index(read(files[0]))
    for cut in [1, begin - 3, *range(begin, begin + 6), len(body) - 20, len(body) - 1]:
        link = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        link.connect()
        link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.putrequest("POST", "/classify")
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            link.putheader(name, value)
        link.endheaders(body[:cut])
        time.sleep(0.02)
        link.send(body[cut:])
        answers = json.loads(link.getresponse().read())
        assert [answer["file"] for answer in answers] == ["in pieces.jpg"], (cut, answers)
        same_class(answers[0], classified[0], 5)
    # A detector's.
    status, answers = ask_json("POST", "/detect?threshold=0", read(pictures[0]))
    assert status == 200 and answers[0]["file"] == "image"
    assert {**answers[0], "file": pictures[0]} == detected[0], (answers[0], detected[0])
    status, answers = ask_json("POST", "/detect?threshold=0&model=checkpoint",
                               *form([("images", name, read(name)) for name in pictures]))
    for answer, expected in zip(answers, detected):
        same_objects(answer, expected)
    score = detected[0]["detections"][2]["score"]
    answers = ask_json("POST", f"/detect?threshold={score}", read(pictures[0]))[1]
    assert answers[0]["detections"] == [d for d in detected[0]["detections"] if d["score"] >= score]


def test_protocol():
    numbers = tensor(2)
    plain = {"name": "input", "shape": [2, 3, side, side], "datatype": "FP32", "data": numbers}
    status, answer, _ = infer({"id": "a \u00fc", "inputs": [plain]})
    assert status == 200 and answer["id"] == "a \u00fc" and answer["model_name"] == "shapes", answer
    logits, probabilities = answer["outputs"]
    assert logits["name"] == "logits" and logits["shape"] == [2, 10] and logits["datatype"] == "FP32"
    assert abs(sum(probabilities["data"][:10]) - 1) < 1e-5 and len(probabilities["data"]) == 20
    assert logits["data"][:10] != logits["data"][10:]
    # Nested as the tensor is, and each image by itself.
    nested = [[[numbers[i : i + side] for i in range(at, at + side * side, side)]
               for at in range(n * 3 * side * side, (n + 1) * 3 * side * side, side * side)] for n in range(2)]
    answer = infer({"inputs": [{**plain, "data": nested}], "outputs": [{"name": "logits"}]})[1]
    assert len(answer["outputs"]) == 1 and answer["outputs"][0]["data"] == logits["data"]
    for n in range(2):
        answer = infer({"outputs": [{"name": "logits"}],
                        "inputs": [{"data": [nested[n]], "datatype": "FP32", "shape": [1, 3, side, side], "name": "input"}]})[1]
        near(answer["outputs"][0]["data"], logits["data"][10 * n : 10 * n + 10])
    # As bytes, both ways.
    binary = struct.pack(f"<{len(numbers)}f", *numbers)
    given = {"name": "input", "shape": [2, 3, side, side], "datatype": "FP32",
             "parameters": {"binary_data_size": len(binary)}}
    status, answer, data = infer({"inputs": [given], "parameters": {"binary_data_output": True}}, binary=binary)
    assert status == 200 and [o["parameters"]["binary_data_size"] for o in answer["outputs"]] == [80, 80], answer
    assert "data" not in answer["outputs"][0]
    near(struct.unpack("<20f", data[:80]), logits["data"])
    near(struct.unpack("<20f", data[80:]), probabilities["data"])
    status, answer, data = infer({"inputs": [given], "outputs": [
        {"name": "probabilities", "parameters": {"binary_data": True, "classification": 2}}, {"name": "logits"}]}, binary=binary)
    assert answer["outputs"][0]["datatype"] == "BYTES" and answer["outputs"][0]["shape"] == [2, 2]
    assert answer["outputs"][1]["data"] == logits["data"]
    first = data[4 : 4 + struct.unpack("<I", data[:4])[0]].decode()
    best = max(range(10), key=lambda i: probabilities["data"][i])
    score, index, name = first.split(":")
    assert int(index) == best and abs(float(score) - probabilities["data"][best]) < 1e-5 and name
    # Encoded images: base64 in the JSON text, or with their lengths after it.
    status, answer, _ = infer({"inputs": [{"name": "images", "datatype": "BYTES", "shape": [3],
                                           "data": [text_of(f) for f in files[:3]]}],
                               "outputs": [{"name": "logits"}, {"name": "probabilities", "parameters": {"classification": 1}}]})
    assert status == 200
    for i in range(3):
        near(answer["outputs"][0]["data"][10 * i : 10 * i + 10], classified[i]["logits"])
        assert answer["outputs"][1]["data"][i].split(":")[2] == classified[i]["predictions"][0]["class"]
    images = b"".join(struct.pack("<I", len(read(f))) + read(f) for f in files[:3])
    status, answer, _ = infer({"inputs": [{"name": "images", "datatype": "BYTES", "shape": [3, 1],
                                           "parameters": {"binary_data_size": len(images)}}]}, binary=images)
    near(answer["outputs"][0]["data"][10:20], classified[1]["logits"])
    # A detector's.
    status, answer, data = infer({"parameters": {"threshold": 0}, "inputs": [
        {"name": "images", "datatype": "BYTES", "shape": [2], "data": [text_of(f) for f in pictures[:2]]}],
        "outputs": [{"name": "boxes"}, {"name": "scores"}, {"name": "class_ids"},
                    {"name": "count", "parameters": {"binary_data": True}}]}, "checkpoint")
    assert status == 200, answer
    boxes, scores, ids, count = answer["outputs"]
    counts = struct.unpack("<2i", data)
    assert boxes["shape"] == [2, 100, 4] and scores["shape"] == [2, 100] and ids["datatype"] == "INT64"
    for i in range(2):
        found = detected[i]["detections"]
        assert counts[i] == len(found)
        near(scores["data"][100 * i : 100 * i + len(found)], [d["score"] for d in found], 1e-4)
        rows = range(100 * i, 100 * i + len(found))
        same_objects({"width": detected[i]["width"], "height": detected[i]["height"], "detections": [
            {"bbox": boxes["data"][4 * r : 4 * r + 4], "score": scores["data"][r], "class_id": ids["data"][r],
             "class": {d["class_id"]: d["class"] for d in found}.get(ids["data"][r])} for r in rows]}, detected[i])
        assert not any(scores["data"][100 * i + len(found) : 100 * (i + 1)])


def test_refusals():
    image = read(files[0])
    for path in ("/nothing", "/v2/nothing", "/v2/models/nothing", "/v2/models/shapes/versions/2", "/v2/models/shapes/nothing",
                 "/classify/more", "/metrics/more", "/" + "long" * 300, "/v2/models/nothing/infer"):
        refused(404, "there is n|version 1 alone", "GET", path)
    for method, path in (("GET", "/classify"), ("PUT", "/detect"), ("DELETE", "/v2/models/shapes/infer"), ("POST", "/v2/models"),
                         ("POST", "/"), ("POST", "/metrics"), ("POST", "/v2/health/live")):
        status, headers, body = ask(method, path, image if method in ("PUT", "POST") else None)
        assert status == 405 and headers["Allow"] and json.loads(body)["error"], (method, path, status)
    refused(400, "is no image", "POST", "/classify", b"no image")
    refused(400, "truncated|ends|end of", "POST", "/classify", image[: len(image) // 2])
    refused(400, "has no image", "POST", "/classify", b"")
    refused(400, 'option "top" in the address is not known', "POST", "/classify?top=1", image)
    refused(400, 'option "topk"', "POST", "/detect?topk=1", image)
    for topk in ("0", "-1", "x", "1x", ""):
        refused(400, "topk is a number from 1 on", "POST", f"/classify?topk={topk}", image)
    for threshold in ("2", "-0.1", "x", "nan", ""):
        refused(400, "threshold is a number between 0 and 1", "POST", f"/detect?threshold={threshold}", image)
    refused(404, 'there is no network "none"', "POST", "/classify?model=none", image)
    refused(400, 'network "checkpoint" detects and does not classify', "POST", "/classify?model=checkpoint", image)
    refused(400, 'network "shapes" classifies and does not detect', "POST", "/detect?model=shapes", image)
    refused(415, "compressed", "POST", "/classify", image, {"Content-Encoding": "gzip"})
    refused(400, "boundary", "POST", "/classify", image, {"Content-Type": "multipart/form-data"})
    refused(400, 'field "topk" of the form is no file', "POST", "/classify", *form([("topk", None, b"1")]))
    refused(400, "has no image", "POST", "/classify", *form([]))
    body, headers = form([("images", "a", image)])
    refused(400, "form", "POST", "/classify", body[: len(body) // 2], headers)
    refused(400, "at most 1024 images", "POST", "/classify", *form([("i", "a", b"x")] * 1025))
    # The protocol's.
    data = tensor(1)
    plain = {"name": "input", "shape": [1, 3, side, side], "datatype": "FP32", "data": data}

    def wrong(pattern, request, model="shapes", binary=b""):
        status, answer, _ = infer(request, model, binary)
        assert status == 400 and set(answer) == {"error"} and re.search(pattern, answer["error"]), (status, answer)

    refused(400, "JSON", "POST", "/v2/models/shapes/infer", b"{")
    refused(400, "", "POST", "/v2/models/shapes/infer", b"")
    refused(400, "a request is an object", "POST", "/v2/models/shapes/infer", b"[1]")
    refused(400, "Inference-Header-Content-Length", "POST", "/v2/models/shapes/infer", b"{}",
            {"Inference-Header-Content-Length": "3"})
    wrong("has no inputs", {})
    wrong("has no inputs", {"inputs": []})
    wrong("inputs and outputs are", {"inputs": 1})
    wrong("inputs and outputs are", {"inputs": [1]})
    wrong("takes one input", {"inputs": [plain, plain]})
    wrong('has no input "x"', {"inputs": [{**plain, "name": "x"}]})
    wrong('has no input ""', {"inputs": [{"shape": [1]}]})
    wrong("of FP32, not of .INT8", {"inputs": [{**plain, "datatype": "INT8"}]})
    wrong("has the shape", {"inputs": [{**plain, "shape": [1, 3, side, side + 1]}]})
    wrong("has the shape", {"inputs": [{**plain, "shape": [1, side, side, 3]}]})
    wrong("too many dimensions", {"inputs": [{**plain, "shape": [1, 1, 1, 1, 1]}]})
    wrong("no such number", {"inputs": [{**plain, "shape": [-1, 3, side, side]}]})
    wrong("no such number", {"inputs": [{**plain, "shape": [1.5]}]})
    wrong("has 0 images", {"inputs": [{**plain, "shape": [0, 3, side, side]}]})
    wrong("has 2000000000 images", {"inputs": [{**plain, "shape": [2000000000, 3, side, side]}]})
    wrong("not as many numbers", {"inputs": [{**plain, "data": data[1:]}]})
    wrong("not as many numbers", {"inputs": [{**plain, "shape": [2, 3, side, side]}]})
    wrong("numbers or texts", {"inputs": [{**plain, "data": [None]}]})
    wrong("NaN or infinite", {"inputs": [{**plain, "data": [1e300] + data[1:]}]})
    wrong('has no output "x"', {"inputs": [plain], "outputs": [{"name": "x"}]})
    wrong("asked for twice", {"inputs": [plain], "outputs": [{"name": "logits"}] * 2})
    wrong("no such number", {"inputs": [plain], "outputs": [{"name": "logits", "parameters": {"classification": 0}}]})
    binary = struct.pack(f"<{len(data)}f", *data)
    given = {**plain, "parameters": {"binary_data_size": len(binary)}}
    del given["data"]
    wrong("not as many bytes after", {"inputs": [given]})
    wrong("no input has told of", {"inputs": [given]}, binary=binary + b"x")
    wrong("not as many as its shape", {"inputs": [{**given, "shape": [2, 3, side, side]}]}, binary=binary)
    texts = {"name": "images", "datatype": "BYTES", "shape": [1], "data": [text_of(files[0])]}
    wrong("base64", {"inputs": [{**texts, "data": ["*"]}]})
    wrong("base64", {"inputs": [{**texts, "data": ["abc=="]}]})
    wrong("not as many texts", {"inputs": [{**texts, "shape": [2]}]})
    wrong("of BYTES, not of", {"inputs": [{**texts, "datatype": "FP32"}]})
    wrong("is no image", {"inputs": [{**texts, "data": ["abcd"]}]})
    wrong("end within an image", {"inputs": [{"name": "images", "datatype": "BYTES", "shape": [1],
                                              "parameters": {"binary_data_size": 6}}]}, binary=b"\xff\x00\x00\x00ab")
    wrong("after its last image", {"inputs": [{"name": "images", "datatype": "BYTES", "shape": [1],
                                               "parameters": {"binary_data_size": 6}}]}, binary=b"\x01\x00\x00\x00ab")
    wrong("no input has so many numbers", {"inputs": [{**plain, "data": [0] * (1024 * 3 * side * side + 1)}]})
    wrong('has no input "input"', {"inputs": [plain]}, "checkpoint")
    wrong("its network detects", {"inputs": [texts], "outputs": [{"name": "scores", "parameters": {"classification": 1}}]},
          "checkpoint")
    wrong("between 0 and 1", {"inputs": [texts], "parameters": {"threshold": 2}}, "checkpoint")
    # Two opinions about where a request ends: nothing of what follows it is taken for another one.
    second = b"GET /v2/models HTTP/1.1\r\nHost: x\r\n\r\n"
    for method in (b"POST /classify", b"GET /v2"):
        for headers, body in ((b"Content-Length: 3\r\nContent-Length: 4", b"abc"),
                              (b"Content-Length: 4\r\nTransfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n"),
                              (b"Transfer-Encoding: chunked\r\nContent-Length: 4", b"3\r\nabc\r\n0\r\n\r\n"),
                              (b"Transfer-Encoding: gzip\r\nContent-Length: 3", b"abc"),
                              (b"Transfer-Encoding: identity", b""),
                              (b"Content-Length: -1", b"")):
            with socket.create_connection((address.hostname, address.port), timeout=60) as link:
                link.sendall(method + b" HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n\r\n" + body + second)
                answer = b""
                try:
                    while data := link.recv(10000):
                        answer += data
                except ConnectionResetError: # closed before it has read all
                    pass
            assert answer.startswith(b"HTTP/1.1 400 ") and b"models" not in answer, (method, headers, answer)
    # What is no HTTP, and what says nothing any more, hurts nobody.
    with socket.create_connection((address.hostname, address.port)) as link:
        link.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 no HTTP\r\n\r\n")
        link.recv(1000)
    with socket.create_connection((address.hostname, address.port)) as link:
        link.sendall(b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
    assert ask("GET", "/v2/health/ready")[0] == 200


def numbers_of(text, name):
    return {labels: float(value) for labels, value in re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.M)}


def test_together():
    before = ask("GET", "/metrics")[2].decode()
    failures = []
    count, rounds = 12, 4

    def work(number):
        try:
            link = http.client.HTTPConnection(address.hostname, address.port, timeout=120)
            for turn in range(rounds):
                i = (number + turn) % len(files)
                if number % 4 == 3:
                    k = (number + turn) % len(pictures)
                    answers = ask_json("POST", "/detect?threshold=0", read(pictures[k]), connection=link)[1]
                    same_objects(answers[0], detected[k])
                else:
                    answers = ask_json("POST", "/classify?topk=10", read(files[i]), connection=link)[1]
                    same_class(answers[0], classified[i], 10)
        except BaseException as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    text = ask("GET", "/metrics")[2].decode()
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [-+0-9.e]+', line), line
    grown = {name: numbers_of(text, name) for name in ("convoy_images_total", "convoy_requests_total", "convoy_waiting_images")}
    old = numbers_of(before, "convoy_images_total")
    assert grown["convoy_images_total"]['model="shapes"'] - old['model="shapes"'] == count * 3 // 4 * rounds
    assert grown["convoy_images_total"]['model="checkpoint"'] - old['model="checkpoint"'] == count // 4 * rounds
    assert not any(grown["convoy_waiting_images"].values())
    assert grown["convoy_requests_total"]['endpoint="infer",code="400"'] > 20
    batches = numbers_of(text, "convoy_batch_images_count")['model="shapes"']
    assert batches < numbers_of(text, "convoy_batch_images_sum")['model="shapes"'], "no images were computed together"
    assert numbers_of(text, "convoy_bad_images_total")['model="shapes"'] >= 3


def test_crowd():
    # Two may wait, for a third of a second: of many at once some are told to come again.
    results = []

    def work(i):
        status, headers, body = ask("POST", "/classify?topk=10", read(files[i % len(files)]))
        if status == 200:
            same_class(json.loads(body)[0], classified[i % len(files)], 10)
        else:
            assert status == 503 and headers["Retry-After"] and "try again" in json.loads(body)["error"], (status, body)
        results.append(status)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 24 and set(results) == {200, 503}, results
    # More images in a request than are computed together, and than may wait where others do.
    parts = [("images", name, read(name)) for name in files[:5]]
    status, answers = ask_json("POST", "/classify?topk=10", *form(parts))
    assert status == 200, answers
    for answer, expected in zip(answers, classified):
        same_class(answer, expected, 10)
    # Larger bodies than are allowed, with and without their length.
    refused(413, "at most 1048576 bytes", "POST", "/classify", b"x" * (1 << 20 | 1))
    link = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    try:
        link.request("POST", "/classify", iter([b"x" * 65536] * 20), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
        assert link.getresponse().status == 413
    finally:
        link.close()


    # Clients that say how much they will send, and do not, keep nobody out.
    head = b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n"
    links = [socket.create_connection((address.hostname, address.port), timeout=60) for _ in range(20)]
    for link in links:
        link.sendall(head)
    assert ask("POST", "/classify", read(files[0]))[0] == 200
    for link in links:
        link.close()
    # Those that send it and never end do, as long as they are there: sixteen of them, once all of it has been read.
    for attempt in range(1, 20):
        links = [socket.create_connection((address.hostname, address.port), timeout=60) for _ in range(16)]
        for link in links:
            link.sendall(head + bytes((1 << 20) - 1))
        time.sleep(0.2 * attempt)
        status, answer = ask_json("POST", "/classify", bytes(1 << 20))
        for link in links:
            link.close()
        if status == 503:
            break
    assert status == 503 and "too many requests at once" in answer["error"], (status, answer)
    until = time.monotonic() + 60
    while ask("POST", "/classify", bytes(1 << 20))[0] == 503:
        assert time.monotonic() < until


def test_ending():
    process = int(sys.argv[5])
    idle = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    assert ask("GET", "/v2/health/ready", connection=idle)[0] == 200
    results = []
    sent = threading.Barrier(3)

    def work(i):
        link = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        link.request("POST", "/classify?topk=10", read(files[i]))
        sent.wait()
        answer = link.getresponse()
        results.append(answer.status)
        same_class(json.loads(answer.read())[0], classified[i], 10)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    sent.wait()
    time.sleep(0.05) # they wait for others, a third of a second
    os.kill(process, signal.SIGINT)
    for thread in threads:
        thread.join()
    assert results == [200, 200], results


globals()["test_" + part]()
