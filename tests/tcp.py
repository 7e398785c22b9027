# SPDX-License-Identifier: Apache-2.0
"""strataD over TCP: what starts and what does not, who may ask, who shares with whom, what a reload does, and that clients
that send a byte now and then, more of them than there are places, keep nobody else from an answer."""
import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

import daemon_lab

PLACES = 1024  # MAX_CONNECTIONS of daemon/lifecycle.c
ALICE, BOB, NEW = "a-key-of-alice-0123456789", "a-key-of-bob-0123456789", "another-key-of-alice-0123456789"
failures = 0


def check(what, good, more=""):
    global failures
    if not good:
        failures += 1
    print(f"{'ok' if good else 'FAILED'}  {what} {'' if good else more}")


def write_keys(path, text):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, text.encode())
    os.close(fd)


def logged(d, text, n=1):
    """Waits until the log has it n times."""
    for _ in range(6000):
        with open(d.log) as f:
            log = f.read()
        if log.count(text) >= n:
            return log
        time.sleep(0.01)
    raise SystemExit(f"not logged: {text}")


def ask(port, method, path, key=None, body=None, **headers):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    headers = {k.replace("_", "-"): v for k, v in headers.items()}
    if key:
        headers["Authorization"] = "Bearer " + key
    c.request(method, path, json.dumps(body) if body is not None else None, headers)
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, json.loads(text)


def completes(port, key, ids, n=8):
    status, j = ask(port, "POST", "/v1/completions", key, {"prompt": ids, "max_tokens": n, "temperature": 0, "return_token_ids": True})
    if status != 200:
        raise SystemExit(f"HTTP {status}: {j}")
    return j["choices"][0]["token_ids"], j["usage"]["prompt_tokens_details"]["cached_tokens"]


def refused_at_start(words, *args):
    p = subprocess.run([os.path.join(daemon_lab.BUILD, "strataD"), *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    check(f"{' '.join(args[2:])}: exit 78 and words", p.returncode == 78 and words in p.stdout.decode(), f"{p.returncode} {p.stdout!r}")


class Slow:
    """A client that has begun a request and sends a byte of it whenever it is told to."""

    def __init__(self, port, begin):
        self.s = socket.create_connection(("127.0.0.1", port))
        self.s.send(begin)

    def dribble(self):
        try:
            self.s.send(b"x")
        except OSError:
            pass  # its place was taken


def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    n_headers = min(PLACES + 200, hard // 2 - 400)

    keys = os.path.join(tempfile.mkdtemp(prefix="strata-keys-"), "keys")
    refused_at_start('set "api_key_file" too', "--model", daemon_lab.NEEDLE, "--listen", "127.0.0.1:0")
    refused_at_start('set "api_key_file" too', "--check", daemon_lab.NEEDLE, "--listen", "127.0.0.1:0")
    refused_at_start("No such file", "--model", daemon_lab.NEEDLE, "--listen", "127.0.0.1:0", "--api-key-file", keys)
    write_keys(keys, "not a list of keys\n")
    refused_at_start("line 1: expected KEY or NAME KEY", "--model", daemon_lab.NEEDLE, "--listen", "127.0.0.1:0", "--api-key-file", keys)

    write_keys(keys, f"# two people\nalice {ALICE}\nbob {BOB}\n")
    with daemon_lab.Daemon(threads=2, listen="127.0.0.1:0", api_key_file=keys) as d:
        port = int(re.search(r"listening: api=127\.0\.0\.1:(\d+)", logged(d, "api=127.0.0.1:")).group(1))
        ids = list(range(100, 400))
        want, usage = d.complete(ids, 8)

        check("health needs no key", ask(port, "GET", "/health")[0] == 200)
        status, j = ask(port, "GET", "/v1/models")
        check("all else does", status == 401 and j["error"]["code"] == "invalid_api_key", j)
        check("a wrong key does not do", ask(port, "GET", "/v1/models", ALICE + "x")[0] == 401)
        check("a key does", ask(port, "GET", "/v1/models", ALICE)[0] == 200)
        check("nor with a name that points here", ask(port, "GET", "/v1/models", ALICE, Host="evil.example")[0] == 403)
        check("nor for a page from elsewhere", ask(port, "GET", "/v1/models", ALICE, Origin="http://evil.example")[0] == 403)

        got, cached = completes(port, ALICE, ids)
        check("the answer is that of the Unix socket, whose user's pages are not hers", got == want and cached == 0, (got, want, cached))
        got, cached = completes(port, ALICE, ids)
        check("her own are", got == want and cached > 0, (got, cached))
        got, cached = completes(port, BOB, ids)
        check("and hers not his", got == want and cached == 0, (got, cached))
        mine = ask(port, "GET", "/v1/requests", ALICE)[1]["data"]
        check("who asks sees their own requests", [x.get("key") for x in mine] == ["alice", "alice"], mine)
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        c.request("POST", "/v1/completions", json.dumps({"prompt": ids, "max_tokens": 1500, "ignore_eos": True, "stream": True}), {"Authorization": f"Bearer {ALICE}"})
        c.getresponse().readline()
        # Bob's slot may still be keeping what his request left.
        used = [(x["key"], x.get("uid")) for x in d.ctl("slots", "list")["slots"] if "request" in x]
        c.close()
        check("a slot shows whose request runs in it", ("alice", None) in used, used)
        for _ in range(1000):
            keys_cached = {x.get("key") for x in d.ctl("cache", "list")["entries"]}
            if keys_cached >= {"alice", "bob"}:
                break
        check("an entry of the cache shows whose it is", keys_cached >= {"alice", "bob"}, keys_cached)

        # More headers than places, and bodies of somebody who has a key; then a byte of each, and who else comes is served.
        rss = d.rss_kib()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        slow = [Slow(port, head + f"Authorization: Bearer {BOB}\r\nContent-Length: 60000000\r\n\r\n{{".encode()) for _ in range(300)]
        for i in range(n_headers):
            slow.append(Slow(port, head + b"X: "))
            if i % 200 == 0:
                for s in slow:
                    s.dribble()
                got, _ = completes(port, ALICE, ids)
                check(f"{len(slow)} slow clients: another one is answered over TCP", got == want)
        got, _ = d.complete(ids, 8)
        check("and on the Unix socket", got == want)
        check("a new one that asks at once too", ask(port, "GET", "/v1/models", ALICE)[0] == 200)
        grown = d.rss_kib() - rss
        check("memory grew by less than 64 MiB", daemon_lab.SHORT or grown < 65536, f"{grown} KiB")
        for s in slow:
            s.s.close()

        # Keys are read again.
        write_keys(keys, "oops, not a key file\n")
        d.process.send_signal(signal.SIGHUP)
        logged(d, "the new keys are refused, the old ones stay")
        check("a broken file changes nothing", ask(port, "GET", "/v1/models", ALICE)[0] == 200)
        write_keys(keys, f"alice {NEW}\n")
        d.process.send_signal(signal.SIGHUP)
        logged(d, "API keys read: keys=1")
        check("a key that is gone is refused", ask(port, "GET", "/v1/models", BOB)[0] == 401)
        got, cached = completes(port, NEW, ids)
        check("an owner keeps what was cached when the key is exchanged", got == want and cached > 0, (got, cached))
        with open(d.log) as f:
            log = f.read()
        check("no key is in the log", not any(k in log for k in (ALICE, BOB, NEW)))
    os.remove(keys)
    os.rmdir(os.path.dirname(keys))
    sys.exit(failures != 0)


main()
