#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The other side of `make bench-peer`: llama.cpp, by way of llama-cpp-python, on the works of bench/workload.c.

    peer.py [--threads N] MODEL.gguf

A work's name on a line of standard input runs one round and is answered by a line with its seconds and tokens, as `bench_engine
--turns` does. Measured is llama_decode (and llama_synchronize) alone, summed over the steps: neither Python's preparation of a batch nor
the choice of the next token, which is greedy. Ours is measured with its sampling.
"""
import argparse
import ctypes
import sys
import time

import llama_cpp as ll
import numpy as np

# name: (tokens of context, sequences, steps); bench/workload.c has the same
WORKS = {
    "prefill-512": (512, 1, 0),
    "decode-64": (1, 1, 64),
    "decode-64-at-512": (512, 1, 64),
    "decode-64-batch-4": (1, 4, 64),
    "decode-64-batch-8": (1, 8, 64),
}
MAX_SEQUENCES = 8
CONTEXT = 1024


def make_ids(seed, n_vocab, n):
    ids, x = [], seed
    for _ in range(n):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        ids.append((x >> 8) % n_vocab)
    return ids


class Peer:
    def __init__(self, path, n_threads):
        self.quiet = ll.llama_log_callback(lambda level, text, data: None)
        ll.llama_log_set(self.quiet, ctypes.c_void_p(0))
        ll.llama_backend_init()
        params = ll.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = ll.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            sys.exit(f"peer.py: llama.cpp does not load {path}")
        self.n_vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model))
        self.batch = ll.llama_batch_init(512, 0, 1)
        # A context of its own for batches, so that one sequence does not pay for the room of eight.
        self.contexts = {n: self.context(n, n_threads) for n in (1, MAX_SEQUENCES)}

    def context(self, n_sequences, n_threads):
        params = ll.llama_context_default_params()
        params.n_ctx = CONTEXT if n_sequences == 1 else 256 * n_sequences
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = n_sequences
        params.n_threads = params.n_threads_batch = n_threads
        ctx = ll.llama_init_from_model(self.model, params)
        if not ctx:
            sys.exit("peer.py: llama.cpp makes no context")
        return ctx

    def step(self, ctx, rows):
        """rows: (token, position, sequence, wants logits); the seconds of it."""
        b = self.batch
        b.n_tokens = len(rows)
        for i, (token, pos, seq, wants) in enumerate(rows):
            b.token[i] = token
            b.pos[i] = pos
            b.n_seq_id[i] = 1
            b.seq_id[i][0] = seq
            b.logits[i] = wants
        start = time.perf_counter()
        r = ll.llama_decode(ctx, b)
        ll.llama_synchronize(ctx)
        seconds = time.perf_counter() - start
        if r != 0:
            sys.exit(f"peer.py: llama_decode gives {r}")
        return seconds

    def greedy(self, ctx, row):
        logits = np.ctypeslib.as_array(ll.llama_get_logits_ith(ctx, row), shape=(self.n_vocab,))
        return int(np.argmax(logits))

    def round(self, name):
        n_context, n_sequences, n_steps = WORKS[name]
        ctx = self.contexts[1 if n_sequences == 1 else MAX_SEQUENCES]
        ll.llama_memory_clear(ll.llama_get_memory(ctx), True)
        last, read, generated = [], 0.0, 0.0
        for s in range(n_sequences):
            ids = make_ids(s + 1, self.n_vocab, n_context)
            read += self.step(ctx, [(t, i, s, i == n_context - 1) for i, t in enumerate(ids)])
            last.append(self.greedy(ctx, -1))
        for k in range(n_steps):
            generated += self.step(ctx, [(last[s], n_context + k, s, True) for s in range(n_sequences)])
            last = [self.greedy(ctx, s) for s in range(n_sequences)]
        return (generated, n_steps * n_sequences) if n_steps else (read, n_context)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("--threads", type=int, default=2)
    o = ap.parse_args()
    peer = Peer(o.model, o.threads)
    print("ready llama-cpp-python", ll.__version__, flush=True)
    for line in sys.stdin:
        seconds, tokens = peer.round(line.strip())
        print(f"{seconds:.9f} {tokens}", flush=True)


if __name__ == "__main__":
    main()
