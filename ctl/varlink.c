/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/varlink.h"

#include "util/err.h"

#include <errno.h>
#include <string.h>

/* --- frames ------------------------------------------------------------------------------------
 */

int varlink_reader_room(struct varlink_reader *r, char **ret, size_t *ret_n)
{
    enum { CHUNK = 16384 };
    int x;

    /* Only an unfinished message is kept, so that moving it costs at most its size per 16 KiB
     * received. */
    if (r->at > 0) {
        buf_consume(&r->in, r->at);
        r->scanned -= r->at;
        r->at = 0;
    }
    if (r->in.len >= VARLINK_MAX_FRAME && r->scanned == r->in.len)
        return ERR_CAPACITY;
    x = buf_reserve(&r->in, CHUNK);
    if (x < 0)
        return x;
    *ret = r->in.data + r->in.len;
    *ret_n = CHUNK;
    return 0;
}

void varlink_reader_received(struct varlink_reader *r, size_t n)
{
    r->in.len += n;
    r->in.data[r->in.len] = '\0';
}

int varlink_reader_put(struct varlink_reader *r, const char *p, size_t n)
{
    return buf_add(&r->in, p, n);
}

int varlink_reader_next(struct varlink_reader *r, const char **ret, size_t *ret_n)
{
    const char *nul;

    if (r->scanned == r->in.len)
        return 0;
    nul = memchr(r->in.data + r->scanned, '\0', r->in.len - r->scanned);
    if (!nul) {
        r->scanned = r->in.len;
        return 0;
    }
    *ret = r->in.data + r->at;
    *ret_n = (size_t)(nul - *ret);
    r->at = r->scanned = (size_t)(nul + 1 - r->in.data);
    return 1;
}

/* --- messages ----------------------------------------------------------------------------------
 */

static int parse_object(const char *frame, size_t n, json_t **ret, struct err_text *e)
{
    json_error_t je;
    json_t *j;

    if (n >= VARLINK_MAX_FRAME)
        return err_set(e, -EBADMSG, "a message of more than %d bytes", VARLINK_MAX_FRAME);
    j = json_loadb(frame, n, JSON_REJECT_DUPLICATES, &je);
    if (!j && json_error_code(&je) == json_error_out_of_memory)
        return err_set(e, -ENOMEM, "out of memory");
    if (!j) {
        char shown[200];

        return err_set(e, -EBADMSG, "not JSON: %s",
                       err_escape(shown, sizeof shown, je.text, strlen(je.text)));
    }
    if (!json_is_object(j)) {
        json_decref(j);
        return err_set(e, -EBADMSG, "not a JSON object");
    }
    *ret = j;
    return 0;
}

/* A boolean member that may be absent.  0, or -EBADMSG for another type. */
static int get_flag(const json_t *message, const char *key, bool *ret, struct err_text *e)
{
    const json_t *j = json_object_get(message, key);

    if (j && !json_is_boolean(j) && !json_is_null(j))
        return err_set(e, -EBADMSG, "\"%s\" is not a boolean", key);
    *ret = json_is_true(j);
    return 0;
}

static int get_parameters(const json_t *message, json_t **ret, struct err_text *e)
{
    json_t *j = json_object_get(message, "parameters");

    if (j && !json_is_object(j) && !json_is_null(j))
        return err_set(e, -EBADMSG, "\"parameters\" is not an object");
    *ret = json_is_object(j) ? j : NULL;
    return 0;
}

int varlink_call_parse(const char *frame, size_t n, struct varlink_call *ret, struct err_text *e)
{
    struct varlink_call c = {0};
    int r;

    r = parse_object(frame, n, &c.message, e);
    if (r < 0)
        return r;
    c.method = json_string_value(json_object_get(c.message, "method"));
    r = c.method ? 0 : err_set(e, -EBADMSG, "no \"method\"");
    if (r == 0)
        r = get_parameters(c.message, &c.parameters, e);
    if (r == 0)
        r = get_flag(c.message, "more", &c.more, e);
    if (r == 0)
        r = get_flag(c.message, "oneway", &c.oneway, e);
    if (r == 0)
        r = get_flag(c.message, "upgrade", &c.upgrade, e);
    if (r == 0 && c.more + c.oneway + c.upgrade > 1)
        r = err_set(e, -EBADMSG, "more than one of \"more\", \"oneway\" and \"upgrade\"");
    if (r < 0) {
        varlink_call_done(&c);
        return r;
    }
    *ret = c;
    return 0;
}

void varlink_call_done(struct varlink_call *c)
{
    json_decref(c->message);
    *c = (struct varlink_call){0};
}

int varlink_reply_parse(const char *frame, size_t n, struct varlink_reply *ret, struct err_text *e)
{
    struct varlink_reply c = {0};
    json_t *error;
    int r;

    r = parse_object(frame, n, &c.message, e);
    if (r < 0)
        return r;
    error = json_object_get(c.message, "error");
    c.error = json_string_value(error);
    if (error && !c.error && !json_is_null(error))
        r = err_set(e, -EBADMSG, "\"error\" is not a string");
    if (r == 0)
        r = get_parameters(c.message, &c.parameters, e);
    if (r == 0)
        r = get_flag(c.message, "continues", &c.continues, e);
    if (r < 0) {
        varlink_reply_done(&c);
        return r;
    }
    *ret = c;
    return 0;
}

void varlink_reply_done(struct varlink_reply *r)
{
    json_decref(r->message);
    *r = (struct varlink_reply){0};
}

static int add_bytes(const char *p, size_t n, void *out)
{
    return buf_add(out, p, n) < 0 ? -1 : 0;
}

/* Takes `message` over; NULL is a failed allocation. */
static int add_message(struct buf *out, json_t *message)
{
    size_t before = out->len;
    int r = -ENOMEM;

    if (message && json_dump_callback(message, add_bytes, out, JSON_COMPACT) == 0)
        r = buf_add(out, "", 1);
    else if (message && out->limit &&
             out->limit - out->len < json_dumpb(message, NULL, 0, JSON_COMPACT))
        r = ERR_CAPACITY;
    json_decref(message);
    if (r < 0 && out->len > before) {
        out->len = before;
        out->data[before] = '\0';
    }
    return r;
}

int varlink_add_call(struct buf *out, const char *method, json_t *parameters, bool more)
{
    return add_message(out, json_pack("{s:s, s:o*, s:o*}", "method", method, "parameters",
                                      parameters, "more", more ? json_true() : NULL));
}

int varlink_add_reply(struct buf *out, json_t *parameters, bool continues)
{
    if (!parameters)
        return -ENOMEM;
    return add_message(out, json_pack("{s:o, s:o*}", "parameters", parameters, "continues",
                                      continues ? json_true() : NULL));
}

int varlink_add_error(struct buf *out, const char *error, const char *key, const char *value)
{
    json_t *parameters = key ? json_pack("{s:s}", key, value) : json_object();

    if (!parameters)
        return -ENOMEM;
    return add_message(out, json_pack("{s:s, s:o}", "error", error, "parameters", parameters));
}
