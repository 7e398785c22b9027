# SPDX-License-Identifier: Apache-2.0
"""One file of a package on PyPI (or of the index that PIP_INDEX_URL names), its SHA-256 checked.  Standard library only."""
import hashlib
import http.client
import os
import re
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request

NO_NETWORK = 77  # exit status
PIECE = 1 << 20


def read(source):
    """The next piece, or an end of the program: exit status 77 when the network is the reason."""
    try:
        return source.read(PIECE)
    except (http.client.HTTPException, OSError) as e:
        fail(f"the download broke off: {e!r}", NO_NETWORK)


def ask(url):
    try:
        return urllib.request.urlopen(url, timeout=60)
    except (http.client.HTTPException, OSError, ValueError) as e:
        fail(f"{url}: {e}", NO_NETWORK)


def fail(words, status=1):
    print(f"{os.path.basename(sys.argv[0])}: {words}", file=sys.stderr)
    sys.exit(status)


def find(package, name):
    """The address of the package's file."""
    index = urllib.parse.urljoin(os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/", package + "/")
    with ask(index) as page:
        text = read(page).decode(errors="replace")
    href = re.search(r'href="([^"#]*/' + re.escape(name) + r')[#"]', text)
    if not href:
        fail(f"{index} does not have {name}", NO_NETWORK)
    return urllib.parse.urljoin(index, href.group(1))


def fetch(package, name, sha256):
    """An open temporary file with its bytes, or an end of the program."""
    url, digest, out = find(package, name), hashlib.sha256(), tempfile.TemporaryFile()
    with ask(url) as source:
        while data := read(source):
            digest.update(data)
            out.write(data)
        # Not every version of Python raises at an early end.
        if out.tell() < int(source.headers.get("Content-Length", 0)):
            fail(f"the download broke off after {out.tell()} bytes", NO_NETWORK)
    if digest.hexdigest() != sha256:
        fail(f"the SHA-256 of {url} is {digest.hexdigest()}, not {sha256}")
    out.seek(0)
    return out
