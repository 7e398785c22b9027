#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dialogues of needle.jsonl that think, with a budget: the thinking is the golden one up to the budget, what follows is what a cold run
says of the same tokens, a second request and a stream say the same, and the figures are of the one request."""
import json
import sys

from daemon_lab import SHORT, Daemon, UnixConnection, golden

END = "\n</think>\n\n"
faults = []


def expect(what, ok):
    if not ok:
        faults.append(what)


def chat(d, g, budget, **more):
    body = {"messages": g["messages"], "temperature": 0, "max_tokens": 60, "reasoning_budget_tokens": budget, "enable_thinking": True, "return_token_ids": True}
    body.update(more)
    c = UnixConnection(d.api)
    c.request("POST", "/v1/chat/completions", json.dumps(body))
    r = c.getresponse()
    text = r.read()
    c.close()
    if r.status != 200:
        raise SystemExit(f"HTTP {r.status}: {text[:400]!r}")
    if not more.get("stream"):
        return json.loads(text)
    events = [json.loads(line[6:]) for line in text.split(b"\n") if line.startswith(b"data: {")]
    return {"choices": [{"message": {k: "".join(e["choices"][0]["delta"].get(k) or "" for e in events) for k in ("content", "reasoning_content")}}]}


def check(d, g, budget, end):
    name = f"{g['messages'][-1]['content']!r} with a budget of {budget}"
    own = g["greedy_ids"][:g["greedy_ids"].index(end[1])]  # of its thinking: the golden run's, newline before the end included
    a = chat(d, g, budget)
    choice = a["choices"][0]
    ids, m = choice["token_ids"], choice["message"]
    if budget > len(own):
        expect(f"{name}: {ids} is not the golden answer", ids == g["greedy_ids"])
        return
    expect(f"{name}: thought {ids}", ids[:budget] == own[:budget] and ids[budget:budget + len(end)] == end)
    expect(f"{name}: tags in {m}", "think>" not in m["content"] and "think>" not in m["reasoning_content"])
    expect(f"{name}: said nothing", len(m["content"]) > 0)
    expect(f"{name}: {a['usage']}", a["usage"]["prompt_tokens"] == len(g["prompt_ids"]) and a["usage"]["completion_tokens"] == len(ids))
    cold, _ = d.complete(g["prompt_ids"] + ids[:budget + len(end)], len(ids) - budget - len(end), cache_prompt=False)
    expect(f"{name}: {ids} goes on with {cold} in a cold run", cold == ids[budget + len(end):])
    again = chat(d, g, budget)
    expect(f"{name}: the second time {again}", again["choices"][0]["message"] == m and again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0)
    stream = chat(d, g, budget, stream=True)["choices"][0]["message"]
    expect(f"{name}: the stream says {stream}, not {m}", stream["content"] == m["content"] and stream["reasoning_content"] == m["reasoning_content"])


with Daemon(log_level="warning") as daemon:
    dialogues = [g for g in golden() if g["enable_thinking"] and not g["tools"] and len(g["prompt_ids"]) < 300]
    c = UnixConnection(daemon.api)
    c.request("POST", "/tokenize", json.dumps({"content": END, "parse_special": True}))
    end = json.loads(c.getresponse().read())["tokens"]
    c.close()
    for g in dialogues:
        for budget in (1, 3, 1000) if SHORT else (1, 2, 3, 5, 9, 1000):
            check(daemon, g, budget, end)
        m = chat(daemon, g, 0)["choices"][0]["message"]
        expect(f"with a budget of 0: {m}", "reasoning_content" not in m and m["content"])
print("\n".join(faults + [f"{len(dialogues)} dialogues, {len(faults)} faults"]))
sys.exit(1 if faults or len(dialogues) < 3 else 0)
