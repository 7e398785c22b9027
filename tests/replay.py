#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# This project's own tool, copied from its shared material (tools/replay.py); what is new here is --ids, for tests that work
# out from the prompts what has to be reused.
"""Replay cache scenarios against any OpenAI-compatible completion server and print what each request cost.

    replay.py --unix /run/strata/demo/api.sock SCENARIO      (or --url http://127.0.0.1:8080)
    scenarios: subagents  roots  alternate  branch  warm  all        options: --scale 0.1 (shorter prompts)  --json FILE

Prompts are arrays of token ids drawn from a fixed seed, so no tokenizer is involved and every run asks the same. With --turn ID
(the id of the model's turn-start token, <|im_start|>) every message begins with that token, so that hybrid models find their
roots and turn boundaries. For each request: prompt tokens, tokens reused (usage.prompt_tokens_details.cached_tokens, or
llama.cpp's timings), tokens read, time to the first token (the first chunk that carries one), total time. `ideal` is the fewest
tokens a perfect cache would read: what no earlier prompt or answer on that branch holds. `roots` wants at least 3 slots.
Standard library only.
"""
import argparse, http.client, json, random, socket, sys, threading, time

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("scenario", choices=["subagents", "roots", "alternate", "branch", "warm", "all"])
ap.add_argument("--unix"); ap.add_argument("--url", default="http://127.0.0.1:8080"); ap.add_argument("--model", default="")
ap.add_argument("--scale", type=float, default=1.0); ap.add_argument("--answer", type=int, default=64); ap.add_argument("--vocab", type=int, default=250)
ap.add_argument("--turn", type=int); ap.add_argument("--seed", type=int, default=1); ap.add_argument("--json"); ap.add_argument("--ids", action="store_true", help="the JSON has the ids of prompts and answers too"); ap.add_argument("--timeout", type=float, default=600)
o = ap.parse_args()

class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout): super().__init__("localhost", timeout=timeout); self.path = path
    def connect(self): self.sock = socket.socket(socket.AF_UNIX); self.sock.settimeout(self.timeout); self.sock.connect(self.path)
def connection():
    if o.unix: return UnixConnection(o.unix, o.timeout)
    host = o.url.split("//")[1].rstrip("/"); return http.client.HTTPConnection(host, timeout=o.timeout)

def complete(ids, n=None, ignore_eos=True):
    """One streamed greedy completion -> dict(read, reused, ttft, total, answer ids or text pieces)."""
    body = {"prompt": ids, "max_tokens": o.answer if n is None else n, "temperature": 0, "seed": 1, "stream": True, "stream_options": {"include_usage": True},
            "ignore_eos": ignore_eos, "cache_prompt": True, "return_tokens": True, "return_token_ids": True, "model": o.model}
    c = connection(); t0 = time.monotonic(); c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}); r = c.getresponse()
    if r.status != 200: raise SystemExit(f"HTTP {r.status}: {r.read()[:400]!r}")
    first = None; text = ""; out = []; usage = {}; timings = {}; pieces = 0
    for line in r:
        if not line.startswith(b"data:"): continue
        d = line[5:].strip()
        if d == b"[DONE]": break
        j = json.loads(d)
        if "error" in j: raise SystemExit(f"error in the stream: {j['error']}")
        usage = j.get("usage") or usage; timings = j.get("timings") or timings
        for ch in j.get("choices", []):
            if first is None and (ch.get("text") or ch.get("tokens") or ch.get("token_ids")): first = time.monotonic()
            text += ch.get("text") or ""; out += ch.get("tokens") or ch.get("token_ids") or []; pieces += 1
    end = time.monotonic(); c.close(); prompt = usage.get("prompt_tokens", len(ids))
    reused = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    if reused is None: reused = timings.get("cache_n", prompt - timings.get("prompt_n", prompt))
    return {"prompt": prompt, "reused": reused, "read": prompt - reused, "ttft": (first or end) - t0, "total": end - t0, "text": text, "ids": out, "gen": usage.get("completion_tokens", 0)}

rng = random.Random(o.seed)
def toks(n):
    t = [rng.randrange(10, o.vocab) for _ in range(max(1, int(n * o.scale)))]
    if o.turn is not None: t[0] = o.turn
    return t
rows = []
def ask(label, ids, ideal, n=None):
    r = complete(ids, n); r["label"] = label; r["ideal"] = ideal; r["prompt_ids"] = ids; rows.append(r)
    print(f"{label:34s} prompt {r['prompt']:7d}  reused {r['reused']:7d}  read {r['read']:7d}  (ideal {ideal:6d})  first token {r['ttft']*1e3:9.1f} ms  total {r['total']*1e3:9.1f} ms", flush=True)
    return r
def total(name, part):
    print(f"== {name}: read {sum(r['read'] for r in part)} of {sum(r['prompt'] for r in part)} prompt tokens (ideal {sum(r['ideal'] for r in part)}), {sum(r['total'] for r in part):.2f} s, "
          f"first tokens {sum(r['ttft'] for r in part):.2f} s\n", flush=True)

def subagents():
    """A main agent (30,000 tokens) and two subagents (15,000 each) share a 2,700-token system prompt and take turns; every return adds 2,300 tokens."""
    s = toks(2700); start = len(rows); conv = {"P": s + toks(27300), "S1": s + toks(12300), "S2": s + toks(12300)}; seen = False
    for step in "P S1 P S2 S1 S2 P S1 S2 P".split():
        first = not any(r["label"].startswith(step + " ") for r in rows[start:])
        fresh = conv[step] if not seen else (conv[step][len(s):] if first else None); 
        if not first: add = toks(2300); conv[step] = conv[step] + add; fresh = add
        seen = True; r = ask(f"{step} turn", conv[step], len(fresh)); conv[step] = conv[step] + (r["ids"] or [])
    total("subagents", rows[start:])
def roots():
    """New chats behind one 42,000-token system prompt while two other requests always decode."""
    start = len(rows); s = toks(42000); stop = threading.Event()
    def noise(k):
        r = random.Random(900 + k)
        while not stop.is_set(): complete([r.randrange(10, o.vocab) for _ in range(int(600 * o.scale) + 8)], 96)
    a = s + toks(300)
    for i in range(3): r = ask(f"A turn {i+1}", a, len(a) if i == 0 else len(add)); add = toks(400); a = a + (r["ids"] or []) + add
    other = toks(8000) + toks(200); ask("other system prompt", other, len(other))
    th = [threading.Thread(target=noise, args=(k,), daemon=True) for k in range(2)]; [t.start() for t in th]; time.sleep(1.0)
    for who in "BC":
        b = s + toks(300); ask(f"new chat {who} under load", b, len(b) - len(s)); add = toks(400)
    stop.set(); [t.join() for t in th]; b = s + toks(300); ask("new chat D, quiet", b, len(b) - len(s)); total("roots", rows[start:])
def alternate():
    """Eight agents with their own 20,000-token histories, round robin, three rounds."""
    start = len(rows); conv = [toks(20000) for _ in range(8)]
    for rnd in range(3):
        for i in range(8):
            add = toks(800) if rnd else conv[i]
            if rnd: conv[i] = conv[i] + add
            r = ask(f"agent {i} round {rnd}", conv[i], len(add)); conv[i] = conv[i] + (r["ids"] or [])
    total("alternate", rows[start:])
def branch():
    """A 20,000-token chat is edited far back, then continued as before."""
    start = len(rows); base = toks(20000); ask("first", base, len(base)); ext = base + toks(1000); ask("continued", ext, len(ext) - len(base))
    ed = base[: len(base) // 2] + toks(2000); ask("edited in the middle", ed, len(ed) - len(base) // 2); back = ext + toks(500); ask("back to the original", back, len(back) - len(ext)); total("branch", rows[start:])
def warm():
    """Cold, again, and as a continuation: the cost of a hit against the cost of a miss, by length."""
    start = len(rows)
    for n in (1000, 4000, 16000, 40000):
        p = toks(n); ask(f"{n} cold", p, len(p), 1); q = p + toks(40); ask(f"{n} warm + 40", q, len(q) - len(p), 1)
    total("warm", rows[start:])
for name in ([o.scenario] if o.scenario != "all" else ["warm", "branch", "subagents", "alternate", "roots"]):
    rng.seed(f"{o.seed} {name}"); globals()[name]()
if o.json: json.dump([{k: v for k, v in r.items() if o.ids or k not in ("ids", "prompt_ids")} for r in rows], open(o.json, "w"))
