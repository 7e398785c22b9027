/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File descriptors as a budget, so that however many HTTP connections there are, the control
 * socket, the files of a reload and the listeners still get theirs.
 */
#ifndef DAEMON_DESCRIPTORS_H
#define DAEMON_DESCRIPTORS_H

#include <stddef.h>
#include <stdint.h>

/*
 * Raises the soft limit towards what n_listeners times `most` HTTP connections may need, as far as
 * the hard limit lets it (nothing here uses select), and returns how many of them each listener may
 * have: at least 1, at most `most`.
 */
uint32_t descriptors_reserve(size_t n_listeners, uint32_t most);

#endif
