# SPDX-License-Identifier: Apache-2.0
"""A strataD of the build tree on sockets of its own, for tests in Python (standard library only)."""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SRC = os.environ.get("SRCDIR", ".")
BUILD = os.environ.get("BUILDDIR", ".")
SHORT = "STRATA_TEST_SHORT" in os.environ
NEEDLE = os.path.join(SRC, "tests/data/needle-f16.gguf")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=300):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Daemon:
    """Context manager: started and ready inside, and must end with status 0."""

    def __init__(self, model=NEEDLE, **options):
        self.dir = tempfile.mkdtemp(prefix="strata-test-")
        self.api = os.path.join(self.dir, "api.sock")
        self.control = os.path.join(self.dir, "control.sock")
        self.log = os.path.join(self.dir, "log")
        self.args = [os.path.join(BUILD, "strataD"), "--model", model, "--api-socket", self.api, "--control-socket", self.control]
        for key, value in options.items():
            self.args += ["--" + key.replace("_", "-"), str(value)]

    def __enter__(self):
        env = {k: v for k, v in os.environ.items() if k not in ("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID")}
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(self.args, stdout=log, stderr=log, env=env)
        for _ in range(6000):
            if self.process.poll() is not None:
                break
            try:
                if self.get("/health")[0] == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.01)
        self.tell_log()
        self.process.kill()
        raise SystemExit("the daemon did not become ready")

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait()
        if status != 0 or kind is not None:
            self.tell_log()
        shutil.rmtree(self.dir)
        if status != 0 and kind is None:
            raise SystemExit(f"the daemon ended with status {status}")

    def tell_log(self):
        with open(self.log) as f:
            sys.stderr.write("".join(f.readlines()[-60:]))

    def get(self, path):
        c = UnixConnection(self.api)
        c.request("GET", path)
        r = c.getresponse()
        body = r.read()
        c.close()
        return r.status, json.loads(body) if body[:1] in (b"{", b"[") else body

    def ask(self, path, body):
        """A connection whose request is sent."""
        c = UnixConnection(self.api)
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return c

    def post(self, path, body):
        """The answer's JSON; anything but 200 ends the program."""
        c = self.ask(path, body)
        r = c.getresponse()
        answer = r.read()
        c.close()
        if r.status != 200:
            raise SystemExit(f"HTTP {r.status}: {answer[:400]!r}")
        return json.loads(answer)

    def stream(self, path, body):
        """The JSON of each event; the client leaves when the caller does."""
        c = self.ask(path, dict(body, stream=True))
        try:
            r = c.getresponse()
            if r.status != 200:
                raise SystemExit(f"HTTP {r.status}: {r.read()[:400]!r}")
            for line in r:
                if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                    j = json.loads(line[5:])
                    if "error" in j:
                        raise SystemExit(f"error in the stream: {j['error']}")
                    yield j
        finally:
            c.close()

    def stream_chat(self, messages, **fields):
        """The texts of a streamed chat's message, its deltas joined."""
        message = {"content": "", "reasoning_content": ""}
        for event in self.stream("/v1/chat/completions", dict(fields, messages=messages)):
            for choice in event["choices"]:
                for key in message:
                    message[key] += choice["delta"].get(key) or ""
        return message

    def complete(self, ids, n, leave_after=None, **more):
        """Streamed and greedy.  The answer's ids and the usage; (ids, None) when the client left after so many tokens."""
        body = {"prompt": ids, "max_tokens": n, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
        body.update(more)
        if leave_after == 0:
            self.ask("/v1/completions", body).close()
            return [], None
        out, usage = [], None
        events = self.stream("/v1/completions", body)
        for j in events:
            usage = j.get("usage") or usage
            for choice in j.get("choices", []):
                out += choice.get("token_ids") or []
            if leave_after is not None and len(out) >= leave_after:
                events.close()
                return out, None
        if usage is None:
            raise SystemExit("a stream without its end")
        return out, usage

    def ctl(self, *words):
        out = subprocess.run([os.path.join(BUILD, "stratactl"), "--json", "--socket", self.control, *words], check=True, stdout=subprocess.PIPE)
        return json.loads(out.stdout)

    def rss_kib(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


def golden():
    with open(os.path.join(SRC, "tests/data/needle.jsonl")) as f:
        return [json.loads(line) for line in f]


def smollm2():
    """Where tests/data/fetch-smollm2 puts it; it may not be there."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    cache = cache if os.path.isabs(cache) else os.path.expanduser("~/.cache")
    return os.environ.get("STRATA_SMOLLM2") or os.path.join(cache, "strata/SmolLM2-135M-Instruct.Q4_1.gguf")
