#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a GGUF file again with its F16 matrices as Q8_0.

    to_q8_0.py IN.gguf OUT.gguf

Keys are copied as they are, but for general.file_type; tensors that are not F16, or whose rows do not fill blocks of 32, stay what they are.
A block is 32 weights with one half-precision scale, max|w| / 127, as llama.cpp writes it. Needs numpy. For trusted files only: nothing is checked.
"""
import struct
import sys

import numpy as np

F16, Q8_0 = 1, 8
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of GGUF's value types
STRING, ARRAY = 8, 9
BYTES = {0: (1, 4), 1: (1, 2), 8: (32, 34), 30: (1, 2)}  # of tensor types: elements and bytes of a block


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, fmt):
        values = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return values if len(values) > 1 else values[0]

    def string(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n : self.at]

    def skip_value(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            kind, n = self.take("IQ")
            if kind == STRING:
                for _ in range(n):
                    self.string()
            else:
                self.at += n * SIZES[kind]
        else:
            self.at += SIZES[kind]


def quantise(raw):
    w = np.frombuffer(raw, np.float16).astype(np.float32).reshape(-1, 32)
    d = np.abs(w).max(axis=1, keepdims=True) / np.float32(127)
    inv = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    x = w * inv
    q = np.trunc(x + np.copysign(np.float32(0.5), x)).astype(np.int8)  # halves away from zero, as roundf
    return np.concatenate([d.astype(np.float16).view(np.int8), q], axis=1).tobytes()


def main(source, to):
    with open(source, "rb") as f:
        data = f.read()
    r = Reader(data)
    magic, version, n_tensors, n_keys = r.take("4sIQQ")
    if magic != b"GGUF":
        sys.exit(f"to_q8_0.py: {source} is not GGUF")
    keys, alignment = bytearray(), 32
    for _ in range(n_keys):
        begin = r.at
        name, kind = r.string(), r.take("I")
        value = r.at
        r.skip_value(kind)
        keys += data[begin:value]
        keys += struct.pack("<I", 7) if name == b"general.file_type" and kind == 4 else data[value : r.at]
        if name == b"general.alignment":
            alignment = struct.unpack_from("<I", data, value)[0]
    tensors = []
    for _ in range(n_tensors):
        name, n_dims = r.string(), r.take("I")
        dims = struct.unpack_from(f"<{n_dims}Q", data, r.at)
        r.at += 8 * n_dims
        tensors.append((name, dims, *r.take("IQ")))
    begin = -(-r.at // alignment) * alignment

    infos, parts, at = bytearray(), [], 0
    for name, dims, kind, offset in tensors:
        elements, size = BYTES[kind]
        n = int(np.prod(dims, dtype=np.uint64)) // elements * size
        raw = data[begin + offset : begin + offset + n]
        if kind == F16 and len(dims) > 1 and dims[0] % 32 == 0:
            kind, raw = Q8_0, quantise(raw)
        infos += struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at)
        parts.append(raw + bytes(-len(raw) % alignment))
        at += len(parts[-1])
    head = struct.pack("<4sIQQ", magic, version, n_tensors, n_keys) + keys + infos
    with open(to, "wb") as f:
        f.write(head + bytes(-len(head) % alignment))
        f.writelines(parts)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
