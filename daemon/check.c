/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/check.h"

#include "daemon/lifecycle.h"
#include "daemon/log.h"
#include "daemon/memory.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "engine/tokenizer.h"
#include "util/err.h"

#include <stdlib.h>

int check_model(const struct options *o, const char *path, FILE *f)
{
    uint64_t available = memory_available("");
    struct tokenizer *t = NULL;
    struct engine_options eo;
    struct engine_plan plan;
    struct model *m = NULL;
    struct err_text e = {""};
    int r;

    r = model_open(path, &m, &e);
    if (r == 0)
        r = tokenizer_new(m->gguf, &t, &e);
    if (r == 0 && tokenizer_doubt(t))
        log_msg(LOG_WARNING, "%s", tokenizer_doubt(t));
    if (r == 0)
        r = memory_plan(m, o, available, &eo, &plan, &e);
    if (r == 0) {
        memory_print(f, m, o, available, &eo, &plan);
        r = model_scan(m, &e);
    }
    if (r == 0)
        (void)fputs("every weight is finite\n", f);
    else
        log_msg(LOG_ERR, "%s", e.s[0] ? e.s : err_str(r));
    tokenizer_free(t);
    model_free(m);
    return r == 0 ? EXIT_SUCCESS : EXIT_CODE_CONFIG;
}
