/* SPDX-License-Identifier: Apache-2.0 */
/* The fake engine itself: what breaks a rule of engine.h ends the process. */
#include "tests/fake_engine_lab.h"

#include <check.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void mounts_pages_of_another_prefix(struct lab *l)
{
    struct lab_stored st, other;

    lab_store(l, l->ids, 64, &st);
    l->ids[5]++;
    lab_store(l, l->ids, 64, &other);
    st.pages[0] = other.pages[0];
    l->ids[5]--;
    (void)lab_mount(l, l->ids, &st);
}

static void mounts_a_checkpoint_of_another_prefix(struct lab *l)
{
    struct lab_stored st, other;

    lab_store(l, l->ids, 64, &st);
    l->ids[5]++;
    lab_store(l, l->ids, 64, &other);
    memcpy(st.ckpt, other.ckpt, sizeof st.ckpt);
    l->ids[5]--;
    (void)lab_mount(l, l->ids, &st);
}

static void mounts_a_checkpoint_of_another_position(struct lab *l)
{
    struct lab_stored st, other;

    lab_store(l, l->ids, 128, &st);
    lab_store(l, l->ids, 64, &other);
    memcpy(st.ckpt, other.ckpt, sizeof st.ckpt);
    (void)lab_mount(l, l->ids, &st);
}

static void mounts_a_checkpoint_in_pieces_of_two(struct lab *l)
{
    struct lab_stored st, other;

    lab_store(l, l->ids, 64, &st);
    l->ids[5]++;
    lab_store(l, l->ids, 64, &other);
    st.ckpt[1] = other.ckpt[1];
    l->ids[5]--;
    (void)lab_mount(l, l->ids, &st);
}

static void mounts_units_that_were_given_away(struct lab *l)
{
    struct lab_stored st;

    lab_store(l, l->ids, 64, &st);
    lab_drop(l, 1, st.pages);
    lab_take(l, 1, st.pages);
    (void)lab_mount(l, l->ids, &st);
}

static void mounts_a_shared_partial_page(struct lab *l)
{
    struct lab_stored st;

    lab_store(l, l->ids, 70, &st);
    units_ref(l->u, st.pages[1]);
    (void)lab_mount(l, l->ids, &st);
}

static void mounts_what_is_still_being_copied(struct lab *l)
{
    struct lab_stored st;

    lab_store(l, l->ids, 128, &st);
    struct transfer t = {.from = st.pages[1]};
    struct job_transfer j = {.job.kind = JOB_COPY, .items = &t, .n_items = 1};
    lab_take(l, 1, &t.unit);
    lab_submit(l, &j.job);
    /* Done is not enough: who has not reaped it cannot know. */
    (void)fake_engine_transfer(l->e);
    st.pages[1] = t.unit;
    (void)lab_mount(l, l->ids, &st);
}

static void exports_a_page_that_a_step_writes(struct lab *l)
{
    uint8_t host[FAKE_UNIT_BYTES];
    struct sequence *s = lab_sequence(l);
    struct lab_step st;

    (void)lab_read_to(l, s, l->ids, 10, 0, NULL);
    lab_step_init(l, &st, s, l->ids, 20, 0, NULL);
    lab_step_submit(l, &st);
    struct transfer t = {.unit = sequence_pages(s)[0], .host = host, .n_tokens = 10};
    struct job_transfer j = {.job.kind = JOB_EXPORT, .items = &t, .n_items = 1};
    lab_submit(l, &j.job);
}

static void writes_a_page_that_is_exported(struct lab *l)
{
    uint8_t host[FAKE_UNIT_BYTES];
    struct sequence *s = lab_sequence(l);
    struct lab_step st;

    (void)lab_read_to(l, s, l->ids, 10, 0, NULL);
    struct transfer t = {.unit = sequence_pages(s)[0], .host = host, .n_tokens = 10};
    struct job_transfer j = {.job.kind = JOB_EXPORT, .items = &t, .n_items = 1};
    lab_submit(l, &j.job);
    lab_step_init(l, &st, s, l->ids, 20, 0, NULL);
    lab_step_submit(l, &st);
}

static void exports_rows_that_nobody_wrote(struct lab *l)
{
    uint8_t host[FAKE_UNIT_BYTES];
    struct lab_stored st;

    lab_store(l, l->ids, 70, &st);
    struct transfer t = {.unit = st.pages[1], .host = host};
    struct job_transfer j = {.job.kind = JOB_EXPORT, .items = &t, .n_items = 1};
    (void)lab_run(l, &j.job);
}

static void imports_into_a_page_of_a_sequence(struct lab *l)
{
    uint8_t host[FAKE_UNIT_BYTES] = {0};
    struct sequence *s = lab_sequence(l);

    (void)lab_read_to(l, s, l->ids, 10, 0, NULL);
    struct transfer t = {.unit = sequence_pages(s)[0], .host = host};
    struct job_transfer j = {.job.kind = JOB_IMPORT, .items = &t, .n_items = 1};
    lab_submit(l, &j.job);
}

static void changes_host_memory_in_flight(struct lab *l)
{
    uint8_t host[FAKE_UNIT_BYTES] = {0};
    struct transfer t = {.host = host};
    struct job_transfer j = {.job.kind = JOB_IMPORT, .items = &t, .n_items = 1};

    lab_take(l, 1, &t.unit);
    lab_submit(l, &j.job);
    host[100] = 1;
    (void)engine_wait(l->e);
}

static void changes_the_units_of_a_capture_in_flight(struct lab *l)
{
    struct sequence *s = lab_sequence(l);
    uint32_t ckpt[LAB_MAX_CKPT];
    struct job_capture c = {.job.kind = JOB_CAPTURE, .seq = s, .units = ckpt};

    lab_take(l, l->o.checkpoint_units, ckpt);
    (void)lab_read_to(l, s, l->ids, 10, 0, NULL);
    lab_submit(l, &c.job);
    (void)fake_engine_run(l->e);
    ckpt[1] = ckpt[0];
    (void)engine_wait(l->e);
}

static void captures_into_units_of_somebody_else(struct lab *l)
{
    struct sequence *s = lab_sequence(l);
    struct lab_stored st;
    struct job_capture c = {.job.kind = JOB_CAPTURE, .seq = s, .units = st.ckpt};

    lab_store(l, l->ids, 10, &st);
    units_ref(l->u, st.ckpt[1]);
    (void)lab_read_to(l, s, l->ids, 10, 0, NULL);
    lab_submit(l, &c.job);
}

static void captures_what_is_released(struct lab *l)
{
    struct sequence *s = lab_sequence(l);
    struct lab_stored st;
    struct job_release rel = {.job.kind = JOB_RELEASE, .seq = s};
    struct job_capture c = {.job.kind = JOB_CAPTURE, .seq = s, .units = st.ckpt};

    lab_take(l, l->o.checkpoint_units, st.ckpt);
    (void)lab_read_to(l, s, l->ids, 10, 0, NULL);
    lab_submit(l, &rel.job);
    lab_submit(l, &c.job);
}

static void captures_nothing(struct lab *l)
{
    struct lab_stored st;
    struct job_capture c = {.job.kind = JOB_CAPTURE, .seq = lab_sequence(l), .units = st.ckpt};

    lab_take(l, l->o.checkpoint_units, st.ckpt);
    lab_submit(l, &c.job);
}

static void overwrites_a_page_that_is_read(struct lab *l)
{
    struct sequence *s = lab_sequence(l);
    uint8_t *bytes;

    (void)lab_read_to(l, s, l->ids, 10, 0, NULL);
    bytes = (uint8_t *)(uintptr_t)fake_engine_unit(l->e, sequence_pages(s)[0]);
    bytes[40] ^= 1;
    (void)lab_read_to(l, s, l->ids, 20, 0, NULL);
}

static void submits_a_job_twice(struct lab *l)
{
    struct transfer t = {.host = NULL};
    struct job_transfer j = {.job.kind = JOB_COPY, .items = &t, .n_items = 1};
    uint32_t units[2];

    lab_take(l, 2, units);
    t.unit = units[0];
    t.from = units[1];
    lab_submit(l, &j.job);
    lab_submit(l, &j.job);
}

/* Each must end the process with these words. */
static const struct {
    void (*fn)(struct lab *l);
    const char *words;
} misuse[] = {
    {mounts_pages_of_another_prefix, "memcmp(&s->x_rows[i], &row"},
    {mounts_a_checkpoint_of_another_prefix, "memcmp(&s->x_state, &truth"},
    {mounts_a_checkpoint_of_another_position, "head.pos == pos"},
    {mounts_a_checkpoint_in_pieces_of_two, "memcmp(unit_bytes(e, units[i])"},
    {mounts_units_that_were_given_away, "memcmp(&s->x_rows[i], &row"},
    {mounts_a_shared_partial_page, "is_private(e, j->pages[i])"},
    {mounts_what_is_still_being_copied, "!has_conflict"},
    {exports_a_page_that_a_step_writes, "!has_conflict"},
    {writes_a_page_that_is_exported, "!has_conflict"},
    {exports_rows_that_nobody_wrote, "&poison"},
    {imports_into_a_page_of_a_sequence, "!is_paged(e, t->unit, NULL)"},
    {changes_host_memory_in_flight, "s->was"},
    {changes_the_units_of_a_capture_in_flight, "s->was"},
    {captures_into_units_of_somebody_else, "is_private(e, units[i])"},
    {captures_what_is_released, "!s->releasing"},
    {captures_nothing, "length > 0"},
    {overwrites_a_page_that_is_read, "memcmp(row_at(e, s, i)"},
    {submits_a_job_twice, "->job != j"},
};
enum { N_MISUSE = sizeof misuse / sizeof misuse[0] };

START_TEST(misuse_ends_the_test)
{
    char said[4096] = "";
    size_t n = 0;
    ssize_t got;
    int fds[2], status;
    pid_t pid;

    ck_assert_int_eq(pipe(fds), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct lab l;

        (void)dup2(fds[1], STDERR_FILENO);
        lab_open(&l, 2);
        misuse[_i].fn(&l);
        _exit(0);
    }
    (void)close(fds[1]);
    while (n < sizeof said - 1 && (got = read(fds[0], said + n, sizeof said - 1 - n)) > 0)
        n += (size_t)got;
    (void)close(fds[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "not ended: %s",
                  misuse[_i].words);
    ck_assert_msg(strstr(said, misuse[_i].words) != NULL, "\"%s\" does not say \"%s\"", said,
                  misuse[_i].words);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fake_engine_misuse");
    TCase *t = tcase_create("misuse");
    SRunner *sr;
    int failed;

    tcase_add_loop_test(t, misuse_ends_the_test, 0, N_MISUSE);
    suite_add_tcase(s, t);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
