/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stratactl's commands about cache and requests, against a control socket in this process.  The
 * command runs in a child, since both sides would wait for each other in one.
 */
#include "ctl/ctl.h"

#include "daemon/api_keys.h"
#include "daemon/control.h"
#include "daemon/decisions.h"
#include "daemon/listeners.h"
#include "daemon/log.h"
#include "daemon/options.h"
#include "daemon/request.h"
#include "daemon/server.h"
#include "tests/hand_cache.h"
#include "util/clock.h"
#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <systemd/sd-event.h>
#include <unistd.h>

static char dir[32];
static struct server server;
static struct options options;
static struct listeners listeners;
static uint64_t now_ns;
static uint64_t root, conversation;
static char said[8192]; /* out, then err, of the last command */

static void no_log(int priority, const char *text, void *arg)
{
    (void)priority;
    (void)text;
    (void)arg;
}

static void set_up(void)
{
    struct decision *x;
    struct err_text e;
    char path[64];

    log_set_sink(no_log, NULL);
    now_ns = 5000000000;
    clock_set_fake(&now_ns);
    (void)strcpy(dir, "/tmp/check_ctl.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/control.sock", dir);
    ck_assert_int_eq(options_init(&options), 0);
    ck_assert_int_eq(listener_bind(path, &listeners.control, &e), 0);
    listeners.n_control = 1;
    server = (struct server){
        .options = &options, .listeners = &listeners, .state = SERVER_READY, .model_id = "m"};
    ck_assert_int_ge(sd_event_new(&server.event), 0);
    ck_assert_int_eq(control_new(&server, listeners.control.fd, &server.control), 0);

    server.cache = hand_cache_new();
    conversation = hand_cache_park(server.cache, 1000, 3, 2, &root, now_ns);
    ck_assert_int_eq(decisions_new(&server.decisions), 0);
    x = decision_new(server.decisions, 7, "cmpl-7", 1000);
    (void)strcpy(x->http_id, "by-client");
    x->n_prompt = 500;
    x->n_read = 500;
    x->n_generated = 12;
    x->is_switch = true;
    x->why = WHY_NOTHING_STORED;
    x->done = true;
    x->finish = FINISH_STOP;
    x->total_ms = 1500;
    decision_unref(x);
    now_ns += 2000000000;
}

static void tear_down(void)
{
    control_free(server.control);
    if (server.cache)
        hand_cache_free(server.cache);
    decisions_free(server.decisions);
    (void)sd_event_unref(server.event);
    listeners_close(&listeners);
    options_done(&options);
    ck_assert_int_eq(rmdir(dir), 0);
}

/* In the child: stdin is `in`. */
static void __attribute__((noreturn)) child(char *words, int in, int out)
{
    char *argv[16] = {"stratactl", "--socket", listeners.control.path}, *save = NULL;
    int argc = 3;
    FILE *f = fdopen(out, "w");

    if (!f || dup2(in, STDIN_FILENO) < 0)
        _exit(99);
    for (char *w = strtok_r(words, " ", &save); w && argc < 16; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    argc = ctl_run(argc, argv, f, f);
    (void)fclose(f);
    _exit(argc);
}

/* Runs "cache list", what it printed in `said`; its exit code.  `in`: its standard input. */
static int run_with(const char *command, int in)
{
    int out[2], status = -1;
    char words[256];
    size_t n = 0;
    pid_t pid;

    (void)snprintf(words, sizeof words, "%s", command);
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        child(words, in, out[1]);
    (void)close(out[1]);
    ck_assert_int_eq(fcntl(out[0], F_SETFL, O_NONBLOCK), 0);
    for (;;) {
        ssize_t got = read(out[0], said + n, sizeof said - 1 - n);

        if (got == 0)
            break;
        if (got > 0)
            n += (size_t)got;
        else
            ck_assert_int_eq(errno, EAGAIN);
        ck_assert_uint_lt(n, sizeof said - 1);
        (void)sd_event_run(server.event, 1000);
    }
    said[n] = '\0';
    (void)close(out[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect(const char *command, int code, const char *want)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC), is = run_with(command, null);

    (void)close(null);
    ck_assert_str_eq(said, want);
    ck_assert_int_eq(is, code);
}

static uint32_t n_entries(void)
{
    uint32_t total;

    ck_assert_int_ge(cache_entries(server.cache, false, NULL, 0, &total), 0);
    return total;
}

START_TEST(lists_are_tables)
{
    struct decision *x;

    ck_assert_uint_eq(root, 1);
    ck_assert_uint_eq(conversation, 2);
    expect("cache list", CTL_OK,
           "ID  KIND          USER  TOKENS  ACTIVE  PINNED  VRAM      RAM  OWN PAGES  CHECKPOINTS "
           " HITS  IDLE\n"
           "2   conversation  1000  192     no      no      12.0 KiB  0 B  1          0           "
           " 0     2.0 s\n"
           "1   root          1000  128     no      no      8.0 KiB   0 B  0          0           "
           " 0     2.0 s\n");
    expect("roots list", CTL_OK,
           "ID  KIND  USER  TOKENS  ACTIVE  PINNED  VRAM     RAM  OWN PAGES  CHECKPOINTS  HITS  "
           "IDLE\n"
           "1   root  1000  128     no      no      8.0 KiB  0 B  0          0            0     "
           "2.0 s\n");
    expect("requests", CTL_OK,
           "REQUEST  USER  STATE  END   PROMPT  REUSED  READ  WRITTEN  SOURCE  SWITCH  HIT  TIME\n"
           "7        1000  done   stop  500     0       500   12       none    yes     no   1.5 "
           "s\n");
    expect("requests --limit 1000", CTL_OK,
           "REQUEST  USER  STATE  END   PROMPT  REUSED  READ  WRITTEN  SOURCE  SWITCH  HIT  TIME\n"
           "7        1000  done   stop  500     0       500   12       none    yes     no   1.5 "
           "s\n");
    x = decision_new(server.decisions, 8, "", API_KEY_UIDS);
    x->key = "alice";
    decision_unref(x);
    expect(
        "requests --limit 1", CTL_OK,
        "REQUEST  USER   STATE    END  PROMPT  REUSED  READ  WRITTEN  SOURCE  SWITCH  HIT  TIME\n"
        "8        alice  waiting  –    0       0       0     0        none    no      no   0.0 "
        "s\n");
}
END_TEST

START_TEST(a_story_is_told_line_by_line)
{
    static const char story[] =
        "request 7 (cmpl-7): 500 tokens of prompt, 0 reused, 500 read, 12 generated\n"
        "a switch and a miss: nothing was found that can be resumed\n"
        "0..500: read: nothing stored begins like this\n"
        "ended (stop) after 1500.0 ms: 0.0 ms waiting, 0.0 ms copying, 0.0 ms reading\n"
        "left no conversation\n";

    expect("explain 7", CTL_OK, story);
    expect("explain cmpl-7", CTL_OK, story);
    expect("explain by-client", CTL_OK, story);
    expect("explain 8", CTL_FAILED,
           "stratactl: there is no request 8 among those that are remembered\n");
}
END_TEST

START_TEST(one_entry_and_the_sums_are_shown)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    ck_assert_int_eq(run_with("cache show 2", null), CTL_OK);
    ck_assert_ptr_nonnull(strstr(said, "tokens            192\n"));
    ck_assert_ptr_nonnull(strstr(said, "pages of its own  1\n"));
    ck_assert_ptr_null(strstr(said, "–")); /* every field is one that the daemon sends */
    ck_assert_int_eq(run_with("cache stats", null), CTL_OK);
    ck_assert_ptr_nonnull(strstr(said, "\nin vram         12.0 KiB\n"));
    ck_assert_ptr_null(strstr(said, "–"));
    (void)close(null);
    expect("cache show 9", CTL_FAILED, "stratactl: there is no entry 9 in the cache\n");
}
END_TEST

START_TEST(what_changes_the_cache_changes_it)
{
    struct cache_entry x;

    expect("roots pin 1", CTL_OK, "");
    ck_assert_int_eq(cache_entry(server.cache, 1, &x), 0);
    ck_assert(x.is_pinned);
    expect("cache evict 1", CTL_FAILED, "stratactl: entry 1 is pinned or in use just now\n");
    expect("roots unpin 1", CTL_OK, "");
    ck_assert_int_eq(cache_entry(server.cache, 1, &x), 0);
    ck_assert(!x.is_pinned);
    expect("--json cache evict 2 --forget", CTL_OK, "{}\n");
    ck_assert_int_eq(cache_entry(server.cache, 2, &x), -ENOENT);
    expect("roots clear --yes", CTL_OK, "roots given up  1\n");
    (void)hand_cache_park(server.cache, 1000, 1, 0, NULL, now_ns);
    expect("cache clear", CTL_OK, "conversations forgotten  1\n"); /* no terminal: nobody to ask */
}
END_TEST

static const struct {
    const char *typed;
    uint32_t left;
} answers[] = {{"n\n", 2}, {"\n", 2}, {"yess\n", 2}, {"\x04", 2}, {"y\n", 0}, {"yes\n", 0}};

START_TEST(a_terminal_is_asked_before_anything_is_cleared)
{
    static const char question[] = "Forget everything that is cached? [y/N] ";
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), in, code;
    const char *typed = answers[_i].typed;

    ck_assert_int_ge(terminal, 0);
    ck_assert_int_eq(grantpt(terminal), 0);
    ck_assert_int_eq(unlockpt(terminal), 0);
    in = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
    ck_assert_int_ge(in, 0);
    ck_assert_int_eq(write(terminal, typed, strlen(typed)), (ssize_t)strlen(typed));
    code = run_with("cache clear", in);
    ck_assert_ptr_eq(strstr(said, question), said);
    ck_assert_str_eq(said + strlen(question), answers[_i].left ? "stratactl: nothing was done\n"
                                                               : "conversations forgotten  1\n");
    ck_assert_int_eq(code, answers[_i].left ? CTL_FAILED : CTL_OK);
    ck_assert_uint_eq(n_entries(), answers[_i].left);
    (void)close(in);
    (void)close(terminal);
}
END_TEST

/* The service manager may pass a TCP socket alone, or first. */
START_TEST(the_api_is_asked_on_its_unix_socket)
{
    (void)strcpy(listeners.api[0].path, "127.0.0.1:8080");
    listeners.n_api = 1;
    expect("complete x", CTL_FAILED, "stratactl: the daemon has no Unix socket for its API\n");
    (void)strcpy(listeners.api[1].path, "no-api.sock");
    listeners.n_api = 2;
    expect("complete x", CTL_NOT_RUNNING,
           "stratactl: strataD is not running: there is no no-api.sock\n");
    listeners.n_api = 0;
}
END_TEST

START_TEST(json_is_the_whole_answer)
{
    expect("--json cache clear --yes", CTL_OK, "{\n  \"conversations\": 1\n}\n");
    expect("--json cache list", CTL_OK, "{\n  \"total\": 0,\n  \"entries\": []\n}\n");
}
END_TEST

static const struct {
    const char *command, *words;
} wrong[] = {
    {"cache show", "the number of an entry is missing; \"stratactl cache list\" shows them"},
    {"cache show x", "\"x\" is not the number of an entry; \"stratactl cache list\" shows them"},
    {"cache show 0", "\"0\" is not the number of an entry; \"stratactl cache list\" shows them"},
    {"cache show 1 2", "unexpected argument \"2\""},
    {"cache list 1", "unexpected argument \"1\""},
    {"cache evict 1 --yes", "unknown option --yes; stratactl(1) lists them"},
    {"cache clear --forget", "unknown option --forget; stratactl(1) lists them"},
    {"roots pin", "the number of an entry is missing; \"stratactl cache list\" shows them"},
    {"roots", "\"roots\" needs a verb; try \"roots unpin\""},
    {"cache lst", "\"cache\" has no \"lst\"; try \"cache clear\""},
    {"requests 5", "unexpected argument \"5\""},
    {"requests --limit", "--limit needs a value"},
    {"requests --limit 0", "--limit takes a number from 1 to 1000, not \"0\""},
    {"explain", "a request's number, the id in its answer, or its X-Request-Id, is missing; "
                "\"stratactl requests\" shows the numbers"},
    {"explain 1 2", "unexpected argument \"2\""},
};

START_TEST(a_command_line_without_sense_is_refused)
{
    char want[256];

    (void)snprintf(want, sizeof want, "stratactl: %s\n", wrong[_i].words);
    expect(wrong[_i].command, CTL_USAGE, want);
}
END_TEST

START_TEST(without_a_cache_it_says_so)
{
    hand_cache_free(server.cache);
    server.cache = NULL;
    expect("cache list", CTL_FAILED, "stratactl: there is no cache: the setting cache is false\n");
}
END_TEST

START_TEST(who_may_not_is_told_who_may)
{
    if (geteuid() != 0) {
        (void)fputs("SKIPPED: a client of another user needs root\n", stderr);
        return;
    }
    /* A stranger, to whom the socket was given so that he gets that far. */
    ck_assert_int_eq(chown(listeners.control.path, 4711, 4711), 0);
    ck_assert_int_eq(chown(dir, 4711, 4711), 0);
    if (fork() == 0) {
        char *argv[] = {"stratactl", "--socket", listeners.control.path, "cache", "clear", "--yes"};

        if (setgid(4711) < 0 || setuid(4711) < 0)
            _exit(99);
        _exit(ctl_run(6, argv, stdout, stderr));
    }
    for (;;) {
        int status;

        (void)sd_event_run(server.event, 1000);
        if (waitpid(-1, &status, WNOHANG) <= 0)
            continue;
        ck_assert(WIFEXITED(status));
        ck_assert_int_eq(WEXITSTATUS(status), CTL_PERMISSION);
        break;
    }
    ck_assert_uint_eq(n_entries(), 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ctl");
    TCase *t = tcase_create("ctl");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, lists_are_tables);
    tcase_add_test(t, a_story_is_told_line_by_line);
    tcase_add_test(t, one_entry_and_the_sums_are_shown);
    tcase_add_test(t, what_changes_the_cache_changes_it);
    tcase_add_loop_test(t, a_terminal_is_asked_before_anything_is_cleared, 0,
                        sizeof answers / sizeof answers[0]);
    tcase_add_test(t, the_api_is_asked_on_its_unix_socket);
    tcase_add_test(t, json_is_the_whole_answer);
    tcase_add_loop_test(t, a_command_line_without_sense_is_refused, 0,
                        sizeof wrong / sizeof wrong[0]);
    tcase_add_test(t, without_a_cache_it_says_so);
    tcase_add_test(t, who_may_not_is_told_who_may);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
