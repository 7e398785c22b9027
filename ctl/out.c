/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/out.h"

#include "util/buf.h"
#include "util/cleanup.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <string.h>

enum { CELLS_MAX = 16 };

/* The columns that text takes on a terminal: code points, near enough for what is shown here. */
static int width(const char *s)
{
    size_t n = strlen(s), len;
    int w = 0;

    for (; n > 0; s += len, n -= len, w++)
        (void)utf8_decode(s, n, &len);
    return w;
}

static const json_t *get(const json_t *answer, const char *path)
{
    const json_t *o = answer;
    char key[64];

    for (;;) {
        size_t n = strcspn(path, ".|");

        if (n >= sizeof key)
            return NULL;
        memcpy(key, path, n);
        key[n] = '\0';
        o = json_object_get(o, key);
        if (path[n] != '.') {
            if (o && !json_is_null(o))
                return o;
            if (path[n] == '\0')
                return NULL;
            o = answer;
        }
        path += n + 1;
    }
}

static void add_bytes(struct buf *b, double v)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t i = 0;

    while (v >= 1024 && i < 4) {
        v /= 1024;
        i++;
    }
    (void)buf_addf(b, i == 0 ? "%.0f %s" : "%.1f %s", v, units[i]);
}

static void add_duration(struct buf *b, uint64_t ms)
{
    uint64_t s = ms / 1000;

    if (s < 60)
        (void)buf_addf(b, "%.1f s", (double)ms / 1000);
    else if (s < 3600)
        (void)buf_addf(b, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
    else if (s < 86400)
        (void)buf_addf(b, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
    else
        (void)buf_addf(b, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s / 3600 % 24);
}

static void add_plain(struct buf *b, const json_t *v)
{
    size_t i;
    json_t *x;

    if (json_is_string(v))
        (void)buf_add(b, json_string_value(v), json_string_length(v));
    else if (json_is_integer(v))
        (void)buf_addf(b, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        (void)buf_addf(b, "%.2f", json_real_value(v));
    else if (json_is_boolean(v))
        (void)buf_addz(b, json_is_true(v) ? "yes" : "no");
    else if (json_is_array(v))
        json_array_foreach(v, i, x)
        {
            if (i > 0)
                (void)buf_addz(b, ", ");
            if (!json_is_array(x))
                add_plain(b, x);
        }
}

/* A field as people read it.  "–" for what the other side does not say or says in another type. */
static void add_value(struct buf *b, const json_t *o, const struct out_field *f)
{
    const json_t *v = get(o, f->path);
    size_t before = b->len;

    if (v && f->kind == OUT_PLAIN)
        add_plain(b, v);
    else if (json_is_number(v) && f->kind == OUT_BYTES)
        add_bytes(b, json_number_value(v));
    else if (json_is_number(v) && f->kind == OUT_MS && json_number_value(v) >= 0 &&
             json_number_value(v) < 1e15)
        add_duration(b, (uint64_t)json_number_value(v));
    else if (json_is_number(v) && f->kind == OUT_PER_S)
        (void)buf_addf(b, "%.1f /s", json_number_value(v));
    else if (json_is_number(v) && f->kind == OUT_PERCENT)
        (void)buf_addf(b, "%.0f %%", json_number_value(v));
    if (b->len == before)
        (void)buf_addz(b, "–");
}

void out_text(FILE *f, const char *s, size_t n)
{
    size_t len;

    for (; n > 0; s += len, n -= len) {
        uint32_t cp = utf8_decode(s, n, &len);
        char raw[4];
        size_t n_raw = utf8_encode(cp, raw);

        if (utf8_is_control(cp) && cp != '\n' && cp != '\t')
            (void)fputc('?', f);
        else
            (void)fwrite(raw, 1, n_raw, f);
    }
}

static void print_json(const struct ctl *c, const json_t *answer)
{
    (void)json_dumpf(answer, c->out, JSON_INDENT(2));
    (void)fputc('\n', c->out);
}

void out_object(const struct ctl *c, const json_t *answer, const struct out_field *fields)
{
    int most = 0;

    if (c->json) {
        print_json(c, answer);
        return;
    }
    for (const struct out_field *f = fields; f->path; f++)
        if (width(f->label) > most)
            most = width(f->label);
    for (const struct out_field *f = fields; f->path; f++) {
        CLEANUP(buf_done) struct buf b = {0};

        if (f->optional && !get(answer, f->path))
            continue;
        add_value(&b, answer, f);
        (void)fprintf(c->out, "%-*s  ", most, f->label);
        out_text(c->out, b.data ? b.data : "", b.len);
        (void)fputc('\n', c->out);
    }
}

static void print_row(const struct ctl *c, const struct buf *cells, size_t n, const int *widths)
{
    for (size_t i = 0; i < n; i++) {
        const char *s = cells[i].data ? cells[i].data : "";

        out_text(c->out, s, cells[i].len);
        if (i + 1 < n)
            (void)fprintf(c->out, "%*s", widths[i] - width(s) + 2, "");
    }
    (void)fputc('\n', c->out);
}

void out_table(const struct ctl *c, const json_t *answer, const char *key,
               const struct out_field *fields)
{
    const json_t *list = json_object_get(answer, key);
    struct buf cells[CELLS_MAX] = {0};
    int widths[CELLS_MAX] = {0};
    size_t n = 0, i;
    json_t *row;

    if (c->json) {
        print_json(c, answer);
        return;
    }
    while (n < CELLS_MAX && fields[n].path)
        n++;
    /* Twice over the rows, once to measure and once to print, rather than keeping all their texts.
     */
    for (int pass = 0; pass < 2; pass++) {
        for (size_t k = 0; k < n; k++) {
            buf_clear(&cells[k]);
            (void)buf_addz(&cells[k], fields[k].label);
            if (width(fields[k].label) > widths[k])
                widths[k] = width(fields[k].label);
        }
        if (pass == 1)
            print_row(c, cells, n, widths);
        json_array_foreach(list, i, row)
        {
            for (size_t k = 0; k < n; k++) {
                int w;

                buf_clear(&cells[k]);
                add_value(&cells[k], row, &fields[k]);
                w = width(cells[k].data ? cells[k].data : "");
                if (w > widths[k])
                    widths[k] = w;
            }
            if (pass == 1)
                print_row(c, cells, n, widths);
        }
    }
    for (size_t k = 0; k < n; k++)
        buf_done(&cells[k]);
}
