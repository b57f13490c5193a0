/* A counter shared by processes: counter FOLDER TIMES adds to it so often, and says what it came to. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sapwood_xact.h"

static void check(int code, const char *what) {
    if (code != XACT_OK) {
        fprintf(stderr, "%s: %s\n", what, xact_message());
        exit(1);
    }
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: counter FOLDER TIMES\n");
        return 2;
    }
    xact_space *space;
    check(xact_open(arguments[1], XACT_TRACKED, 1 << 24, &space), "cannot open the space");
    uint64_t value = 0;
    for (long left = atol(arguments[2]); left > 0; left--) {
        xact_transaction *transaction;
        check(xact_begin(space, XACT_WRITE, &transaction), "cannot begin");
        int committed;
        do {
            uint64_t counter;
            check(xact_root(transaction, &counter), "no root");
            if (counter == 0) {
                check(xact_allocate(transaction, sizeof value, &counter), "no room");
                check(xact_set_root(transaction, counter), "no root");
                *(uint64_t *)((char *)xact_map(transaction) + counter) = 0;
            }
            /* Plain memory: whether others add at the same time shows when it is committed. */
            uint64_t *place = (uint64_t *)((char *)xact_map(transaction) + counter);
            value = ++*place;
            committed = xact_commit(transaction);
        } while (committed == XACT_CONFLICT);
        check(committed, "cannot commit");
    }
    printf("%" PRIu64 "\n", value);
    xact_close(space);
    return 0;
}
