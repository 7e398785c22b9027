/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main of a fuzz target when libFuzzer is not linked: gives it every file of its corpus, then
 * seeded mutations of each (cut short, bytes changed, runs copied or removed), so that `make check`
 * walks the same code with any compiler.  The target's name is the program's, fuzz_x, and its
 * corpus $SRCDIR/tests/fuzz/corpus/x; files named on the command line are run as they are.
 * FUZZ_ROUNDS is the number of mutations of each file (default 200).
 */
#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t rng_state;

static uint32_t rng(uint32_t n)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 17;
    rng_state ^= rng_state << 5;
    return n ? rng_state % n : 0;
}

/* The bytes of `path`; NULL with errno set. */
static uint8_t *read_file(const char *path, size_t *ret_size)
{
    FILE *f = fopen(path, "rbe");
    uint8_t *data = NULL;
    long size;

    if (!f)
        return NULL;
    if (fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) >= 0 && fseek(f, 0, SEEK_SET) == 0) {
        data = malloc((size_t)size + 1);
        if (data && fread(data, 1, (size_t)size, f) != (size_t)size) {
            free(data);
            data = NULL;
        }
        *ret_size = (size_t)size;
    }
    (void)fclose(f);
    return data;
}

/* The bytes are in an allocation of exactly their size: a sanitizer then sees one byte too many. */
static void run_exact(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);

    if (!copy)
        return;
    memcpy(copy, data, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

/* One to four changes to `data`; returns the new size, never more than the old. */
static size_t mutate(uint8_t *data, size_t size)
{
    static const uint8_t telling[] = {0x00, 0x01, 0x7f, 0x80, 0xff, '"', '{', '\n'};

    for (uint32_t n = 1 + rng(4); n > 0 && size > 0; n--) {
        size_t at = rng((uint32_t)size), from = rng((uint32_t)size);
        size_t len = 1 + rng(16);

        switch (rng(6)) {
        case 0:
            size = at; /* cut short */
            break;
        case 1:
            data[at] ^= (uint8_t)(1u << rng(8));
            break;
        case 2:
            data[at] = telling[rng(sizeof telling)];
            break;
        case 3: /* a run of one byte, so that whole numbers become 0 or huge */
            len = len > size - at ? size - at : len;
            memset(data + at, telling[rng(sizeof telling)], len);
            break;
        case 4: /* a run copied from elsewhere */
            len = len > size - at ? size - at : len;
            len = len > size - from ? size - from : len;
            memmove(data + at, data + from, len);
            break;
        default: /* a run removed */
            len = len > size - at ? size - at : len;
            memmove(data + at, data + at + len, size - at - len);
            size -= len;
            break;
        }
    }
    return size;
}

static int run_file(const char *path, unsigned int rounds)
{
    size_t size = 0;
    uint8_t *data = read_file(path, &size), *copy;

    if (!data) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    run_exact(data, size);
    copy = malloc(size + 1);
    for (unsigned int i = 0; copy && i < rounds; i++) {
        rng_state = 2463534242u + i * 2654435761u;
        if (!rng_state)
            rng_state = 1;
        memcpy(copy, data, size);
        run_exact(copy, mutate(copy, size));
    }
    free(copy);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/'), *srcdir = getenv("SRCDIR");
    const char *rounds_text = getenv("FUZZ_ROUNDS");
    unsigned int rounds = rounds_text ? (unsigned int)strtoul(rounds_text, NULL, 10) : 200;
    struct dirent **files = NULL;
    char dir[4096], path[sizeof dir + 300];
    int n, failed = 0, n_run = 0;

    run_exact((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++)
        failed |= run_file(argv[i], 0);
    if (argc > 1)
        return failed;

    name = name ? name + 1 : argv[0];
    if (strncmp(name, "fuzz_", 5) == 0)
        name += 5;
    (void)snprintf(dir, sizeof dir, "%s/tests/fuzz/corpus/%s", srcdir ? srcdir : ".", name);
    n = scandir(dir, &files, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (files[i]->d_name[0] != '.') {
            (void)snprintf(path, sizeof path, "%s/%s", dir, files[i]->d_name);
            failed |= run_file(path, rounds);
            n_run++;
        }
        free(files[i]);
    }
    free(files);
    if (n_run == 0) {
        fprintf(stderr, "%s: no corpus\n", dir);
        return 1;
    }
    printf("%d files, %u mutations of each\n", n_run, rounds);
    return failed;
}
