/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tok_unicode.h"

#include "engine/tok_unicode.inc"
