/* A hash map that processes share, written in C on plain memory: hash_map FOLDER set KEY VALUE, hash_map FOLDER get
 * KEY, and hash_map FOLDER fill NAME TIMES, which sets the keys NAME.0, NAME.1 ... to their numbers and says each
 * when it is there.
 *
 * Nodes are linked by offsets from the beginning of the space: an address is good for one transaction only. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sapwood_xact.h"

#define BUCKETS 1024
#define TEXT_BYTES_MAX 200

struct node {
    uint64_t next;
    char key[TEXT_BYTES_MAX];
    char value[TEXT_BYTES_MAX];
};

struct map {
    uint64_t bucket[BUCKETS];
};

static void check(int code, const char *what) {
    if (code != XACT_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, xact_message(), xact_text(code));
        exit(1);
    }
}

static void *at(const xact_transaction *transaction, uint64_t offset) {
    return (char *)xact_map(transaction) + offset;
}

static uint64_t hash(const char *key) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *key != 0; key++) {
        hash = (hash ^ (unsigned char)*key) * UINT64_C(1099511628211);
    }
    return hash;
}

/* The map; NULL if there is none yet. */
static struct map *map(xact_transaction *transaction) {
    uint64_t root;
    check(xact_named_root(transaction, "map", &root), "no root");
    return root == 0 ? NULL : at(transaction, root);
}

static struct node *find(xact_transaction *transaction, const char *key) {
    const struct map *all = map(transaction);
    uint64_t offset = all == NULL ? 0 : all->bucket[hash(key) % BUCKETS];
    while (offset != 0) {
        struct node *node = at(transaction, offset);
        if (strcmp(node->key, key) == 0) {
            return node;
        }
        offset = node->next;
    }
    return NULL;
}

static void put(xact_transaction *transaction, const char *key, const char *value) {
    uint64_t offset;
    if (map(transaction) == NULL) {
        check(xact_allocate(transaction, sizeof(struct map), &offset), "no room");
        memset(at(transaction, offset), 0, sizeof(struct map));
        check(xact_set_named_root(transaction, "map", offset), "no root");
    }
    struct node *node = find(transaction, key);
    if (node == NULL) {
        /* The allocation is a part of the transaction: if that is not committed there was none. */
        check(xact_allocate(transaction, sizeof(struct node), &offset), "no room");
        node = at(transaction, offset);
        uint64_t *bucket = &map(transaction)->bucket[hash(key) % BUCKETS];
        node->next = *bucket;
        strcpy(node->key, key);
        *bucket = offset;
    }
    strcpy(node->value, value);
}

static void set(xact_space *space, const char *key, const char *value) {
    xact_transaction *transaction;
    check(xact_begin(space, XACT_WRITE, &transaction), "cannot begin");
    int committed;
    do {
        put(transaction, key, value);
        committed = xact_commit(transaction);
    } while (committed == XACT_CONFLICT);
    check(committed, "cannot commit");
}

int main(int count, char **arguments) {
    const char *what = count > 3 ? arguments[2] : "";
    int sets = strcmp(what, "set") == 0 && count == 5, fills = strcmp(what, "fill") == 0 && count == 5;
    if (!sets && !fills && (strcmp(what, "get") != 0 || count != 4)) {
        fprintf(stderr, "usage: hash_map FOLDER get KEY | set KEY VALUE | fill NAME TIMES\n");
        return 2;
    }
    if (strlen(arguments[3]) + 20 > TEXT_BYTES_MAX || (sets && strlen(arguments[4]) >= TEXT_BYTES_MAX)) {
        fprintf(stderr, "a key or value is too long\n");
        return 2;
    }
    xact_space *space;
    check(xact_open(arguments[1], XACT_TRACKED, 1 << 26, &space), "cannot open the space");
    if (sets) {
        set(space, arguments[3], arguments[4]);
    } else if (fills) {
        for (long number = 0; number < atol(arguments[4]); number++) {
            char key[TEXT_BYTES_MAX], value[TEXT_BYTES_MAX];
            snprintf(key, sizeof key, "%.150s.%ld", arguments[3], number);
            snprintf(value, sizeof value, "%ld", number);
            set(space, key, value);
            printf("%ld\n", number);
            fflush(stdout);
        }
    } else {
        xact_transaction *transaction;
        check(xact_begin(space, XACT_READ, &transaction), "cannot begin");
        const struct node *node = find(transaction, arguments[3]);
        printf("%s\n", node == NULL ? "(none)" : node->value);
        xact_abort(transaction);
    }
    xact_close(space);
    return 0;
}
