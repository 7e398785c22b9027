/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/loader.h"

#include "daemon/chat_template.h"
#include "daemon/log.h"
#include "daemon/memory.h"
#include "daemon/options.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "engine/tokenizer.h"
#include "util/mailbox.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <systemd/sd-event.h>

struct loader {
    const struct options *options; /* borrowed */
    void (*done)(struct loaded *l, void *arg);
    void *arg;
    struct mailbox box; /* the thread's last word */
    struct mail mail;
    sd_event_source *source; /* owned */
    pthread_t thread;
    bool joined;
    atomic_bool cancel;
    atomic_uint percent;
    _Atomic uint64_t ticks;
    struct loaded result; /* the thread's until the mail is put */
};

static void free_loaded(struct loaded *l)
{
    if (l->engine)
        engine_close(l->engine);
    chat_template_free(l->chat);
    tokenizer_free(l->tokenizer);
    model_free(l->model);
    l->engine = NULL;
    l->chat = NULL;
    l->tokenizer = NULL;
    l->model = NULL;
}

static int reached(struct loader *l, unsigned int percent)
{
    atomic_store(&l->percent, percent);
    atomic_fetch_add(&l->ticks, 1);
    return atomic_load(&l->cancel) ? -ECANCELED : 0;
}

/*
 * Brings the weights into memory, so that READY means speed too and the percent means something.
 * Only an advice: where the kernel cannot, or memory is too small for them, the first requests read
 * them instead.
 */
static int read_weights(struct loader *l, const struct model *m, uint64_t available)
{
    enum { STEP = 16 << 20 };
    uint64_t total = gguf_file_bytes(m->gguf), done = 0;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int r;

    if (total > available)
        return 0;
    for (uint64_t i = 0; i < gguf_n_tensors(m->gguf); i++) {
        const struct tensor *t = gguf_tensor_at(m->gguf, i);

        for (uint64_t at = 0; at < t->n_bytes; at += STEP) {
            uint64_t n = t->n_bytes - at < STEP ? t->n_bytes - at : STEP;
            uintptr_t from = ((uintptr_t)t->data + at) & ~(page - 1);

            (void)madvise((void *)from, (uintptr_t)t->data + at + n - from, MADV_POPULATE_READ);
            done += n;
            r = reached(l, 10 + (unsigned int)(85 * done / (total ? total : 1)));
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static void warn_about(const struct options *o, const struct model *m,
                       const struct engine_options *eo, const struct engine_plan *plan,
                       uint64_t available)
{
    uint64_t tokens = (uint64_t)plan->n_units * ENGINE_PAGE_TOKENS;

    if (o->context > m->hp.n_context)
        log_msg(
            LOG_WARNING,
            "context is more than the model was made for, answers may be poor: context=%u model=%u",
            o->context, m->hp.n_context);
    if (eo->pool_bytes > available)
        log_msg(LOG_WARNING, "vram_mib is more than what is free: vram_mib=%u free_mib=%" PRIu64,
                o->vram_mib, available >> 20);
    if (tokens < plan->context)
        log_msg(LOG_WARNING,
                "the pool holds less than one sequence of full length: pool_tokens=%" PRIu64
                " context=%u",
                tokens, plan->context);
}

static int load(struct loader *l, struct loaded *r)
{
    uint64_t available = memory_available("");
    struct engine_options eo;
    struct engine_plan plan;
    int x;

    r->available = available;
    x = model_open(l->options->model, &r->model, &r->error);
    if (x == 0)
        x = reached(l, 5);
    if (x == 0)
        x = tokenizer_new(r->model->gguf, &r->tokenizer, &r->error);
    if (x == 0 && tokenizer_doubt(r->tokenizer))
        log_msg(LOG_WARNING, "%s", tokenizer_doubt(r->tokenizer));
    if (x == 0)
        x = chat_template_new(r->model->gguf, r->tokenizer, &r->chat);
    if (x == 0 && r->chat && chat_template_fault(r->chat))
        log_msg(LOG_WARNING, "the model's chat template cannot be used, chats are refused: %s",
                chat_template_fault(r->chat));
    if (x == 0)
        x = memory_plan(r->model, l->options, available, &eo, &plan, &r->error);
    if (x < 0)
        return x;
    warn_about(l->options, r->model, &eo, &plan, available);
    x = reached(l, 10);
    if (x == 0)
        x = read_weights(l, r->model, available);
    if (x == 0)
        x = reached(l, 95);
    if (x == 0)
        x = engine_open(r->model, &eo, &r->engine, &r->error);
    if (x == 0)
        x = reached(l, 100);
    return x;
}

static void *loader_main(void *arg)
{
    struct loader *l = arg;

    l->result.status = load(l, &l->result);
    if (l->result.status < 0) {
        if (l->result.error.s[0] == '\0')
            (void)err_set(&l->result.error, 0, "%s", err_str(l->result.status));
        free_loaded(&l->result);
    }
    mailbox_put(&l->box, &l->mail);
    return NULL;
}

static int on_done(sd_event_source *s, int fd, uint32_t revents, void *arg)
{
    struct loader *l = arg;
    struct loaded r;

    (void)fd;
    (void)revents;
    if (!mailbox_take(&l->box))
        return 0;
    (void)sd_event_source_set_enabled(s, SD_EVENT_OFF);
    (void)pthread_join(l->thread, NULL);
    l->joined = true;
    r = l->result;
    l->result = (struct loaded){0};
    l->done(&r, l->arg);
    return 0;
}

int loader_new(sd_event *event, const struct options *o, void (*done)(struct loaded *l, void *arg),
               void *arg, struct loader **ret)
{
    struct loader *l = calloc(1, sizeof *l);
    int r;

    if (!l)
        return -ENOMEM;
    l->options = o;
    l->done = done;
    l->arg = arg;
    r = mailbox_init(&l->box);
    if (r < 0) {
        free(l);
        return r;
    }
    r = sd_event_add_io(event, &l->source, l->box.fd, EPOLLIN, on_done, l);
    if (r >= 0)
        r = -pthread_create(&l->thread, NULL, loader_main, l);
    if (r < 0) {
        sd_event_source_disable_unref(l->source);
        mailbox_done(&l->box);
        free(l);
        return r;
    }
    *ret = l;
    return 0;
}

void loader_cancel(struct loader *l)
{
    atomic_store(&l->cancel, true);
}

void loader_free(struct loader *l)
{
    if (!l)
        return;
    if (!l->joined) {
        loader_cancel(l);
        (void)pthread_join(l->thread, NULL);
        (void)mailbox_take(&l->box);
        free_loaded(&l->result);
    }
    sd_event_source_disable_unref(l->source);
    mailbox_done(&l->box);
    free(l);
}

unsigned int loader_percent(const struct loader *l)
{
    return atomic_load(&l->percent);
}

uint64_t loader_ticks(const struct loader *l)
{
    return atomic_load(&l->ticks);
}
