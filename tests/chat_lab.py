# SPDX-License-Identifier: Apache-2.0
"""What chat_pty.py drives `stratactl chat` with: a pseudo terminal, and a daemon that answers what it is told to."""
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import threading
import time

from daemon_lab import BUILD

CTL = os.path.join(BUILD, "stratactl")
PATIENCE = 120  # seconds until a test that waits for output has failed


class Fake:
    """A daemon in this process.  Each request is kept in `asked` and answered by the next of `script`, a function of the
    connection; connections without a request are not counted."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="strata-test-")
        self.env = {"XDG_RUNTIME_DIR": self.dir, "XDG_STATE_HOME": os.path.join(self.dir, "state"), "HOME": self.dir}
        self.name = "chat-test-" + os.path.basename(self.dir)
        self.argv = [CTL, "-i", self.name, "chat"]
        self.path = os.path.join(self.dir, "strata", self.name, "api.sock")
        os.makedirs(os.path.dirname(self.path))
        self.asked, self.script, self.left = [], [], threading.Event()
        self.open()

    def open(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(8)
        threading.Thread(target=self.serve, args=(self.listener,), daemon=True).start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        os.unlink(self.path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        shutil.rmtree(self.dir)

    def serve(self, listener):
        while True:
            try:
                c = listener.accept()[0]
            except OSError:
                return
            got = b""
            while b"\r\n\r\n" not in got and (more := c.recv(65536)):
                got += more
            if b"\r\n\r\n" in got:
                head, body = got.split(b"\r\n\r\n", 1)
                n = int(re.search(rb"Content-Length: (\d+)", head).group(1))
                while len(body) < n:
                    body += c.recv(65536)
                self.asked.append(json.loads(body))
                self.script.pop(0)(c)
            c.close()

    def messages(self, i=-1):
        return [(m["role"], m["content"]) for m in self.asked[i]["messages"]]

    # Answers for the script.

    @staticmethod
    def head(c):
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")

    @staticmethod
    def delta(c, finish=None, **delta):
        c.sendall(b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode() + b"\n\n")

    def answer(self, *texts, reasoning=None, finish="stop"):
        def run(c):
            self.head(c)
            if reasoning:
                self.delta(c, reasoning_content=reasoning)
            for text in texts:
                self.delta(c, content=text)
            self.delta(c, finish)
            usage = {"prompt_tokens": 30, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 18}}
            c.sendall(b"data: " + json.dumps({"choices": [], "usage": usage, "timings": {"predicted_per_second": 41.25}}).encode() + b"\n\ndata: [DONE]\n\n")
        return run

    def begin(self, *texts, then=None):
        """Sends the beginning of an answer, and waits until the client leaves or for `then`."""
        def run(c):
            self.head(c)
            for text in texts:
                self.delta(c, content=text)
            if then:
                then(c)
            else:
                try:
                    c.recv(1)
                except ConnectionResetError:  # it left what it had not read
                    pass
                self.left.set()
        return run

    @staticmethod
    def refuse(message):
        def run(c):
            body = json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode()
            c.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        return run


class Terminal:
    """A program at a pseudo terminal.  `text` is everything that it has printed, `at` how far expect() has come."""

    def __init__(self, argv, env, rows=24, cols=100):
        base = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "NO_COLOR"))}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
            # What the tests were started from, nohup or a shell's background, may ignore some.
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.execve(argv[0], argv, {**base, "TERM": "xterm", "LC_ALL": "C.UTF-8", **env})
        self.usual = termios.tcgetattr(self.fd)
        self.text, self.at = b"", 0

    def resize(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def more(self):
        """What it prints next; nothing: the other side is closed."""
        if not select.select([self.fd], [], [], PATIENCE)[0]:
            raise SystemExit(f"it prints no more after {self.text[self.at:]!r}")
        try:
            got = os.read(self.fd, 65536)
        except OSError:
            got = b""
        self.text += got
        return got

    def expect(self, pattern):
        """Waits for a regular expression; what was printed up to its end."""
        pattern = pattern.encode() if isinstance(pattern, str) else pattern
        while not (m := re.search(pattern, self.text[self.at:], re.DOTALL)):
            if not self.more():
                raise SystemExit(f"nothing like {pattern!r} in {self.text[self.at:]!r}")
        got = self.text[self.at:self.at + m.end()]
        self.at += m.end()
        return got.decode(errors="replace")

    def send(self, text):
        data = text.encode() if isinstance(text, str) else text
        while data:
            data = data[os.write(self.fd, data[:1024]):]

    def prompt(self):
        """Up to the next prompt, which is empty and where keys are taken."""
        return self.expect(r"\r\n> ")

    def say(self, text):
        """A line, and what comes before the next prompt."""
        self.send(text + "\r")
        return self.prompt()

    def end(self):
        """The status, when the other side has closed."""
        while self.more():
            pass
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.fd)
        return status

    def quit(self):
        self.send(b"\x04")
        return self.end()


def piped(argv, env, text="", **more):
    return subprocess.run(argv, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **env}, timeout=PATIENCE, **more)


def wait_until(what):
    """Polls what no output tells."""
    for _ in range(PATIENCE * 100):
        if what():
            return
        time.sleep(0.01)
    raise SystemExit("waited in vain")
