/* A bank: bank FOLDER TIMES moves money between its accounts so often, and says after each transfer how many it has
 * made. bank FOLDER audit says what all accounts have together. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sapwood_xact.h"

#define ACCOUNTS 1000
#define EACH 100

/* What the root leads to. The form of this is the layout of the space. */
struct bank {
    int64_t balance[ACCOUNTS];
};

static void check(int code, const char *what) {
    if (code != XACT_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, xact_message(), xact_text(code));
        exit(1);
    }
}

/* Where the bank is in the memory of a transaction; the first one founds it. */
static struct bank *bank(xact_transaction *transaction) {
    uint64_t root;
    check(xact_named_root(transaction, "bank", &root), "no root");
    if (root == 0) {
        check(xact_allocate(transaction, sizeof(struct bank), &root), "no room");
        check(xact_set_named_root(transaction, "bank", root), "no root");
        struct bank *founded = (struct bank *)((char *)xact_map(transaction) + root);
        for (int number = 0; number < ACCOUNTS; number++) {
            founded->balance[number] = EACH;
        }
    }
    return (struct bank *)((char *)xact_map(transaction) + root);
}

static void transfer(xact_space *space, int from, int to, int64_t amount) {
    xact_transaction *transaction;
    check(xact_begin(space, XACT_WRITE, &transaction), "cannot begin");
    int committed;
    do {
        struct bank *all = bank(transaction);
        all->balance[from] -= amount;
        all->balance[to] += amount;
        committed = xact_commit(transaction);
    } while (committed == XACT_CONFLICT);
    check(committed, "cannot commit");
}

static int64_t audit(xact_space *space) {
    xact_transaction *transaction;
    check(xact_begin(space, XACT_WRITE, &transaction), "cannot begin");
    int committed;
    int64_t sum;
    do {
        const struct bank *all = bank(transaction);
        sum = 0;
        for (int number = 0; number < ACCOUNTS; number++) {
            sum += all->balance[number];
        }
        committed = xact_commit(transaction);
    } while (committed == XACT_CONFLICT);
    check(committed, "cannot commit");
    return sum;
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: bank FOLDER TIMES|audit\n");
        return 2;
    }
    xact_options *options = xact_options_new();
    check(xact_options_set(options, XACT_OPTION_MODE, XACT_TRACKED), "no such mode");
    check(xact_options_set(options, XACT_OPTION_BYTES, 1 << 24), "no such size");
    check(xact_options_layout(options, "bank", 1), "no such layout");
    xact_space *space;
    check(xact_open_with(arguments[1], options, &space), "cannot open the bank");
    xact_options_free(options);
    if (strcmp(arguments[2], "audit") == 0) {
        printf("%" PRId64 "\n", audit(space));
    } else {
        srand((unsigned)getpid());
        for (long made = 1; made <= atol(arguments[2]); made++) {
            transfer(space, rand() % ACCOUNTS, rand() % ACCOUNTS, rand() % EACH);
            /* It is on the disk now, so it may be told. */
            printf("%ld\n", made);
            fflush(stdout);
        }
    }
    xact_close(space);
    return 0;
}
