/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LOADING -> READY -> STOPPING, or LOADING -> FAILED; SIGTERM may come at any time.  While loading
 * the sockets are open already: health and control answer, completions wait.  In FAILED and
 * STOPPING those that wait get their 503, and the loop turns until nobody is being answered any
 * more, for a bounded time.
 */
#include "daemon/lifecycle.h"

#include "daemon/api_keys.h"
#include "daemon/chat_template.h"
#include "daemon/control.h"
#include "daemon/descriptors.h"
#include "daemon/front.h"
#include "daemon/health.h"
#include "daemon/http.h"
#include "daemon/listeners.h"
#include "daemon/loader.h"
#include "daemon/log.h"
#include "daemon/options.h"
#include "daemon/reload.h"
#include "daemon/reuse.h"
#include "daemon/sched.h"
#include "daemon/server.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "engine/tokenizer.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

static const uint64_t TICK_US = 100000;
static const uint64_t DRAIN_TICK_US = 20000;
static const uint64_t EXTEND_US =
    30000000; /* more time from the manager, as long as something moves */
static const uint64_t GRACE_NS =
    5ull * 1000000000; /* running requests may finish this long after SIGTERM */
static const uint64_t DRAIN_NS = 2ull * 1000000000; /* answers may go out this long */

enum {
    MAX_BODY = 64 << 20, /* a prompt of 1M tokens as ids is some 8 MiB */
    MAX_CONNECTIONS = 1024,
    MAX_QUEUED = 1024,
    FRONT_THREADS = 2,
};

struct lifecycle {
    struct server server;
    struct listeners listeners;
    struct loader *loader; /* owned */
    struct health *health; /* owned */
    sd_event_source *tick; /* owned: progress of loading and of ending */
    const struct lifecycle_argv *argv;
    uint64_t ticks_seen; /* of the loader */
    unsigned int percent_said;
    bool draining;      /* nothing runs any more; answers go out */
    unsigned int quiet; /* turns of the tick without anybody being answered */
    bool cancelled;     /* running requests were told to end */
    uint64_t ending_ns; /* when STOPPING, FAILED or draining began */
    struct lifecycle_result result;
};

static void set_state(struct lifecycle *l, enum server_state state)
{
    l->server.state = state;
    if (l->server.http)
        http_state_changed(l->server.http);
}

static void begin_draining(struct lifecycle *l)
{
    l->draining = true;
    l->quiet = 0;
    l->ending_ns = clock_ns();
}

/* --- loading -----------------------------------------------------------------------------------
 */

/*
 * What answers call the model: the file's own name for it, or else the name of the file.  Both may
 * be anything; the name goes to logs and, a line each, to the service manager.
 */
static void name_model(struct server *s)
{
    const char *slash = strrchr(s->options->model, '/'),
               *file = slash ? slash + 1 : s->options->model;
    struct gguf_str name;
    size_t n;

    if (s->model && gguf_get_str(s->model->gguf, "general.name", &name, NULL) > 0 && name.n > 0 &&
        name.n < sizeof s->model_id && utf8_is_printable(name.s, name.n)) {
        memcpy(s->model_id, name.s, name.n);
        s->model_id[name.n] = '\0';
        return;
    }
    n = strlen(file);
    if (n > 5 && strcmp(file + n - 5, ".gguf") == 0)
        n -= 5;
    if (n >= sizeof s->model_id || !utf8_is_printable(file, n)) {
        file = "model";
        n = strlen(file);
    }
    memcpy(s->model_id, file, n);
    s->model_id[n] = '\0';
}

static void load_failed(struct lifecycle *l, int code, const char *why)
{
    const struct log_field fields[] = {{"MODEL", l->server.options->model}, {NULL, NULL}};

    (void)err_set(&l->server.fail_reason, code, "%s", why);
    log_event(LOG_ERR, LOG_EVENT_LOAD_FAILED, fields, "cannot load the model, ending: %s", why);
    (void)sd_notifyf(0, "STATUS=Cannot load the model: %.400s", why);
    l->result.code = EXIT_CODE_CONFIG;
    set_state(l, SERVER_FAILED);
    begin_draining(l);
}

static void on_loaded(struct loaded *r, void *arg)
{
    struct lifecycle *l = arg;
    struct server *s = &l->server;
    struct sched_options so = {.parallel = s->options->parallel,
                               .max_gap_ms = s->options->max_gap_ms,
                               .max_queued = MAX_QUEUED};
    struct log_field fields[] = {{"MODEL", s->options->model}, {NULL, NULL}};
    struct err_text e;
    int x;

    if (r->status == 0) {
        s->model = r->model;
        s->tokenizer = r->tokenizer;
        s->chat = r->chat;
        s->engine = r->engine;
        s->available = r->available;
    }
    if (s->state == SERVER_STOPPING) {
        begin_draining(l);
        return;
    }
    if (r->status < 0) {
        load_failed(l, r->status, r->error.s);
        return;
    }
    x = reuse_open(s, &e);
    if (x < 0) {
        load_failed(l, x, e.s);
        return;
    }
    reuse_describe(s, &so);
    x = sched_new(s->event, s->engine, s->tokenizer, &so, &s->sched);
    if (x < 0) {
        load_failed(l, x, err_str(x));
        return;
    }
    name_model(s);
    s->created = (int64_t)time(NULL);
    s->load_percent = 100;
    set_state(l, SERVER_READY);
    (void)sd_notifyf(0, "READY=1\nSTATUS=Serving %s, %u slots", s->model_id, s->options->parallel);
    log_event(LOG_NOTICE, LOG_EVENT_READY, fields,
              "ready: model=%s slots=%u context=%u pages=%u isa=%s threads=%u load_ms=%.0f",
              s->model_id, s->options->parallel, engine_limits(s->engine)->context,
              engine_limits(s->engine)->n_units, engine_isa(s->engine), engine_n_threads(s->engine),
              clock_ms_since(s->started_ns));
}

static void loading_tick(struct lifecycle *l)
{
    uint64_t ticks = loader_ticks(l->loader);

    l->server.load_percent = loader_percent(l->loader);
    if (ticks != l->ticks_seen)
        (void)sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%" PRIu64, EXTEND_US);
    l->ticks_seen = ticks;
    if (l->server.load_percent != l->percent_said && l->server.state == SERVER_LOADING)
        (void)sd_notifyf(0, "STATUS=Loading %s: %u %%", l->server.model_id, l->server.load_percent);
    l->percent_said = l->server.load_percent;
}

/* --- ending ------------------------------------------------------------------------------------
 */

static void on_idle(void *arg)
{
    begin_draining(arg);
}

static void begin_stop(struct lifecycle *l, const char *why)
{
    log_event(LOG_NOTICE, LOG_EVENT_STOPPING, NULL, "stopping: %s", why);
    (void)sd_notify(0, "STOPPING=1\nSTATUS=Stopping");
    set_state(l, SERVER_STOPPING);
    /*
     * The manager keeps its sockets: who comes from now on is served by the next process.  Our own
     * end with us, so there the backlog gets its 503.
     */
    if (l->listeners.n_api > 0 && !l->listeners.api[0].is_ours)
        http_quiesce(l->server.http);
    l->ending_ns = clock_ns();
    if (l->server.sched)
        sched_stop(l->server.sched, false, on_idle, l);
    else
        loader_cancel(l->loader); /* on_loaded goes on */
}

static void ending_tick(struct lifecycle *l)
{
    uint64_t since = clock_ns() - l->ending_ns;

    (void)sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%" PRIu64, EXTEND_US);
    if (!l->draining) {
        if (l->server.sched && !l->cancelled && since > GRACE_NS) {
            log_msg(LOG_NOTICE, "requests still run, cancelling them");
            l->cancelled = true;
            sched_stop(l->server.sched, true, on_idle, l);
        }
        return;
    }
    /* Two quiet turns in a row: what was in the sockets' backlog has been accepted and answered. */
    l->quiet =
        http_n_active(l->server.http) + http_n_silent(l->server.http) == 0 ? l->quiet + 1 : 0;
    if (l->quiet >= 2 || since > DRAIN_NS)
        (void)sd_event_exit(l->server.event, 0);
}

static int on_tick(sd_event_source *s, uint64_t usec, void *arg)
{
    struct lifecycle *l = arg;

    switch (l->server.state) {
    case SERVER_LOADING:
        loading_tick(l);
        break;
    case SERVER_READY:
        return 0; /* off until a signal turns it on again */
    case SERVER_FAILED:
    case SERVER_STOPPING:
        ending_tick(l);
        break;
    }
    (void)sd_event_now(sd_event_source_get_event(s), CLOCK_MONOTONIC, &usec);
    (void)sd_event_source_set_time(s, usec + (l->draining ? DRAIN_TICK_US : TICK_US));
    return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

static int on_end_signal(sd_event_source *s, const struct signalfd_siginfo *si, void *arg)
{
    struct lifecycle *l = arg;
    const char *name = si->ssi_signo == SIGINT ? "SIGINT" : "SIGTERM";

    (void)s;
    if (l->server.state == SERVER_STOPPING || l->server.state == SERVER_FAILED) {
        log_msg(LOG_NOTICE, "%s again: ending at once", name);
        l->result.abrupt = 1;
        return sd_event_exit(l->server.event, 0);
    }
    begin_stop(l, name);
    return sd_event_source_set_enabled(l->tick, SD_EVENT_ONESHOT);
}

static int on_reload_signal(sd_event_source *s, const struct signalfd_siginfo *si, void *arg)
{
    struct lifecycle *l = arg;
    const bool is_ready = l->server.state == SERVER_READY;

    (void)s;
    (void)si;
    /* READY=1 ends a reload, so it must not be said before there was a first one. */
    if (is_ready)
        (void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_ns() / 1000);
    reload_run(&l->server, l->argv->argc, l->argv->argv);
    if (is_ready)
        (void)sd_notify(0, "READY=1");
    return 0;
}

/* --- the whole ---------------------------------------------------------------------------------
 */

int lifecycle_prepare(void)
{
    static const struct rlimit no_core = {0, 0};

    (void)umask(077);
    /* A core dump would hold people's prompts.  Sanitizers need to look into their own process. */
    (void)setrlimit(RLIMIT_CORE, &no_core);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
    return signal(SIGPIPE, SIG_IGN) == SIG_ERR ? -errno : 0;
}

/* Before there is a second thread, so that only the loop's signalfd takes them. */
static int block_signals(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    return -pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static int make_sources(struct lifecycle *l)
{
    sd_event *event = l->server.event;
    uint64_t now;
    int r;

    r = sd_event_add_signal(event, NULL, SIGTERM, on_end_signal, l);
    if (r >= 0)
        r = sd_event_add_signal(event, NULL, SIGINT, on_end_signal, l);
    if (r >= 0)
        r = sd_event_add_signal(event, NULL, SIGHUP, on_reload_signal, l);
    if (r >= 0)
        r = sd_event_now(event, CLOCK_MONOTONIC, &now);
    if (r >= 0)
        r = sd_event_add_time(event, &l->tick, CLOCK_MONOTONIC, now, TICK_US / 10, on_tick, l);
    return r;
}

static void log_listener(const struct listener *l)
{
    log_msg(LOG_INFO, "listening: api=%s", l->path);
    if (l->is_remote)
        log_msg(LOG_WARNING,
                "%s can be reached from other machines, and keys and texts cross the network "
                "unencrypted",
                l->path);
}

/* Everything up to the loop: negative with `e` when it cannot begin. */
static int set_up(struct lifecycle *l, struct err_text *e)
{
    struct server *s = &l->server;
    int fds[LISTENERS_MAX], r;
    struct http_options ho = {.fds = fds, .max_body = MAX_BODY};

    /* What another try would not mend. */
    l->result.code = EXIT_CODE_CONFIG;
    r = reload_open_keys(s, e);
    if (r < 0)
        return r;
    r = listeners_open(s->options, &l->listeners, e);
    if (r != -EINVAL)
        l->result.code = EXIT_FAILURE;
    if (r < 0)
        return r;
    s->listeners = &l->listeners;
    for (size_t i = 0; i < l->listeners.n_api; i++)
        fds[ho.n_fds++] = l->listeners.api[i].fd;
    ho.keys = s->keys;
    ho.listen = s->options->listen;
    ho.max_connections = descriptors_reserve(ho.n_fds, MAX_CONNECTIONS);
    if (ho.max_connections < MAX_CONNECTIONS)
        log_msg(LOG_WARNING, "the limit of open files is low: connections=%u of %u per socket",
                ho.max_connections, MAX_CONNECTIONS);

    r = block_signals();
    if (r >= 0)
        r = sd_event_new(&s->event);
    if (r >= 0)
        r = make_sources(l);
    if (r >= 0)
        r = front_new(s->event, FRONT_THREADS, &s->front);
    if (r >= 0)
        r = http_new(s, &ho, &s->http);
    if (r >= 0)
        r = control_new(s, l->listeners.control.fd, &s->control);
    if (r >= 0)
        r = health_new(s, &l->health);
    if (r >= 0)
        r = loader_new(s->event, s->options, on_loaded, l, &l->loader);
    return r < 0 ? err_set(e, r, "cannot set up the server: %s", err_str(r)) : 0;
}

/* In the order of who uses whom; everything may be missing. */
static void tear_down(struct lifecycle *l)
{
    struct server *s = &l->server;

    loader_free(l->loader);
    health_free(l->health);
    if (s->front)
        front_free(s->front);
    if (s->http)
        http_free(s->http);
    control_free(s->control);
    if (s->sched)
        sched_free(s->sched);
    reuse_close(s);
    if (s->engine)
        engine_close(s->engine);
    chat_template_free(s->chat);
    tokenizer_free(s->tokenizer);
    model_free(s->model);
    sd_event_source_disable_unref(l->tick);
    sd_event_unref(s->event);
    api_keys_free(s->keys);
    listeners_close(&l->listeners);
}

struct lifecycle_result lifecycle_run(const struct options *o, const struct lifecycle_argv *argv)
{
    struct lifecycle l = {.argv = argv};
    struct err_text e;
    int r;

    l.server.options = o;
    l.server.started_ns = clock_ns();
    name_model(&l.server);
    r = set_up(&l, &e);
    if (r < 0) {
        log_msg(LOG_ERR, "%s", e.s);
        tear_down(&l);
        return l.result;
    }
    l.result.code = EXIT_SUCCESS;
    for (size_t i = 0; i < l.listeners.n_api; i++)
        log_listener(&l.listeners.api[i]);
    log_msg(LOG_INFO, "listening: control=%s", l.listeners.control.path);

    r = sd_event_loop(l.server.event);
    if (r < 0) {
        log_msg(LOG_ERR, "the event loop failed: %s", err_str(r));
        l.result.code = EXIT_FAILURE;
        l.result.abrupt = 1; /* without a loop what runs cannot be ended in order */
    }
    if (l.result.abrupt) {
        listeners_close(&l.listeners); /* the rest goes with the process */
        return l.result;
    }
    tear_down(&l);
    return l.result;
}
