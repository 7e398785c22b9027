#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a GGUF file with a published model's exact shapes and random weights, for speed and memory measurements.

    synth_gguf.py SHAPE OUT.gguf [--quant Q4_K_M|Q8_0|F16|BF16|Q4_0|Q4_1|Q2_K|Q3_K|Q5_K|Q6_K] [--layers N] [--mtp] [--seed N] [--expand]

SHAPE: qwen3-0.6b qwen3-8b qwen3-32b llama-3.1-8b smollm2-135m qwen3.5-0.8b qwen3.5-4b qwen3.5-9b qwen3.5-27b
       qwen3.5-35b-a3b qwen3-30b-a3b
Speed depends on shapes and formats, not on what the weights say; the text such a model writes is noise. The vocabulary is a
byte-level BPE of the published size whose first 256 tokens are the bytes. Needs numpy only. Q4_K_M here means: Q6_K for the
output matrix and for the value and down projections of every second layer, Q4_K elsewhere. --expand writes the same values as F32.
"""
import argparse, struct, sys
import numpy as np

D = dict  # dense: heads/kv/hd/ff;  hybrid adds the linear-attention heads and 1 full layer in 4
SHAPES = {
    "smollm2-135m": D(a="llama", n=30, d=576, h=9, kv=3, hd=64, ff=1536, v=49152, tied=1, base=1e5, ctx=8192, eps=1e-5),
    "llama-3.1-8b": D(a="llama", n=32, d=4096, h=32, kv=8, hd=128, ff=14336, v=128256, tied=0, base=5e5, ctx=131072, eps=1e-5),
    "qwen3-0.6b": D(a="qwen3", n=28, d=1024, h=16, kv=8, hd=128, ff=3072, v=151936, tied=1, base=1e6, ctx=40960, eps=1e-6),
    "qwen3-8b": D(a="qwen3", n=36, d=4096, h=32, kv=8, hd=128, ff=12288, v=151936, tied=0, base=1e6, ctx=131072, eps=1e-6),
    "qwen3-32b": D(a="qwen3", n=64, d=5120, h=64, kv=8, hd=128, ff=25600, v=151936, tied=0, base=1e6, ctx=131072, eps=1e-6),
    "qwen3-30b-a3b": D(a="qwen3moe", n=48, d=2048, h=32, kv=4, hd=128, ff=6144, ne=128, nu=8, fe=768, v=151936, tied=0, base=1e6, ctx=131072, eps=1e-6),
    "qwen3.5-0.8b": D(a="qwen35", n=24, d=1024, h=8, kv=2, hd=256, ff=3584, lk=16, lv=16, v=248320, tied=1, base=1e7, ctx=262144, eps=1e-6),
    "qwen3.5-4b": D(a="qwen35", n=32, d=2560, h=16, kv=4, hd=256, ff=9216, lk=16, lv=32, v=248320, tied=1, base=1e7, ctx=262144, eps=1e-6),
    "qwen3.5-9b": D(a="qwen35", n=32, d=4096, h=16, kv=4, hd=256, ff=12288, lk=16, lv=32, v=248320, tied=0, base=1e7, ctx=262144, eps=1e-6),
    "qwen3.5-27b": D(a="qwen35", n=64, d=5120, h=24, kv=4, hd=256, ff=17408, lk=16, lv=48, v=248320, tied=0, base=1e7, ctx=262144, eps=1e-6),
    "qwen3.5-35b-a3b": D(a="qwen35moe", n=40, d=2048, h=16, kv=2, hd=256, ff=512, ne=256, nu=8, fe=512, fs=512, lk=16, lv=32, v=248320, tied=0, base=1e7, ctx=262144, eps=1e-6),
}
F32, F16, Q4_0, Q4_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, BF16 = 0, 1, 2, 3, 8, 10, 11, 12, 13, 14, 30
BLOCK = {F32: (1, 4), F16: (1, 2), BF16: (1, 2), Q4_0: (32, 18), Q4_1: (32, 20), Q8_0: (32, 34), Q2_K: (256, 84), Q3_K: (256, 110), Q4_K: (256, 144), Q5_K: (256, 176), Q6_K: (256, 210)}

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("shape", choices=sorted(SHAPES)); ap.add_argument("out"); ap.add_argument("--quant", default="Q4_K_M", choices=["Q4_K_M", "Q8_0", "F16", "BF16", "Q4_0", "Q4_1", "Q2_K", "Q3_K", "Q5_K", "Q6_K"])
ap.add_argument("--layers", type=int); ap.add_argument("--mtp", action="store_true"); ap.add_argument("--seed", type=int, default=1); ap.add_argument("--expand", action="store_true")
o = ap.parse_args(); S = SHAPES[o.shape]; N = o.layers or S["n"]; rng = np.random.default_rng(o.seed)

def matrix_type(name, layer, cols):
    """The quantisation of one matrix; rows that do not fill 256-element blocks fall back to Q8_0, then F16."""
    t = {"Q8_0": Q8_0, "F16": F16, "BF16": BF16, "Q4_0": Q4_0, "Q4_1": Q4_1, "Q2_K": Q2_K, "Q3_K": Q3_K, "Q5_K": Q5_K, "Q6_K": Q6_K, "Q4_K_M": Q4_K}[o.quant]
    if o.quant == "Q4_K_M" and (name.startswith("output.") or (layer is not None and layer % 2 == 0 and ("attn_v" in name or "ffn_down" in name))): t = Q6_K
    if o.quant == "Q4_K_M" and name.startswith("token_embd") and S["tied"]: t = Q6_K
    if cols % BLOCK[t][0]: t = Q8_0 if cols % 32 == 0 else F16
    return t

tensors = []  # (name, shape slow-to-fast, type, fill)
def mat(name, *shape, layer=None, f32=False): tensors.append((name, shape, F32 if f32 else matrix_type(name, layer, shape[-1]), "w"))
def vec(name, n, fill="one"): tensors.append((name, (n,), F32, fill))

def ffn(b, i):
    if "ne" in S:
        mat(f"{b}.ffn_gate_inp.weight", S["ne"], S["d"], f32=True)
        for x in ("gate", "up"): mat(f"{b}.ffn_{x}_exps.weight", S["ne"], S["fe"], S["d"], layer=i)
        mat(f"{b}.ffn_down_exps.weight", S["ne"], S["d"], S["fe"], layer=i)
        if "fs" in S:
            vec(f"{b}.ffn_gate_inp_shexp.weight", S["d"], "small")
            for x in ("gate", "up"): mat(f"{b}.ffn_{x}_shexp.weight", S["fs"], S["d"], layer=i)
            mat(f"{b}.ffn_down_shexp.weight", S["d"], S["fs"], layer=i)
    else:
        for x in ("gate", "up"): mat(f"{b}.ffn_{x}.weight", S["ff"], S["d"], layer=i)
        mat(f"{b}.ffn_down.weight", S["d"], S["ff"], layer=i)

def attention(b, i):
    gated = 2 if "lk" in S else 1
    mat(f"{b}.attn_q.weight", S["h"] * S["hd"] * gated, S["d"], layer=i)
    for x in ("k", "v"): mat(f"{b}.attn_{x}.weight", S["kv"] * S["hd"], S["d"], layer=i)
    mat(f"{b}.attn_output.weight", S["d"], S["h"] * S["hd"], layer=i)
    if S["a"] != "llama":
        vec(f"{b}.attn_q_norm.weight", S["hd"]); vec(f"{b}.attn_k_norm.weight", S["hd"])

mat("token_embd.weight", S["v"], S["d"])
if not S["tied"]: mat("output.weight", S["v"], S["d"])
vec("output_norm.weight", S["d"])
for i in range(N):
    b = f"blk.{i}"; vec(f"{b}.attn_norm.weight", S["d"])
    if "lk" in S:
        vec(f"{b}.post_attention_norm.weight", S["d"])
        if (i + 1) % 4 == 0: attention(b, i)
        else:
            kd, vd = S["lk"] * 128, S["lv"] * 128
            mat(f"{b}.attn_qkv.weight", 2 * kd + vd, S["d"], layer=i); mat(f"{b}.attn_gate.weight", vd, S["d"], layer=i)
            mat(f"{b}.ssm_beta.weight", S["lv"], S["d"], layer=i); mat(f"{b}.ssm_alpha.weight", S["lv"], S["d"], layer=i)
            mat(f"{b}.ssm_conv1d.weight", 2 * kd + vd, 4, f32=True); vec(f"{b}.ssm_dt.bias", S["lv"], "small"); vec(f"{b}.ssm_a", S["lv"], "decay")
            vec(f"{b}.ssm_norm.weight", 128); mat(f"{b}.ssm_out.weight", S["d"], vd, layer=i)
    else:
        vec(f"{b}.ffn_norm.weight", S["d"]); attention(b, i)
    ffn(b, i)
if o.mtp:
    assert "lk" in S, "only the hybrid shapes have a draft block"
    b = f"blk.{N}"
    for x in ("attn_norm", "post_attention_norm", "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm"): vec(f"{b}.{x}.weight", S["d"])
    mat(f"{b}.nextn.eh_proj.weight", S["d"], 2 * S["d"], layer=N); attention(b, N); ffn(b, N)

a = S["a"]; U, I, F, B, T, A = 4, 5, 6, 7, 8, 9
kv = [("general.architecture", T, a), ("general.name", T, f"synthetic {o.shape} {o.quant}"), ("general.quantization_version", U, 2), (f"{a}.block_count", U, N + int(o.mtp)), (f"{a}.context_length", U, S["ctx"]),
      (f"{a}.embedding_length", U, S["d"]), (f"{a}.feed_forward_length", U, S["ff"]), (f"{a}.attention.head_count", U, S["h"]), (f"{a}.attention.head_count_kv", U, S["kv"]), (f"{a}.attention.key_length", U, S["hd"]),
      (f"{a}.attention.value_length", U, S["hd"]), (f"{a}.attention.layer_norm_rms_epsilon", F, S["eps"]), (f"{a}.rope.freq_base", F, S["base"]), (f"{a}.rope.dimension_count", U, 64 if "lk" in S else S["hd"])]
if "ne" in S: kv += [(f"{a}.expert_count", U, S["ne"]), (f"{a}.expert_used_count", U, S["nu"]), (f"{a}.expert_feed_forward_length", U, S["fe"])]
if "fs" in S: kv += [(f"{a}.expert_shared_feed_forward_length", U, S["fs"])]
if "lk" in S: kv += [(f"{a}.rope.dimension_sections", (A, I), [11, 11, 10, 0]), (f"{a}.full_attention_interval", U, 4), (f"{a}.ssm.conv_kernel", U, 4), (f"{a}.ssm.state_size", U, 128), (f"{a}.ssm.group_count", U, S["lk"]), (f"{a}.ssm.time_step_rank", U, S["lv"]), (f"{a}.ssm.inner_size", U, S["lv"] * 128)]
if o.mtp: kv += [(f"{a}.nextn_predict_layers", U, 1)]
keep = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256)); extra = iter(range(256, 512))
bytes_ = [chr(c) if c in keep else chr(next(extra)) for c in range(256)]
tokens = bytes_ + ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]; kinds = [1] * 256 + [3, 3, 3]
while len(tokens) < S["v"]: tokens.append(f"Ġx{len(tokens):x}"); kinds.append(1)
kv += [("tokenizer.ggml.model", T, "gpt2"), ("tokenizer.ggml.pre", T, "qwen2"), ("tokenizer.ggml.tokens", (A, T), tokens), ("tokenizer.ggml.token_type", (A, I), kinds), ("tokenizer.ggml.merges", (A, T), ["Ġ a"]),
       ("tokenizer.ggml.eos_token_id", U, 257), ("tokenizer.ggml.bos_token_id", U, 258), ("tokenizer.ggml.add_bos_token", B, False),
       ("tokenizer.chat_template", T, "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")]
def text(x): x = x.encode(); return struct.pack("<Q", len(x)) + x
def scalar(t, v): return text(v) if t == T else struct.pack({U: "<I", I: "<i", F: "<f", B: "<B"}[t], v)
head = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kv)))
for k, t, v in kv:
    head += text(k)
    if isinstance(t, tuple): head += struct.pack("<IIQ", A, t[1], len(v)) + b"".join(scalar(t[1], x) for x in v)
    else: head += struct.pack("<I", t) + scalar(t, v)
def stored(t): return F32 if o.expand else t
def nbytes(shape, t): e, s = BLOCK[t]; return int(np.prod(shape, dtype=np.int64)) // e * s
off = 0
for name, shape, t, _ in tensors:
    head += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", x) for x in shape[::-1]) + struct.pack("<IQ", stored(t), off); off += (nbytes(shape, stored(t)) + 31) // 32 * 32
head += b"\0" * (-len(head) % 32)

def half(x): return np.frombuffer(np.asarray(x, np.float16).tobytes(), np.uint8)
def blocks(n, t, std):
    """n random blocks whose values have about the given standard deviation."""
    size = BLOCK[t][1]
    if t in (F32, F16, BF16):
        x = (rng.random(n, np.float32) - 0.5) * np.float32(std * 3.4641)
        return x if t == F32 else (x.astype(np.float16) if t == F16 else (x.view(np.uint32) >> 16).astype(np.uint16))
    b = rng.integers(0, 256, (n, size), np.uint8)
    if t == Q8_0: b[:, :2] = half(std / 73.9)
    if t == Q4_0: b[:, :2] = half(std / 4.6)
    if t == Q4_1: b[:, :2] = half(std / 4.6); b[:, 2:4] = half(std / 4.6 * -7.5)
    if t == Q2_K: b[:, :16] = 8 | 12 << 4; b[:, 80:82] = b[:, 82:84] = half(std / (8 * 1.12))  # scales 8, minima 12: centred
    if t == Q3_K: b[:, 96:104] = 0; b[:, 104:108] = 255; b[:, 108:] = half(std / (16 * 2.3))  # scales 48 - 32
    if t == Q6_K: b[:, 192:208] = 32; b[:, 208:] = half(std / (32 * 18.5))
    if t in (Q4_K, Q5_K):  # sub-block scales 32, mins 30: about centred
        steps = 4.6 if t == Q4_K else 9.2
        b[:, :2] = half(std / (32 * steps)); b[:, 2:4] = half(std / (32 * steps) * (8 if t == Q4_K else 16)); s = np.array([32] * 4 + [30] * 4 + [0] * 4, np.uint8); s[8:] = (32 & 15) | ((30 & 15) << 4); s[:4] |= (32 >> 4) << 6; s[4:8] |= (30 >> 4) << 6; b[:, 4:16] = s
    return b
def values(b, t):
    """The F32 values of blocks (formats of Q4_0, Q8_0 and Q4_K_M files, and plain ones)."""
    if t in (F32, F16): return b.astype(np.float32)
    if t == BF16: return (b.astype(np.uint32) << 16).view(np.float32)
    f16 = lambda at: b[:, at : at + 2].copy().view(np.float16).astype(np.float32)
    nibbles = lambda q: np.concatenate([q & 15, q >> 4], axis=-1)  # low halves of a run, then high halves
    if t == Q8_0: return f16(0) * b[:, 2:].view(np.int8)
    if t == Q4_0: return f16(0) * (nibbles(b[:, 2:]).astype(np.float32) - 8)
    if t == Q4_K:
        s = b[:, 4:16]; low = s[:, :8] & 63
        high = np.concatenate([(s[:, 8:] & 15) | (s[:, 0:4] >> 6 << 4), (s[:, 8:] >> 4) | (s[:, 4:8] >> 6 << 4)], axis=1)
        scale = np.concatenate([low[:, :4], high[:, :4]], axis=1).astype(np.float32)[:, :, None]; least = np.concatenate([low[:, 4:], high[:, 4:]], axis=1).astype(np.float32)[:, :, None]
        q = nibbles(b[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
        return f16(0)[:, :, None] * scale * q - f16(2)[:, :, None] * least
    if t == Q6_K:
        ql, qh = b[:, :128].reshape(-1, 2, 64), b[:, 128:192].reshape(-1, 2, 1, 32)
        q = (nibbles(ql).reshape(-1, 2, 4, 32) | (qh >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3) << 4).astype(np.float32) - 32
        return f16(208)[:, :, None] * b[:, 192:208].view(np.int8).astype(np.float32)[:, :, None] * q.reshape(-1, 16, 16)
    sys.exit(f"--expand: no {o.quant}")
with open(o.out, "wb") as f:
    f.write(head)
    for name, shape, t, fill in tensors:
        n = int(np.prod(shape, dtype=np.int64)) // BLOCK[t][0]; size = nbytes(shape, stored(t))
        if fill == "w":
            vocab = name.startswith(("output.", "token_embd")); std = 3.0 / np.sqrt(shape[-1]) if name.startswith("output.") else (0.05 if vocab else 0.7 / np.sqrt(shape[-1])); left = n; unit = None
            while left:  # the vocabulary all random (no two tokens alike); elsewhere one stretch, rolled each time: fast
                k = min(left, max(1, (32 << 20) // BLOCK[t][1]))
                if unit is None or vocab or k > len(unit): unit = blocks(k, t, std)
                else: unit = np.roll(unit, int(rng.integers(1, len(unit))), axis=0)
                f.write(np.ascontiguousarray(values(unit[:k], t) if o.expand else unit[:k]).tobytes()); left -= k
        else:
            x = {"one": np.ones(n), "small": rng.normal(0, 0.02, n), "decay": -rng.uniform(0.02, 1.0, n)}[fill]; f.write(x.astype(np.float32).tobytes())
        f.write(b"\0" * (-size % 32))
print(f"{o.out}: {len(tensors)} tensors, {len(head) + off} bytes")
