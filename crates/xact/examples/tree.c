/* Counts the words of its input in a tree: tree FOLDER [bplus|oblivious|hash], then shows them in order. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sapwood_xact.h"

static void check(int code, const char *what) {
    if (code != XACT_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, xact_message(), xact_text(code));
        exit(1);
    }
}

static void count_word(xact_space *space, int kind, const char *word) {
    xact_transaction *transaction;
    check(xact_begin(space, XACT_WRITE, &transaction), "cannot begin");
    int committed;
    do {
        uint64_t tree;
        check(xact_root(transaction, &tree), "no root");
        if (tree == 0) {
            check(xact_tree_create(transaction, kind, 0, &tree), "cannot make the tree");
            check(xact_set_root(transaction, tree), "no root");
        }
        uint64_t times = 0;
        const void *found;
        size_t bytes;
        int got = xact_tree_get(transaction, tree, word, strlen(word), &found, &bytes);
        if (got != XACT_NOT_FOUND) {
            check(got, "cannot look");
            memcpy(&times, found, sizeof times);
        }
        times++;
        check(xact_tree_put(transaction, tree, word, strlen(word), &times, sizeof times), "cannot store");
        committed = xact_commit(transaction);
    } while (committed == XACT_CONFLICT);
    check(committed, "cannot commit");
}

static void show(xact_space *space) {
    xact_transaction *transaction;
    check(xact_begin(space, XACT_READ, &transaction), "cannot begin");
    uint64_t tree;
    check(xact_root(transaction, &tree), "no root");
    const void *key = NULL, *value;
    size_t key_bytes = 0, value_bytes;
    int found = XACT_NOT_FOUND;
    while (tree != 0) {
        found = xact_tree_next(transaction, tree, key, key_bytes, &key, &key_bytes, &value, &value_bytes);
        if (found != XACT_OK) {
            break;
        }
        uint64_t times;
        memcpy(&times, value, sizeof times);
        printf("%.*s %" PRIu64 "\n", (int)key_bytes, (const char *)key, times);
    }
    if (found != XACT_NOT_FOUND) {
        check(found, "cannot walk");
    }
    xact_abort(transaction);
}

int main(int count, char **arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: tree FOLDER [bplus|oblivious|hash]\n");
        return 2;
    }
    const char *name = count > 2 ? arguments[2] : "bplus";
    int kind = XACT_BPLUS;
    if (strcmp(name, "oblivious") == 0) {
        kind = XACT_CACHE_OBLIVIOUS;
    } else if (strcmp(name, "hash") == 0) {
        kind = XACT_HASH_MAP;
    }
    xact_space *space;
    check(xact_open(arguments[1], XACT_EXPLICIT, 1 << 26, &space), "cannot open the space");
    char word[100];
    while (scanf("%99s", word) == 1) {
        count_word(space, kind, word);
    }
    show(space);
    xact_close(space);
    return 0;
}
