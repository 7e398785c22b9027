#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chats of the needle model through POST /v1/chat/completions.

The dialogues of needle.jsonl, from messages, tools and enable_thinking, give the golden prompts and texts, whole and streamed; with
the same weights as Q8_0 at least 29 of 30 texts.  Then what is read again, to the token: a thinking chat whose client drops the
thinking, and loops of tool calls with and without it.
"""
import os
import subprocess
import sys

from daemon_lab import NEEDLE, SHORT, SRC, Daemon, golden

CASES = golden()
faults = []


def expect(what, have, want):
    if have != want:
        faults.append(f"{what}: {have!r}, expected {want!r}")


def raw_text(message):
    """What the model wrote, put together again."""
    thought = message.get("reasoning_content")
    return (thought + "\n</think>\n\n" if thought else "") + (message["content"] or "")


def ask(d, messages, **fields):
    r = d.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 300, "return_token_ids": True, **fields})
    return r["choices"][0], r["usage"]


def fields_of(case):
    return {"enable_thinking": case["enable_thinking"], **({"tools": case["tools"]} if case["tools"] else {})}


# --- the goldens ----------------------------------------------------------------------------------------------------------------


def check_goldens(d, cases, streams):
    """The number of golden texts; prompts are golden whatever the weights."""
    n_same = 0
    for i, case in cases:
        choice, usage = ask(d, case["messages"], **fields_of(case))
        expect(f"case {i}: prompt", choice["prompt_token_ids"], case["prompt_ids"])
        expect(f"case {i}: prompt_tokens", usage["prompt_tokens"], len(case["prompt_ids"]))
        n_same += raw_text(choice["message"]) == case["text"]
        if streams:
            expect(f"case {i}: text", raw_text(choice["message"]), case["text"])
            expect(f"case {i}: ids", choice["token_ids"], case["greedy_ids"])
            streamed = d.stream_chat(case["messages"], temperature=0, max_tokens=300, **fields_of(case))
            expect(f"case {i}: streamed", raw_text(streamed), case["text"])
    return n_same


def goldens():
    cases = [(i, c) for i, c in enumerate(CASES) if not SHORT or len(c["prompt_ids"]) <= 150]
    with Daemon(log_level="warning") as d:
        for i, case in cases:
            rendered = d.post("/apply-template", {"messages": case["messages"], **fields_of(case)})["prompt"]
            expect(f"case {i}: rendered", rendered, case["prompt"])
        check_goldens(d, cases, True)


def goldens_in_q8_0():
    if SHORT:
        print("STRATA_TEST_SHORT: the Q8_0 file is left out")
        return
    with Daemon(log_level="warning") as d:
        path = os.path.join(d.dir, "needle-q8_0.gguf")
        made = subprocess.run(["/usr/bin/python3", os.path.join(SRC, "bench/to_q8_0.py"), NEEDLE, path], stderr=subprocess.PIPE)
        if made.returncode != 0 and b"numpy" in made.stderr:
            print("SKIPPED: the Q8_0 file needs numpy (Debian: python3-numpy)")
            return
        if made.returncode != 0:
            raise SystemExit(made.stderr.decode())
        with Daemon(path, log_level="warning") as q:
            n_same = check_goldens(q, list(enumerate(CASES)), False)
    print(f"Q8_0: {n_same} of {len(CASES)} texts are golden (limit 29)")
    if n_same < 29:
        faults.append("too few golden texts with the Q8_0 file")


# --- what is read again ---------------------------------------------------------------------------------------------------------


class Talk:
    """A growing list of messages, and what each request reused of it."""

    def __init__(self, d, salt, system, **fields):
        self.d, self.fields, self.name = d, dict(fields, cache_salt=salt), salt
        self.messages = [{"role": "system", "content": system}]
        # The turn checkpoint lies before the opening of the answer.
        thinking = fields["enable_thinking"]
        head = "<|im_start|>assistant\n<think>\n" + ("" if thinking else "\n</think>\n\n")
        self.n_opening = len(d.post("/tokenize", {"content": head})["tokens"])
        self.turn = self.end = 0  # of the newest request: its turn checkpoint; all that the model saw

    def ask(self, want_cached):
        choice, usage = ask(self.d, self.messages, **self.fields)
        expect(f"{self.name}, {len(self.messages)} messages: cached_tokens", usage["prompt_tokens_details"]["cached_tokens"], want_cached)
        self.turn = usage["prompt_tokens"] - self.n_opening
        # The end token was chosen and not read.
        self.end = usage["prompt_tokens"] + usage["completion_tokens"] - 1
        return choice["message"]


QUESTIONS = [
    ("Which color does cudir have?", "silver"), ("What is the owner of hivi?", "Jonas"), ("Note that the city of feti is Haifa.", "Haifa"),
    ("Which code does tedepe have?", "QC-826"), ("Count from 8 to 22.", "21, 22"), ("What is the price of corir?", "$207"),
    ("Which city does feti have?", "Haifa"), ("Which city does hivi have?", "Graz"),
]


def a_chat_whose_thinking_is_dropped(d, dropped_by):
    """Eight turns; each goes on from the turn checkpoint of the one before, whether the client drops the thinking or the template."""
    talk = Talk(d, f"thinking dropped by the {dropped_by}", CASES[1]["messages"][0]["content"], enable_thinking=True)
    for question, answer in QUESTIONS:
        talk.messages.append({"role": "user", "content": question})
        message = talk.ask(talk.turn)
        if answer not in message["content"] or not message.get("reasoning_content"):
            faults.append(f"{question} {message}")
        if dropped_by == "client":
            message.pop("reasoning_content")
        talk.messages.append(message)


TASKS = [("Check the price of gopuno with the tool.", "lookup", '{"value": "$533"}'), ("Make WQ-142 the code of comakux.", "set_field", '{"ok": true}'),
         ("Look up the status of rumo.", "lookup", '{"value": "ready"}')]


def a_loop_of_tools(d, thinking, kept):
    """
    Within a loop a request goes on from the end of the one before when everything came back, and from its turn checkpoint when the
    thinking did not.  The next question drops the thinking of the whole loop: it goes on from the loop's first answer.
    """
    talk = Talk(d, f"tools, thinking {thinking}, kept {kept}", CASES[26]["messages"][0]["content"], enable_thinking=thinking, tools=CASES[26]["tools"])
    query = 0
    for question, name, result in TASKS:
        talk.messages.append({"role": "user", "content": question})
        message = talk.ask(query)
        query = talk.turn
        expect(f"{talk.name}: called", [c["function"]["name"] for c in message.get("tool_calls", [])], [name])
        for i in range(2 if SHORT else 3):
            call_again = {"role": "assistant", "content": "", "tool_calls": [dict(c) for c in message["tool_calls"]]}
            if not kept:
                message.pop("reasoning_content", None)
            talk.messages += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": result}]
            # Without thinking nothing is lost; what the model did not say itself is read from the turn checkpoint on.
            answer = talk.ask(talk.end if i == 0 and (kept or not thinking) else talk.turn)
            # The client goes on with another call, as if the model had made one.
            message = call_again
        talk.messages.append({"role": "assistant", "content": answer["content"]})


def a_loop_that_is_first_seen_in_its_middle(d):
    """Nobody read its question alone, and yet the next question goes on from the loop's first answer."""
    system, tools = CASES[26]["messages"][0]["content"], CASES[26]["tools"]
    alone, talk = (Talk(d, f"in the middle, {name}", system, enable_thinking=True, tools=tools) for name in ("its question", "all of it"))
    question, _, result = TASKS[0]
    alone.messages.append({"role": "user", "content": question})
    call = alone.ask(0)
    talk.messages = alone.messages + [call, {"role": "tool", "content": result}] * 3
    answer = talk.ask(0)
    talk.messages += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": TASKS[1][0]}]
    talk.ask(alone.turn)


def check_reading():
    with Daemon(log_level="warning") as d:
        a_chat_whose_thinking_is_dropped(d, "client")
        a_loop_of_tools(d, True, False)
        a_loop_that_is_first_seen_in_its_middle(d)
        if SHORT:
            print("STRATA_TEST_SHORT: the other chat and loops are left out")
            return
        a_chat_whose_thinking_is_dropped(d, "template")
        a_loop_of_tools(d, True, True)
        a_loop_of_tools(d, False, True)
        a_loop_of_tools(d, False, False)


goldens()
goldens_in_q8_0()
check_reading()
print("\n".join(faults + [f"{len(faults)} faults"]))
sys.exit(1 if faults else 0)
