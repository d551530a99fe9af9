"""The same filter over the same 50,000 rows: gpuhunt's `Catalog.query` and ours.

    against_gpuhunt.py OURS

Runs with gpuhunt installed. OURS is the executable of the bench `million`. Makes nine catalogue files, one for each provider
that gpuhunt reads as a file, serves them to gpuhunt from this machine (`GPUHUNT_CATALOG_URL`), hands the same files to ours,
and asks both the same. Every returned row is read. Prints the medians and numbers of rows, and fails where the rows differ.
"""

import csv
import http.server
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from decimal import Decimal
from pathlib import Path

ROWS = 50_000
ROUNDS = 25
PROVIDERS = ["aws", "azure", "verda", "gcp", "lambdalabs", "nebius", "oci", "runpod", "cloudrift"]
GPUS = [("H100", 80), ("H200", 141), ("A100", 80), ("L4", 24), ("T4", 16), ("A10", 24), ("L40S", 48), ("B200", 180)]
COLUMNS = "instance_name location price cpu memory gpu_count gpu_name gpu_memory spot disk_size gpu_vendor flags cpu_arch".split()
QUERIES = [("H100", 8, None), ("L4", 1, None), ("H100", 8, "20")]


def files(folder):
    """Nine files with 50,000 rows in all, cheapest first in each, as gpuhunt's are."""
    rows = {provider: [] for provider in PROVIDERS}
    for n in range(ROWS):
        gpu, memory = GPUS[(n // 7) % len(GPUS)]
        count = [1, 2, 4, 8][(n // 3) % 4]
        price = Decimal(1000 + (n * 7919) % 400_000) / 10_000
        spot = n % 5 == 0
        row = [f"type-{n}", f"region-{(n // 11) % 40}", str(price), "32", "128.0", str(count), gpu, f"{memory}.0", str(spot), "", "nvidia", "", "x86"]
        rows[PROVIDERS[n % len(PROVIDERS)]].append(row)
    for provider, lines in rows.items():
        lines.sort(key=lambda row: Decimal(row[2]))
        with open(folder / f"{provider}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(lines)


def handler(folder):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            provider, _, rest = self.path.strip("/").partition("/")
            if rest == "version":
                body = b"1"
            else:
                packed = io.BytesIO()
                with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
                    archive.write(folder / f"{provider}.csv", f"{provider}.csv")
                body = packed.getvalue()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler


def timed(work):
    """Medians in microseconds: of the time that passed, and of the processor's (other programs take their share of the first)."""
    passed, worked = [], []
    for _ in range(ROUNDS):
        begun, before = time.perf_counter(), time.process_time()
        result = work()
        passed.append(time.perf_counter() - begun)
        worked.append(time.process_time() - before)
    return statistics.median(passed) * 1e6, statistics.median(worked) * 1e6, result


def main():
    ours = sys.argv[1]
    print(f"load {open('/proc/loadavg').read().strip()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files(folder)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.environ["GPUHUNT_CATALOG_URL"] = f"http://127.0.0.1:{server.server_port}"
        import gpuhunt

        catalog = gpuhunt.Catalog()
        begun = time.perf_counter()
        catalog.load()
        print(f"gpuhunt loaded in {(time.perf_counter() - begun) * 1e3:.0f} ms")
        total = sum(len(of.items) for of in catalog.catalog.values())
        for gpu, count, most in QUERIES:
            query = dict(gpu_name=gpu, min_gpu_count=count, max_gpu_count=count, spot=False)
            if most is not None:
                query["max_price"] = float(most)

            def read_all():
                return [(item.provider, item.instance_name, item.price) for item in catalog.query(**query)]

            full, full_work, items = timed(read_all)
            top, top_work, _ = timed(lambda: [(i.provider, i.instance_name, i.price) for i in catalog.query(**query)[:5]])
            words = [ours, "gpuhunt-child", str(folder), gpu, str(count), most or "-"]
            answer = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
            prices = sorted(item[2] for item in items)
            same = (
                total == answer["rows"] == ROWS
                and len(items) == answer["listed"]
                and prices[:5] == [float(price) for price in answer["best"]]
                and (prices[0], prices[-1]) == (float(answer["least"]), float(answer["most"]))
            )
            what = f"{count}x{gpu}" + (f" up to {most} USD" if most else "")
            ours_us = {part: float(answer[part]) for part in ["list_us", "list_work_us", "top_us", "top_work_us"]}
            print(f"{what}: gpuhunt {len(items)} rows of {total}, {full:.0f} us (processor {full_work:.0f}), top 5 {top:.0f} us ({top_work:.0f})")
            print(
                f"{what}: ours {answer['listed']} rows of {answer['rows']}, {ours_us['list_us']:.1f} us (processor {ours_us['list_work_us']:.1f}), "
                f"top 5 {ours_us['top_us']:.1f} us ({ours_us['top_work_us']:.1f})"
            )
            for part, theirs, name, least in [("full list", full_work, "list_work_us", 200), ("top 5", top_work, "top_work_us", 1000)]:
                ratio = theirs / ours_us[name]
                mark = "" if ratio >= least else "  MISSED"
                print(f"{what}: {part} {ratio:.0f} times faster by the processor's time (at least {least}){mark}")
            if not same:
                sys.exit(f"{what}: the answers differ: {prices[:5]} and {answer}")


if __name__ == "__main__":
    main()
