/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration file: any bytes.  What is taken can be taken again; what is refused says why
 * and changes nothing. */
#include "daemon/config.h"
#include "daemon/options.h"
#include "util/err.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct option_spec *spec;
    struct options a, b;
    struct err_text e = {""};
    int r;

    must(options_init(&a) == 0 && options_init(&b) == 0);
    r = config_read_bytes(&a, "f", (const char *)data, size, &e);
    if (r < 0)
        must(strncmp(e.s, "f:", 2) == 0);
    else
        must(config_read_bytes(&b, "f", (const char *)data, size, &e) == 0);
    for (size_t i = 0; (spec = options_spec(i)) != NULL; i++)
        must(options_equal(spec, &a, &b));
    options_done(&a);
    options_done(&b);
    return 0;
}
