#!/usr/bin/env python3
"""How many images a server answers: bench/serve.py ADDRESS IMAGE... [--path /classify] [--concurrency 1,4,16] [--seconds 10]

So many clients at once send an image each, wait for the answer and send the next one, over connections that stay. For each
number of clients: images a second, and latencies in ms (mean, and 50, 90, 99 %). The clients take some processor time of
their own: on the server's machine they are a part of what is measured."""
import argparse
import http.client
import statistics
import threading
import time
import urllib.parse


def ask(address, path, bodies, first, step, end, latencies, failures):
    link = http.client.HTTPConnection(address.hostname, address.port, timeout=120)
    turn = first
    while time.monotonic() < end:
        begin = time.monotonic()
        link.request("POST", path, bodies[turn % len(bodies)])
        answer = link.getresponse()
        text = answer.read()
        if answer.status != 200:
            failures.append((answer.status, text[:200]))
        latencies.append((begin, time.monotonic()))
        turn += step
    link.close()


def measure(address, path, bodies, clients, seconds):
    latencies, failures = [], []
    begin = time.monotonic()
    threads = [threading.Thread(target=ask, args=(address, path, bodies, i, clients, begin + seconds, latencies, failures))
               for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = max(end for _, end in latencies) - begin
    times = sorted(1000 * (end - start) for start, end in latencies)
    share = lambda part: times[min(len(times) - 1, int(part * len(times)))]
    print(f"{clients:4d} clients  {len(times) / took:8.1f} images/s  mean {statistics.mean(times):8.2f} ms  50 % {share(0.5):8.2f}"
          f"  90 % {share(0.9):8.2f}  99 % {share(0.99):8.2f}" + (f"  {len(failures)} failed: {failures[0]}" if failures else ""),
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", help="http://127.0.0.1:8080")
    parser.add_argument("images", nargs="+", metavar="IMAGE")
    parser.add_argument("--path", default="/classify")
    parser.add_argument("--concurrency", default="1,4,16")
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    bodies = [open(path, "rb").read() for path in arguments.images]
    for clients in map(int, arguments.concurrency.split(",")):
        measure(urllib.parse.urlsplit(arguments.address), arguments.path, bodies, clients, arguments.seconds)


if __name__ == "__main__":
    main()
