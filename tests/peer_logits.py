#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp, by way of llama-cpp-python, says of GGUF files: the figures of tests/data.

    peer_logits.py MODEL.gguf...
        families.jsonl: random prompts, a line for each, with the most likely tokens after some of its tokens
    peer_logits.py --along SYNTH.jsonl SHAPE "ARGS..." MODEL.gguf
        the lines of synth.jsonl of this shape and these arguments, with "f32": what MODEL, written by `synth_gguf.py --expand`, says of
        the tokens of "top5"

K/V in f32, no flash attention; PEER_THREADS (1) threads.
"""
import argparse
import ctypes
import hashlib
import json
import os
import random
import sys

import llama_cpp as ll
import numpy as np

CHUNK = 64  # of the longer prompts several
PROMPTS = (3, 40, 200)
N_BYTES = 256  # ids below are plain tokens


class Peer:
    def __init__(self, path):
        self.quiet = ll.llama_log_callback(lambda level, text, data: None)
        ll.llama_log_set(self.quiet, ctypes.c_void_p(0))
        ll.llama_backend_init()
        params = ll.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = ll.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            sys.exit(f"peer_logits.py: llama.cpp does not load {path}")
        self.n_vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model))
        self.batch = ll.llama_batch_init(CHUNK, 0, 1)

    def log_probabilities(self, ids):
        """[len(ids)][n_vocab], of the token after each."""
        params = ll.llama_context_default_params()
        params.n_ctx = 1024
        params.n_batch = params.n_ubatch = CHUNK
        params.n_threads = params.n_threads_batch = int(os.environ.get("PEER_THREADS", "1"))
        params.type_k = params.type_v = ll.GGML_TYPE_F32
        params.flash_attn_type = ll.LLAMA_FLASH_ATTN_TYPE_DISABLED
        ctx = ll.llama_init_from_model(self.model, params)
        if not ctx:
            sys.exit("peer_logits.py: llama.cpp makes no context")
        rows = []
        for at in range(0, len(ids), CHUNK):
            part = ids[at : at + CHUNK]
            b = self.batch
            b.n_tokens = len(part)
            for i, token in enumerate(part):
                b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0], b.logits[i] = token, at + i, 1, 0, 1
            if ll.llama_decode(ctx, b) != 0:
                sys.exit("peer_logits.py: llama_decode fails")
            for i in range(len(part)):
                x = np.ctypeslib.as_array(ll.llama_get_logits_ith(ctx, i), (self.n_vocab,)).astype(np.float64)
                x -= x.max()
                rows.append(x - np.log(np.exp(x).sum()))
        ll.llama_free(ctx)
        return rows


def top(row, n):
    return [[int(i), round(float(row[i]), 5)] for i in np.argsort(-row, kind="stable")[:n]]


def figures(path):
    name = os.path.basename(path).removesuffix(".gguf")
    with open(path, "rb") as f:
        sha256 = hashlib.sha256(f.read()).hexdigest()
    peer = Peer(path)
    for n in PROMPTS:
        rng = random.Random(f"{name} {n}")
        prompt = [rng.randrange(N_BYTES) for _ in range(n)]
        rows = peer.log_probabilities(prompt)
        # All of a short one; of a long one the last and some before it, not in step with the chunks.
        positions = [i for i in range(n) if n <= 40 or i % 13 == 12 or i == n - 1]
        line = {"model": name, "sha256": sha256, "prompt": prompt, "positions": positions, "top": [top(rows[i], 3) for i in positions]}
        print(json.dumps(line, separators=(",", ":")))


def along(goldens, shape, args, path):
    peer = Peer(path)
    with open(goldens, encoding="utf-8") as f:
        lines = [line for line in map(json.loads, f) if line["shape"] == shape and line["args"] == args]
    if not lines:
        sys.exit(f"peer_logits.py: {goldens} has no {shape} {' '.join(args)}")
    for line in lines:
        rows = peer.log_probabilities(line["prompt"] + line["greedy"][:3])[-4:]
        line["f32"] = [[[i, round(float(row[i]), 4)] for i, _ in five] for row, five in zip(rows, line["top5"])]
        print(json.dumps(line))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--along", nargs=3, metavar=("GOLDENS", "SHAPE", "ARGS"))
    parser.add_argument("models", nargs="*")
    o = parser.parse_args()
    if o.along:
        if len(o.models) != 1:
            parser.error("--along takes one MODEL.gguf")
        goldens, shape, args = o.along
        along(goldens, shape, args.split(), o.models[0])
        return
    for path in o.models:
        figures(path)


if __name__ == "__main__":
    main()
