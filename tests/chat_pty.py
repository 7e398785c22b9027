#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stratactl chat and complete as people use them: keys at a pseudo terminal, pipes, a daemon that fails in the middle; and a
conversation with the real daemon, whose second turn reuses the first."""
import os
import signal
import stat
import subprocess
import termios
import threading

from chat_lab import CTL, Fake, Terminal, piped, wait_until
from daemon_lab import Daemon


def check(is_so, *what):
    if not is_so:
        raise AssertionError(repr(what))


def test_turns_are_sent_whole_and_thinking_goes_back(f):
    f.script += [f.answer("Hel", "lo.", reasoning="They greet."), f.answer("Again.")]
    t = Terminal(f.argv + ["--system", "Be brief.", "--think", "--seed", "7", "--max-tokens", "9"], f.env)
    t.expect("> ")
    shown = t.say("Hi")
    check("\x1b[2mThey greet.\r\n\x1b[0m\r\nHello.\r\n" in shown, shown)
    check("[12 read, 18 reused, 5 generated, 41.2 tokens/s]" in shown, shown)
    check("Again." in t.say("Hi again"))
    check(t.quit() == 0)
    first, second = f.asked
    check(first["stream"] and first["stream_options"] == {"include_usage": True}, first)
    check((first["enable_thinking"], first["seed"], first["max_tokens"]) == (True, 7, 9), first)
    check(first["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], first)
    check(second["messages"] == first["messages"] + [{"role": "assistant", "content": "Hello.", "reasoning_content": "They greet."},
                                                     {"role": "user", "content": "Hi again"}], second)


def test_the_model_cannot_steer_the_terminal(f):
    f.script += [f.answer("a\x1b]0;title\x07b", "\u009b31mc\td\ne\r\x7f é漢字🦉"), f.refuse("the template: \x1b]0;é\x07")]
    t = Terminal(f.argv, f.env)
    t.expect("> ")
    shown = t.say("x")
    check("a?]0;title?b?31mc\td\r\ne?? é漢字🦉\r\n" in shown, shown)
    shown = t.say("y")
    check("stratactl: the template: ?]0;é?\r\n" in shown, shown)
    check(t.quit() == 0)


def test_ctrl_c_stops_the_answer_and_keeps_what_came(f):
    f.script += [f.begin("Once upon"), f.answer("Fine.")]
    t = Terminal(f.argv, f.env)
    t.expect("> ")
    t.send("Tell\r")
    t.expect("Once upon")
    t.send(b"\x03")
    check("[stopped]" in t.prompt())
    check(f.left.wait(100), "the daemon was not left")
    check("Fine." in t.say("Go on"))
    check(f.messages() == [("user", "Tell"), ("assistant", "Once upon"), ("user", "Go on")], f.messages())
    check(t.quit() == 0)


def test_ctrl_c_before_an_answer_takes_the_question_back(f):
    f.script += [f.begin(), f.answer("Yes."), f.answer("Other.")]
    t = Terminal(f.argv, f.env)
    t.expect("> ")
    t.send("Well?\r")
    wait_until(lambda: len(f.asked) == 1)
    t.send(b"\x03")
    check("[no answer; /retry asks again]" in t.prompt())
    check("Yes." in t.say("/retry"))
    check(f.messages() == [("user", "Well?")], f.messages())
    check("Other." in t.say("Hm"))
    check(f.messages() == [("user", "Well?"), ("assistant", "Yes."), ("user", "Hm")], f.messages())
    check(t.quit() == 0)


def test_a_daemon_that_fails_loses_no_conversation(f):
    f.script += [f.answer("One."), f.begin("Tw", then=lambda c: None), f.refuse("the prompt has 9 tokens; the context is 8"),
                 f.begin("Tw", then=lambda c: c.sendall(b'data: {"error":{"message":"the engine broke"}}\n\n')), f.answer("Three.")]
    t = Terminal(f.argv, f.env)
    t.expect("> ")
    t.say("1")
    shown = t.say("2")
    check("Tw\r\nstratactl: the answer ends too early\r\n[no answer; /retry asks again]" in shown, shown)
    check("stratactl: the prompt has 9 tokens; the context is 8" in t.say("/retry"))
    check("stratactl: the engine broke" in t.say("/retry"))
    f.close()
    check("strataD is not running" in t.say("/retry"))
    f.open()
    check("Three." in t.say("/retry"))
    check(f.messages() == [("user", "1"), ("assistant", "One."), ("user", "2")], f.messages())
    check(t.quit() == 0)


def test_commands(f):
    f.script += [f.answer("1."), f.answer("2."), f.answer("2b."), f.answer("3."), f.answer("4.")]
    t = Terminal(f.argv, f.env)
    t.expect("> ")
    check("There is no question yet" in t.say("/retry") and "There is no answer yet" in t.say("/undo"))
    t.say("one")
    t.say("two")
    check("2b." in t.say("/retry") and f.messages() == f.messages(1))
    check("There is no /nonsense; /help" in t.say("/nonsense x") and len(f.asked) == 3)
    check("/undo takes nothing more" in t.say("/undo 2"))
    check("forgotten" in t.say("/undo"))
    check("is set" in t.say("/system Be  kind."))
    check("Thinking is off" in t.say("/think off") and "is on" in t.say("/think") and "/think takes" in t.say("/think 3"))
    t.say("//three")
    check(f.messages() == [("system", "Be  kind."), ("user", "one"), ("assistant", "1."), ("user", "/three")], f.messages())
    check(f.asked[-1]["enable_thinking"] is True)
    check("A new conversation" in t.say("/clear") and "no system message" in t.say("/system"))
    help_text = t.say("/help")
    check(all(x in help_text for x in ("/retry", "/undo", "/clear", "/system", "/think", "/help", "/quit")), help_text)
    t.say("  ")
    t.say("four")
    check(f.messages() == [("user", "four")], f.messages())
    t.send("/quit\r")
    check(t.end() == 0)


def test_lines_are_edited(f):
    f.script += [f.answer("ok")] * 6
    t = Terminal(f.argv, {**f.env, "LC_ALL": "C"})  # UTF-8 all the same
    t.expect("> ")
    t.resize(10, 30)
    t.send("dropped\x03")
    check("^C" in t.prompt())
    t.say("héllo wörld\x1b[D\x1b[D\x7fX漢\x01>")  # left, left, rubout; to the beginning
    check(f.messages() == [("user", ">héllo wöX漢ld")], f.messages())
    t.say("one \\\rtwo\x1b\rthree")
    check(f.messages()[-1] == ("user", "one \ntwo\nthree"), f.messages())
    t.say("\x1b[A")
    check(f.messages()[-1] == ("user", "one \ntwo\nthree"), f.messages())
    t.say("\x12llo w\r")  # search backwards
    check(f.messages()[-1] == ("user", ">héllo wöX漢ld"), f.messages())
    check(t.quit() == 0)
    path = os.path.join(f.env["XDG_STATE_HOME"], "strata", "chat_history")
    check(stat.S_IMODE(os.stat(path).st_mode) == 0o600 and stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700)
    with open(path) as h:
        check(len(h.readlines()) == 3, "the history has what was typed twice only once")
    t = Terminal(f.argv, f.env)
    t.expect("> ")
    t.say("\x1b[A\x1b[A")
    check(f.messages() == [("user", "one \ntwo\nthree")], f.messages())
    check(t.quit() == 0)


def test_pasted_text_is_one_message(f):
    f.script += [f.answer("ok")] * 2
    lines = "\n".join(f"{i} pasted é" for i in range(400))
    t = Terminal(f.argv, f.env)
    t.expect("\x1b\\[\\?2004h.*> ")
    t.say("See: \x1b[200~a\rb\r\nc\x1b]0;t\x07\td\x1b[20\x1b[201~ end")
    check(f.messages()[-1] == ("user", "See: a\nb\nc]0;t\td[20 end"), f.messages())
    t.say("\x1b[200~" + lines.replace("\n", "\r") + "\x1b[201~")
    check(f.messages()[-1] == ("user", lines), f.messages()[-1])
    check(t.quit() == 0)
    check(t.text.rstrip().endswith(b"\x1b[?2004l"), t.text[-40:])


def test_what_is_typed_during_an_answer_waits(f):
    typed = threading.Event()

    def then(c):
        typed.wait(100)
        f.delta(c, content=" thought")
        c.sendall(b"data: [DONE]\n\n")
    t = Terminal(f.argv, f.env)
    f.script += [f.begin("A", then=then), f.answer("ok")]
    t.expect("> ")
    t.send("Go\r")
    t.expect("A$")
    t.send("next\r")
    typed.set()
    t.expect("^ thought\r\n> next\r\nok\r\n")
    t.prompt()
    check(f.messages() == [("user", "Go"), ("assistant", "A thought"), ("user", "next")], f.messages())
    check(t.quit() == 0)


def test_the_terminal_is_left_as_it_was(f):
    for number in (signal.SIGTERM, signal.SIGHUP):
        t = Terminal(f.argv, f.env)
        t.expect("> ")
        check(termios.tcgetattr(t.fd) != t.usual, "edited without raw mode")
        os.kill(t.pid, number)
        while t.more():
            pass
        status = os.waitpid(t.pid, 0)[1]
        check(os.WIFSIGNALED(status) and os.WTERMSIG(status) == number, status)
        check(t.text.endswith(b"\x1b[?2004l"), t.text)
        os.close(t.fd)
    f.script.append(f.begin("A"))
    t = Terminal(f.argv, f.env)
    t.expect("> ")
    t.send("half")
    t.expect("half")
    t.send(b"\x1a")
    check(os.WIFSTOPPED(os.waitpid(t.pid, os.WUNTRACED)[1]))
    check(termios.tcgetattr(t.fd)[:4] == t.usual[:4], "stopped in raw mode")
    os.kill(t.pid, signal.SIGCONT)
    t.expect("half")
    t.send(" a\r")
    t.expect("A$")
    check(f.messages() == [("user", "half a")], f.messages())
    os.kill(t.pid, signal.SIGTERM)
    check(os.WTERMSIG(t.end()) == signal.SIGTERM)


def test_pipes_get_the_answer_alone(f):
    f.script += [f.answer("It\x1b is.", "\n", reasoning="Hm."), f.answer("Cut", finish="length"), f.refuse("no"), f.begin("Half", then=lambda c: None)]
    r = piped(f.argv, f.env, "from\nstdin\n")
    check((r.returncode, r.stdout, r.stderr) == (0, b"It\x1b is.\n", b""), r)
    check(f.messages() == [("user", "from\nstdin")], f.messages())  # a text file's last newline ends its last line
    r = piped(f.argv + ["--usage", "--", "-x"], f.env)
    check((r.returncode, r.stdout) == (0, b"Cut\n"), r)
    check(r.stderr == b"[12 read, 18 reused, 5 generated, 41.2 tokens/s; cut at the limit of tokens]\n", r)
    r = piped(f.argv + ["x"], f.env)
    check((r.returncode, r.stdout, r.stderr) == (1, b"", b"stratactl: no\n"), r)
    r = piped(f.argv + ["x"], f.env)
    check((r.returncode, r.stdout, r.stderr) == (1, b"Half\n", b"stratactl: the answer ends too early\n"), r)
    for words in (["--bad"], ["--system"], ["--max-tokens", "x"], ["a", "b"], [""], ["--system", b"\xff"], [b"\xff"], []):
        r = piped(f.argv + words, f.env, "\n")
        check(r.returncode == 2 and r.stdout == b"" and r.stderr.startswith(b"stratactl: "), words, r)
    f.close()
    check(piped(f.argv + ["x"], f.env).returncode == 3)
    f.open()


def test_a_full_disk_is_no_success(f):
    f.script.append(f.answer("Hello."))
    with open("/dev/full", "w") as full:
        p = subprocess.run(f.argv + ["Hi"], stdout=full, stderr=subprocess.PIPE, env={**os.environ, **f.env}, timeout=100)
    check((p.returncode, p.stderr) == (1, b"stratactl: cannot write the output\n"), p)


def test_one_question_at_a_terminal_ends_by_ctrl_c(f):
    f.script.append(f.begin("A"))
    t = Terminal(f.argv + ["x"], f.env)
    t.expect("A$")
    t.send(b"\x03")
    check(os.WTERMSIG(t.end()) == signal.SIGINT)
    t = Terminal(f.argv + ["-"], f.env)
    wait_until(lambda: open(f"/proc/{t.pid}/comm").read() == "stratactl\n")
    t.send(b"typed\x03")
    check(os.WTERMSIG(t.end()) == signal.SIGINT and len(f.asked) == 1)


def test_a_dumb_terminal_gets_no_escapes(f):
    f.script.append(f.answer("Hello.", reasoning="Hm."))
    t = Terminal(f.argv, {**f.env, "TERM": "dumb"})
    t.expect("> ")
    check("[thinking]\r\nHm.\r\n[/thinking]\r\n\r\nHello.\r\n[12 read" in t.say("Hi"))
    check(t.quit() == 0 and b"\x1b" not in t.text, t.text)


def test_the_second_turn_reuses_the_first():
    with Daemon() as d:
        env = {"XDG_STATE_HOME": d.dir, "HOME": d.dir}
        argv = [CTL, "--socket", d.control, "chat", "--no-think", "--temperature", "0", "--max-tokens", "60"]
        t = Terminal(argv, env)
        t.expect("> ")
        check("I have 1 notes." in t.say("Remember these notes.\\\rfisefix has the city Lyon."))
        shown = t.say("I need the city of fisefix, please.")
        check("The city of fisefix is Lyon." in shown and "[35 read, 18 reused, 11 generated" in shown, shown)
        check(t.quit() == 0)
        r = piped(argv + ["Remember these notes.\nfisefix has the city Lyon."], env)
        check((r.returncode, r.stdout, r.stderr) == (0, b"I have 1 notes.\n", b""), r)
        r = piped([CTL, "--socket", d.control, "complete", "--max-tokens", "4", "--temperature", "0"], env, "Remember")
        check(r.returncode == 0 and len(r.stdout) > 1 and r.stdout.endswith(b"\n") and r.stderr == b"", r)

        # So hot that an end does not come: only Ctrl-C stops it, in the daemon too.
        t = Terminal(argv[:4] + ["--temperature", "100", "--seed", "1"], env)
        t.expect("> ")
        for _ in range(2):
            t.send("Talk\r")
            t.expect("Talk\r\n.{20}")
            t.send(b"\x03")
            check("[stopped]" in t.prompt())
            wait_until(lambda: d.get("/v1/requests")[1]["data"][0]["finish_reason"] == "cancelled")
        check(t.quit() == 0)


if __name__ == "__main__":
    for name, test in [x for x in globals().items() if x[0].startswith("test_")]:
        try:
            if test.__code__.co_argcount:
                with Fake() as fake:
                    test(fake)
            else:
                test()
        except BaseException:
            print(f"check_chat: {name} failed", flush=True)
            raise
        print(f"check_chat: {name} passed")
