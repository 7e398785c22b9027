/* SPDX-License-Identifier: Apache-2.0 */
/* Life time of a model: a checked GGUF file, its numbers, its tensors by their role. */
#include "engine/model.h"

#include "engine/model_internal.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <errno.h>
#include <stdlib.h>

int model_from_gguf(struct gguf *g, struct model **ret, struct err_text *e)
{
    CLEANUP(model_freep) struct model *m = calloc(1, sizeof *m);
    const struct family *f;
    int r;

    if (!m)
        return gguf_fail(g, e, -ENOMEM, "out of memory");
    m->gguf = g;
    r = model_read_hparams(m, &f, e);
    if (r >= 0)
        r = model_read_weights(m, f, e);
    if (r < 0) {
        m->gguf = NULL; /* still the caller's */
        return r;
    }
    *ret = TAKE(m);
    return 0;
}

int model_open(const char *path, struct model **ret, struct err_text *e)
{
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    int r;

    r = gguf_open(path, &g, e);
    if (r < 0)
        return r;
    r = model_from_gguf(g, ret, e);
    if (r < 0)
        return r;
    g = NULL;
    return 0;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    gguf_free(m->gguf);
    free(m->layers);
    free(m);
}
