/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the sockets of an instance lie: /run/strata/NAME for root and the system service,
 * $XDG_RUNTIME_DIR/strata/NAME for everybody else.  Both sides of the control protocol agree on it
 * here.
 */
#ifndef CTL_PATHS_H
#define CTL_PATHS_H

#include <stddef.h>

#define STRATA_API_SOCKET     "api.sock"
#define STRATA_CONTROL_SOCKET "control.sock"

/* The directory above strata/: "/run", or $XDG_RUNTIME_DIR; NULL when that is not set or not
 * absolute. */
const char *strata_run_base(int system);

/* The full path of `file` of instance `name`.  0; -ENOENT without a base; -ENAMETOOLONG. */
int strata_socket_path(int system, const char *name, const char *file, char *ret, size_t size);

/* Where a user's programs keep what is theirs: $XDG_STATE_HOME/strata or ~/.local/state/strata.  0;
 * -ENOENT without a home; -ENAMETOOLONG. */
int strata_user_state_dir(char *ret, size_t size);

#endif
