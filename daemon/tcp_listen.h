/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The setting "listen": ADDR:PORT, several of them separated by commas.
 *
 * ADDR is an address (IPv6 in brackets) or a name that has some, which are all listened on: port 0
 * is one that the kernel chooses.  [::] is IPv6 only.
 */
#ifndef DAEMON_TCP_LISTEN_H
#define DAEMON_TCP_LISTEN_H

#include "daemon/listeners.h"

#include <stdbool.h>
#include <stddef.h>

struct err_text;

/* Its form.  0, or -EINVAL with `e`. */
int tcp_listen_check(const char *listen, struct err_text *e);

/*
 * Binds all of it and appends to list[*n], of which there are at most `most`; what was bound before
 * a failure is there too.  0, or negative with `e` naming the address.
 */
int tcp_listen_open(const char *listen, struct listener *list, size_t *n, size_t most,
                    struct err_text *e);

/*
 * Of a listening TCP socket: what it is called ("127.0.0.1:8080"), and whether other machines can
 * reach it; connections will notice that their peer's machine is gone.
 */
void tcp_adopt(struct listener *l);

/* Whether `listen` (may be NULL) has this name, in whatever case. */
bool tcp_listen_names(const char *listen, const char *host, size_t n);

#endif
