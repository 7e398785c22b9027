/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of hostile GGUF files share: files that must be refused with a reason, or pass. */
#ifndef TESTS_HOSTILE_H
#define TESTS_HOSTILE_H

#include "engine/gguf.h"
#include "engine/model.h"
#include "tests/ggufw.h"
#include "util/buf.h"

#include <stddef.h>
#include <stdint.h>

struct err_text;

/*
 * Opens a copy that is exactly n bytes long, so that a sanitizer sees one byte too many.  The copy
 * is for the caller to free once *ret is.
 */
int hostile_open_exact(const void *p, size_t n, struct gguf **ret, void **ret_copy,
                       struct err_text *e);

/* Opening gives `code`, the reason contains `words` and names the file, the output is untouched. */
void hostile_bytes_refused(const void *p, size_t n, int code, const char *words);
void hostile_refused(const struct ggufw *w, int code, const char *words);

struct gguf *hostile_accepted(const struct ggufw *w, void **ret_copy);
void hostile_is_accepted(const struct ggufw *w);

/* A tensor of n zeros. */
struct ggufw_tensor *hostile_add_f32(struct ggufw *w, const char *name, uint64_t n);

/* A model from what was written.  The file's bytes go to `b`, which must outlive the model. */
int hostile_open_model(const struct ggufw *w, struct buf *b, struct model **ret,
                       struct err_text *e);
struct model *hostile_accepted_model(const struct ggufw *w, struct buf *b);

#endif
