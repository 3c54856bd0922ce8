"""A web server on the loopback for tests/cli/pull.sh, with the habits of good and bad ones.

support_pull_server.py FOLDER LOG: prints its port. The first part of a path is the habit, the rest a file of FOLDER:
  plain      no Range, no ETag                      range      Range and If-Range, an ETag
  changing   as range, another ETag each time       cut        as range; sends half of what is left, 3 MiB at least
  cutplain   as plain; sends half, then closes      tofile     redirects to file://
  cutonce    as range; the first answer is cut      linked     as range, states the file's SHA-256 (X-Linked-ETag)
  wronglink  as linked, but another SHA-256         moved      redirects to /range/
  round      redirects to itself                    insecure   redirects to http:// from wherever it is
  wrongpart  answers a Range with another part      large      states a length of 10 GiB
  slow       a MiB every 0.05 s                      busy       503 twice, then as range
  empty      no bytes                               page       200 with a page of text
LOG gets a line for each request: path, Range, If-Range, status."""
import hashlib
import http.server
import os
import sys
import threading
import time

folder, log_path = sys.argv[1], sys.argv[2]
seen = {}
lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def note(self, status):
        with lock, open(log_path, "a") as log:
            print(self.path, self.headers.get("Range", "-"), self.headers.get("If-Range", "-"), status, file=log)

    def begin(self, status, headers):
        self.note(status)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def refuse(self, status):
        text = b"a page that says so"
        self.begin(status, {"Content-Length": len(text)})
        self.wfile.write(text)

    def do_GET(self):
        habit, _, name = self.path.lstrip("/").partition("/")
        with lock:
            seen[self.path] = count = seen.get(self.path, 0) + 1
        if habit == "moved":
            return self.begin(302, {"Location": "/range/" + name, "Content-Length": 0})
        if habit == "round":
            return self.begin(302, {"Location": self.path, "Content-Length": 0})
        if habit == "insecure":
            return self.begin(302, {"Location": "ftp://127.0.0.1/" + name, "Content-Length": 0})
        if habit == "tofile":
            return self.begin(302, {"Location": "file://" + os.path.join(folder, name), "Content-Length": 0})
        if habit == "busy" and count <= 2:
            return self.refuse(503)
        if habit == "page":
            return self.refuse(200)
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            return self.refuse(404)
        with open(path, "rb") as file:
            self.serve(habit, count, b"" if habit == "empty" else file.read())

    def serve(self, habit, count, data):
        headers, status, start = {}, 200, 0
        if habit not in ("plain", "cutplain"):
            headers["ETag"] = '"%s"' % (count if habit == "changing" else len(data))
        if habit == "linked":
            headers["X-Linked-ETag"] = '"%s"' % hashlib.sha256(data).hexdigest()
        if habit == "wronglink":
            headers["X-Linked-ETag"] = '"%s"' % ("0" * 64)
        wanted = self.headers.get("Range")
        if wanted and "ETag" in headers and self.headers.get("If-Range") == headers["ETag"]:
            start = int(wanted[len("bytes="):].split("-")[0])
            if start >= len(data):
                return self.begin(416, {"Content-Range": "bytes */%d" % len(data), "Content-Length": 0})
            if habit == "wrongpart":
                start = 0
            status = 206
            headers["Content-Range"] = "bytes %d-%d/%d" % (start, len(data) - 1, len(data))
        rest = data[start:]
        headers["Content-Length"] = 10 << 30 if habit == "large" else len(rest)
        if habit in ("cut", "cutplain") or (habit == "cutonce" and count == 1):
            rest = rest[: max(len(rest) // 2, 3 << 20 if habit == "cut" else 0)]
            self.close_connection = True
        self.begin(status, headers)
        for at in range(0, len(rest), 1 << 20):
            try:
                self.wfile.write(rest[at : at + (1 << 20)])
            except OSError:
                self.close_connection = True
                return
            if habit == "slow":
                time.sleep(0.05)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
