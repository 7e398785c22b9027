/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/reload.h"

#include "daemon/api_keys.h"
#include "daemon/log.h"
#include "daemon/options.h"
#include "daemon/reuse.h"
#include "daemon/server.h"
#include "util/err.h"

static void log_keys(const struct api_keys *k)
{
    log_msg(LOG_INFO, "API keys read: keys=%u", api_keys_n(k));
    if (api_keys_n_short(k) > 0)
        log_msg(LOG_WARNING, "%u API keys are shorter than %d characters and can be guessed",
                api_keys_n_short(k), API_KEY_GOOD_BYTES);
}

int reload_open_keys(struct server *s, struct err_text *e)
{
    struct err_text why;
    int r;

    if (!s->options->api_key_file)
        return 0;
    r = api_keys_open(s->options->api_key_file, &s->keys, &why);
    if (r < 0)
        return err_set(e, r, "\"api_key_file\": %s", why.s);
    log_keys(s->keys);
    return 0;
}

static void apply_reloaded(const struct options *old, const struct options *fresh)
{
    const struct option_spec *spec;

    for (size_t i = 0; (spec = options_spec(i)) != NULL; i++)
        if (!(spec->flags & OPTION_RELOADABLE) && !options_equal(spec, old, fresh))
            log_msg(LOG_WARNING, "\"%s\" has changed; it takes effect at the next start",
                    spec->name);
    log_set_level(log_level_of(fresh->log_level));
}

static void reload_options(struct server *s, int argc, char **argv)
{
    struct options_argv asked;
    struct options fresh;
    struct err_text e;
    int r = options_init(&fresh);

    if (r == 0)
        r = options_read_argv(&fresh, argc, argv, &asked, &e);
    else
        (void)err_set(&e, r, "%s", err_str(r));
    if (r < 0) {
        log_msg(LOG_ERR, "the new configuration is refused, the old one stays: %s", e.s);
    } else {
        apply_reloaded(s->options, &fresh);
        reuse_apply(s, &fresh);
        log_event(LOG_NOTICE, LOG_EVENT_RELOADED, NULL, "configuration read again");
    }
    options_done(&fresh);
}

/* The file may have changed although its name has not; who is refused now is refused at once. */
static void reload_keys(struct api_keys *k)
{
    struct err_text e;

    if (!k)
        return;
    if (api_keys_reload(k, &e) < 0)
        log_msg(LOG_ERR, "\"api_key_file\": the new keys are refused, the old ones stay: %s", e.s);
    else
        log_keys(k);
}

void reload_run(struct server *s, int argc, char **argv)
{
    reload_options(s, argc, argv);
    reload_keys(s->keys);
}
