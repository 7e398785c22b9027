/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket's bytes: cut into frames in two ways, then parsed from both sides; and the
 * HTTP parser of stratactl. */
#include "ctl/http_client.h"
#include "ctl/varlink.h"
#include "util/err.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
    if (!ok)
        abort();
}

static void parse(const char *frame, size_t n)
{
    struct varlink_call c;
    struct varlink_reply r;

    if (varlink_call_parse(frame, n, &c, NULL) == 0) {
        must(c.method != NULL && c.more + c.oneway + c.upgrade <= 1);
        varlink_call_done(&c);
    }
    if (varlink_reply_parse(frame, n, &r, NULL) == 0)
        varlink_reply_done(&r);
}

/* All frames one after the other, received in pieces of `step` bytes. */
static void cut(const char *s, size_t size, size_t step, struct buf *ret)
{
    struct varlink_reader in = {0};
    const char *frame;
    size_t n;

    for (size_t at = 0; at < size; at += step) {
        must(varlink_reader_put(&in, s + at, size - at < step ? size - at : step) == 0);
        while (varlink_reader_next(&in, &frame, &n)) {
            parse(frame, n);
            must(buf_add(ret, frame, n + 1) == 0);
        }
    }
    buf_done(&in.in);
}

static void answer(const char *s, size_t size, size_t step, struct buf *ret, int *ret_state)
{
    struct http_client p = {.in.limit = 4096};
    int r = 0;

    for (size_t at = 0; at < size && r == 0; at += step)
        r = http_client_put(&p, s + at, size - at < step ? size - at : step, ret, NULL);
    *ret_state = r == 0 ? (int)p.state : -1;
    buf_done(&p.in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *s = (const char *)data;
    size_t step = size > 0 ? 1 + data[0] % 7 : 1;
    struct buf a = {0}, b = {0};
    int state_a, state_b;

    cut(s, size, size + 1, &a);
    cut(s, size, step, &b);
    must(a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0));
    buf_clear(&a);
    buf_clear(&b);
    answer(s, size, size + 1, &a, &state_a);
    answer(s, size, step, &b, &state_b);
    must(state_a == state_b);
    must(state_a < 0 || (a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0)));
    buf_done(&a);
    buf_done(&b);
    return 0;
}
