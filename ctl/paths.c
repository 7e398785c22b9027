/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

const char *strata_run_base(int system)
{
    const char *dir;

    if (system)
        return "/run";
    dir = getenv("XDG_RUNTIME_DIR");
    return dir && dir[0] == '/' ? dir : NULL;
}

int strata_socket_path(int system, const char *name, const char *file, char *ret, size_t size)
{
    const char *base = strata_run_base(system);
    int n;

    if (!base)
        return -ENOENT;
    n = snprintf(ret, size, "%s/strata/%s/%s", base, name, file);
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

int strata_user_state_dir(char *ret, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n;

    if (state && state[0] == '/')
        n = snprintf(ret, size, "%s/strata", state);
    else if (home && home[0] == '/')
        n = snprintf(ret, size, "%s/.local/state/strata", home);
    else
        return -ENOENT;
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}
