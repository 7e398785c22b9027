# SPDX-License-Identifier: Apache-2.0
"""The official openai package, pointed at the API socket: what its users do gives what they expect.  tests/clients/run runs it."""
import asyncio
import os
import sys
import time
import traceback

import httpx2
import openai

from daemon_lab import Daemon, golden, smollm2

CASES = golden()
TOOL_CASE, THINKING_CASE, COUNTING_CASE = CASES[28], CASES[13], CASES[11]
GREEDY = {"temperature": 0, "max_tokens": 200}


def client_of(daemon, **more):
    return openai.OpenAI(base_url="http://localhost/v1", api_key="none", max_retries=0,
                         http_client=httpx2.Client(transport=httpx2.HTTPTransport(uds=daemon.api)), **more)


def fields(case, n_messages=None, **extra):
    """A case as the package wants it: what it does not know travels in extra_body."""
    out = dict(GREEDY, model="any", messages=case["messages"][:n_messages],
               extra_body={"enable_thinking": case["enable_thinking"], "return_token_ids": True, **extra})
    if case["tools"]:
        out["tools"] = case["tools"]
    return out


def raw_text(message):
    """What the model wrote, put together again."""
    thought = getattr(message, "reasoning_content", None)
    return (thought + "\n</think>\n\n" if thought else "") + (message.content or "")


def expect(have, want):
    assert have == want, f"{have!r}, expected {want!r}"


def refused(error, param, call, status=400):
    try:
        call()
    except error as e:
        expect((e.status_code, e.param), (status, param))
        assert e.message and e.type == "invalid_request_error", e
        return e
    raise AssertionError(f"no {error.__name__} about {param}")


# --- the tests: the name says what is true --------------------------------------------------------------------------------------


def models_are_listed(d, c):
    ids = [m.id for m in c.models.list()]
    expect(ids, ["needle"])
    expect(c.models.retrieve(ids[0]).object, "model")
    try:
        c.models.retrieve("other")
    except openai.NotFoundError as e:
        expect(e.status_code, 404)
    else:
        raise AssertionError("a model that does not exist was found")


def a_chat_is_answered_as_the_golden_says(d, c):
    for case in (CASES[0], CASES[8], CASES[24], THINKING_CASE):
        r = c.chat.completions.create(**fields(case))
        expect(r.choices[0].model_extra["prompt_token_ids"], case["prompt_ids"])
        expect(raw_text(r.choices[0].message), case["text"])
        expect((r.object, r.choices[0].finish_reason, r.choices[0].message.role), ("chat.completion", "stop", "assistant"))
        expect(r.usage.prompt_tokens, len(case["prompt_ids"]))
        expect(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens)


def a_stream_is_the_whole_answer_to_the_byte(d, c):
    for case in (CASES[0], CASES[21], THINKING_CASE, COUNTING_CASE):
        whole = c.chat.completions.create(**fields(case)).choices[0]
        got, ids, finish, usage = {"content": "", "reasoning_content": ""}, [], None, None
        for chunk in c.chat.completions.create(**fields(case), stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                ids += choice.model_extra.get("token_ids") or []
                finish = choice.finish_reason or finish
                for key in got:
                    got[key] += getattr(choice.delta, key, None) or ""
        expect(got["content"], whole.message.content)
        expect(got["reasoning_content"], getattr(whole.message, "reasoning_content", ""))
        expect((ids, finish), (whole.model_extra["token_ids"], whole.finish_reason))
        expect(usage.completion_tokens, len(ids))


def a_tool_is_called_and_its_result_used(d, c):
    messages = list(TOOL_CASE["messages"][:2])
    request = dict(fields(TOOL_CASE), messages=messages)
    r = c.chat.completions.create(**request).choices[0]
    expect((r.finish_reason, len(r.message.tool_calls), r.message.content), ("tool_calls", 1, None))
    call = r.message.tool_calls[0]
    expect((call.type, call.function.name), ("function", "set_field"))
    expect(call.function.arguments.replace(" ", ""), '{"item":"lesa","field":"status","value":"stopped"}')
    # The package's own object goes back, as its users send it.
    messages += [r.message, {"role": "tool", "tool_call_id": call.id, "content": '{"ok": true}'}]
    r = c.chat.completions.create(**request).choices[0]
    expect((r.finish_reason, r.message.content), ("stop", TOOL_CASE["messages"][4]["content"]))
    # What was rendered is what the model wrote: the golden dialogue goes the same way.
    rendered = TOOL_CASE["prompt"].index("<|im_start|>user\nMake Kai")
    text = d.post("/detokenize", {"tokens": r.model_extra["prompt_token_ids"]})["content"]
    assert "<tool_response>\n{\"ok\": true}\n</tool_response>" in text and text[:300] == TOOL_CASE["prompt"][:300], (text, rendered)


def streamed_tool_calls_merge(d, c):
    request = dict(fields(TOOL_CASE), messages=TOOL_CASE["messages"][:2])
    whole = c.chat.completions.create(**request).choices[0]
    with c.chat.completions.stream(**request) as stream:
        for _ in stream:
            pass
        merged = stream.get_final_completion().choices[0]
    expect(merged.finish_reason, "tool_calls")
    expect([(t.function.name, t.function.arguments) for t in merged.message.tool_calls],
           [(t.function.name, t.function.arguments) for t in whole.message.tool_calls])
    assert all(t.id.startswith("call_") for t in merged.message.tool_calls)


def no_tools_are_called_when_none_is_chosen(d, c):
    r = c.chat.completions.create(**dict(fields(TOOL_CASE), messages=TOOL_CASE["messages"][:2]), tool_choice="none").choices[0]
    expect(r.message.tool_calls, None)
    bare = {k: v for k, v in fields(TOOL_CASE, 2).items() if k != "tools"}
    expect(r.model_extra["prompt_token_ids"], c.chat.completions.create(**bare).choices[0].model_extra["prompt_token_ids"])


def calls_that_must_be_made_are_refused(d, c):
    e = refused(openai.BadRequestError, "tool_choice", lambda: c.chat.completions.create(**fields(TOOL_CASE), tool_choice="required"))
    expect(e.code, "unsupported_parameter")
    named = {"type": "function", "function": {"name": "lookup"}}
    refused(openai.BadRequestError, "tool_choice", lambda: c.chat.completions.create(**fields(TOOL_CASE), tool_choice=named))


def faults_are_typed_and_name_the_field(d, c):
    ask = fields(CASES[8])
    refused(openai.BadRequestError, "messages", lambda: c.chat.completions.create(**dict(ask, messages=[])))
    refused(openai.BadRequestError, "messages[0].role", lambda: c.chat.completions.create(**dict(ask, messages=[{"role": "x", "content": ""}])))
    refused(openai.BadRequestError, "n", lambda: c.chat.completions.create(**ask, n=2))
    refused(openai.BadRequestError, "temperature", lambda: c.chat.completions.create(**dict(ask, temperature=-1)))
    refused(openai.BadRequestError, "response_format", lambda: c.chat.completions.create(**ask, response_format={"type": "json_object"}))
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    refused(openai.BadRequestError, "messages[0].content[0]", lambda: c.chat.completions.create(**dict(ask, messages=image)))
    long = [{"role": "user", "content": "The port of x is 1. " * 30000}]
    expect(refused(openai.BadRequestError, "messages", lambda: c.chat.completions.create(**dict(ask, messages=long))).code,
           "context_length_exceeded")
    try:
        c.embeddings.create(model="any", input="x")
    except openai.NotFoundError:
        return
    raise AssertionError("there are no embeddings")


def fields_that_change_nothing_are_accepted(d, c):
    r = c.chat.completions.create(**fields(CASES[8]), user="someone", metadata={"a": "b"}, store=False, parallel_tool_calls=True, n=1,
                                  response_format={"type": "text"}, service_tier="auto", seed=7)
    expect(r.choices[0].message.content, CASES[8]["text"])


def logprobs_are_of_the_tokens(d, c):
    choice = c.chat.completions.create(**fields(CASES[8]), logprobs=True, top_logprobs=3).choices[0]
    rows = choice.logprobs.content
    expect(len(rows), len(choice.model_extra["token_ids"]))
    expect(b"".join(bytes(r.bytes) for r in rows[:-1]).decode(), choice.message.content)
    for r in rows:
        expect((len(r.top_logprobs), r.top_logprobs[0].token, r.top_logprobs[0].logprob), (3, r.token, r.logprob))
    streamed = [r for chunk in c.chat.completions.create(**fields(CASES[8]), logprobs=True, top_logprobs=3, stream=True)
                for choice in chunk.choices for r in (choice.logprobs.content if choice.logprobs else [])]
    expect(streamed, rows)


def an_answer_ends_where_it_should(d, c):
    r = c.chat.completions.create(**fields(CASES[0]), stop=[" is "]).choices[0]
    expect((r.message.content, r.finish_reason), (CASES[0]["text"].split(" is ")[0], "stop"))
    short = {k: v for k, v in fields(CASES[0]).items() if k != "max_tokens"}
    r = c.chat.completions.create(**short, max_completion_tokens=3).choices[0]
    expect((r.finish_reason, len(r.model_extra["token_ids"])), ("length", 3))
    assert CASES[0]["text"].startswith(r.message.content), r


def usage_tells_what_was_reused(d, c):
    request = fields(CASES[23], cache_salt="usage")
    first, second = (c.chat.completions.create(**request).usage for _ in range(2))
    expect(first.prompt_tokens_details.cached_tokens, 0)
    # From the turn checkpoint: all but the opening of the answer.
    opening = len(d.post("/tokenize", {"content": "<|im_start|>assistant\n<think>\n\n</think>\n\n"})["tokens"])
    expect(second.prompt_tokens_details.cached_tokens, second.prompt_tokens - opening)


def requests_have_ids(d, c):
    r = c.chat.completions.create(**fields(CASES[8]))
    assert r._request_id and r.id.startswith("chatcmpl-"), (r._request_id, r.id)
    r = c.chat.completions.create(**fields(CASES[8]), extra_headers={"X-Request-Id": "mine-1"})
    expect(r._request_id, "mine-1")


def content_in_parts_and_developers_are_the_same(d, c):
    case = CASES[10]
    want = c.chat.completions.create(**fields(case)).choices[0].model_extra["prompt_token_ids"]
    parts = [dict(m, content=[{"type": "text", "text": m["content"][:7]}, {"type": "text", "text": m["content"][7:]}]) for m in case["messages"]]
    parts[0]["role"] = "developer"
    r = c.chat.completions.create(**dict(fields(case), messages=parts)).choices[0]
    expect(r.model_extra["prompt_token_ids"], want)
    expect(r.message.content, case["text"])


def thinking_is_taken_back(d, c):
    case = THINKING_CASE
    messages = list(case["messages"])
    r = c.chat.completions.create(**fields(case)).choices[0]
    assert r.message.reasoning_content
    more = {"role": "user", "content": "What is the floor of nodex?"}
    with_it = c.chat.completions.create(**dict(fields(case), messages=messages + [r.message, more])).choices[0]
    without = c.chat.completions.create(**dict(fields(case), messages=messages + [{"role": "assistant", "content": r.message.content}, more])).choices[0]
    expect(with_it.model_extra["prompt_token_ids"], without.model_extra["prompt_token_ids"])
    expect(with_it.message.content, "The floor of nodex is 40.")


def plain_completions_work(d, c):
    case = CASES[16]
    request = dict(GREEDY, model="any", prompt=case["prompt"])
    whole = c.completions.create(**request)
    expect(whole.choices[0].text, case["text"])
    expect("".join(chunk.choices[0].text for chunk in c.completions.create(**request, stream=True)), case["text"])
    expect(c.completions.create(**dict(request, prompt=case["prompt_ids"])).choices[0].text, case["text"])


def a_client_that_leaves_frees_its_slot(d, c):
    before = d.ctl("status")["totals"]["cancelled"]
    stream = c.chat.completions.create(**dict(fields(COUNTING_CASE, ignore_eos=True), max_tokens=40000), stream=True)
    seen = [next(stream) for _ in range(5)]
    expect(d.ctl("status")["slots_used"], 1)
    stream.close()
    for _ in range(3000):
        status = d.ctl("status")
        if status["slots_used"] == 0:
            break
        time.sleep(0.01)
    expect((status["slots_used"], status["totals"]["cancelled"]), (0, before + 1))
    told = d.get(f"/v1/requests/{seen[0].id}")[1]
    expect((told["state"], told["finish_reason"]), ("done", "cancelled"))
    with open(d.log) as log:
        assert any(f"request={told['request']} " in line and "finish=cancelled" in line for line in log), "the journal does not have it"


def many_talk_at_once(d, c):
    async def all_of_them():
        async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=d.api)) as h:
            a = openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="none", max_retries=0, http_client=h)
            return await asyncio.gather(*(a.chat.completions.create(**fields(case)) for case in CASES[10:15]))

    for case, r in zip(CASES[10:15], asyncio.run(all_of_them())):
        expect(raw_text(r.choices[0].message), case["text"])


def smollm2_answers_sensibly(d, c):
    ask = dict(GREEDY, model="any", messages=[{"role": "user", "content": "What is the chemical symbol of gold?"}])
    whole = c.chat.completions.create(**ask)
    assert "is Au." in whole.choices[0].message.content, whole
    text = "".join(chunk.choices[0].delta.content or "" for chunk in c.chat.completions.create(**ask, stream=True))
    expect(text, whole.choices[0].message.content)
    again = c.chat.completions.create(**ask)
    expect(again.usage.prompt_tokens_details.cached_tokens, again.usage.prompt_tokens - 1)


NEEDLE_TESTS = [
    models_are_listed, a_chat_is_answered_as_the_golden_says, a_stream_is_the_whole_answer_to_the_byte, a_tool_is_called_and_its_result_used,
    streamed_tool_calls_merge, no_tools_are_called_when_none_is_chosen, calls_that_must_be_made_are_refused, faults_are_typed_and_name_the_field,
    fields_that_change_nothing_are_accepted, logprobs_are_of_the_tokens, an_answer_ends_where_it_should, usage_tells_what_was_reused,
    requests_have_ids, content_in_parts_and_developers_are_the_same, thinking_is_taken_back, plain_completions_work,
    a_client_that_leaves_frees_its_slot, many_talk_at_once,
]


def run(daemon, tests):
    n_failed = 0
    with daemon as d:
        with client_of(d) as c:
            for test in tests:
                try:
                    test(d, c)
                except Exception:
                    n_failed += 1
                    print(f"FAILED: {test.__name__}")
                    traceback.print_exc(file=sys.stdout)
    return n_failed


def main():
    n, n_failed = len(NEEDLE_TESTS), run(Daemon(), NEEDLE_TESTS)
    if os.path.exists(smollm2()):
        n, n_failed = n + 1, n_failed + run(Daemon(smollm2()), [smollm2_answers_sensibly])
    else:
        print(f"SKIPPED: smollm2_answers_sensibly: there is no {smollm2()}; tests/data/fetch-smollm2 fetches it")
    print(f"openai {openai.__version__}")
    print(f"{n - n_failed} passed, {n_failed} failed")
    return 1 if n_failed else 0


sys.exit(main())
