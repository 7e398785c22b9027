/* SPDX-License-Identifier: Apache-2.0 */
/* strataD: reads what it is asked, and does it. */
#include "daemon/check.h"
#include "daemon/lifecycle.h"
#include "daemon/log.h"
#include "daemon/options.h"

#include "strata-config.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct lifecycle_argv again = {argc, argv};
    struct lifecycle_result result;
    struct options_argv asked;
    struct options o;
    struct err_text e = {""};
    int r;

    r = lifecycle_prepare();
    if (r == 0)
        r = options_init(&o);
    if (r < 0) {
        (void)fprintf(stderr, "strataD: %s\n", err_str(r));
        return EXIT_FAILURE;
    }
    r = options_read_argv(&o, argc, argv, &asked, &e);
    log_init(o.name);
    if (r < 0) {
        log_msg(LOG_ERR, "%s", e.s);
        options_done(&o);
        return EXIT_CODE_CONFIG;
    }
    log_set_level(log_level_of(o.log_level));

    result = (struct lifecycle_result){0};
    if (asked.help) {
        options_print_help(stdout);
    } else if (asked.version) {
        (void)printf("strataD %s\n", PACKAGE_VERSION);
    } else if (asked.check) {
        result.code = check_model(&o, asked.check, stdout);
    } else if (!o.model) {
        log_msg(LOG_ERR, "no model: give --model FILE, or \"model\" in the configuration; --help "
                         "lists the options");
        result.code = EXIT_CODE_CONFIG;
    } else {
        result = lifecycle_run(&o, &again);
    }
    if (result.abrupt)
        _exit(result.code); /* other threads may still use what exit handlers would free */
    options_done(&o);
    return result.code;
}
