/* What the C interface costs: the same work on whichever library this is linked with. Prints a line for each row: its name, a tab, and how
   many of it were done in a second. */

#include <lmdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RECORDS = 1 << 18, VALUE_BYTES = 100, COMMITS = 400, BATCHES = 60, BATCH = 1000, SCANS = 8, RELAXED = 40000 };

static MDB_env *env;
static MDB_dbi dbi;
static uint64_t keys[RECORDS][3];
static char value[VALUE_BYTES];

static void check(int code, const char *call) {
    if (code != 0) {
        fprintf(stderr, "%s: %s\n", call, mdb_strerror(code));
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

static uint64_t mixed(uint64_t n) {
    n = (n + 1) * 0x9e3779b97f4a7c15;
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9;
    n = (n ^ (n >> 27)) * 0x94d049bb133111eb;
    return n ^ (n >> 31);
}

/* All records, each once, in no order. */
static uint32_t nth(uint32_t n) {
    return n * 0x9e3779b1u & (RECORDS - 1);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void tell(const char *name, double count, double since) {
    printf("%s\t%.0f\n", name, count / (seconds() - since));
    fflush(stdout);
}

static void put(MDB_txn *txn, uint32_t n) {
    MDB_val key = {sizeof keys[n], keys[n]}, data = {sizeof value, value};
    CHECK(mdb_put(txn, dbi, &key, &data, 0));
}

static void get(MDB_txn *txn, uint32_t n) {
    MDB_val key = {sizeof keys[n], keys[n]}, data;
    CHECK(mdb_get(txn, dbi, &key, &data));
    if (data.mv_size != VALUE_BYTES || ((char *)data.mv_data)[50] != 'v') {
        fprintf(stderr, "not what was stored\n");
        exit(1);
    }
}

static void puts_in_one(void) {
    MDB_txn *txn;
    double since = seconds();
    CHECK(mdb_txn_begin(env, NULL, 0, &txn));
    CHECK(mdb_dbi_open(txn, NULL, 0, &dbi));
    for (uint32_t n = 0; n < RECORDS; n++)
        put(txn, nth(n));
    CHECK(mdb_txn_commit(txn));
    tell("puts in one transaction, with its commit", RECORDS, since);
}

static void gets(void) {
    MDB_txn *txn;
    double since = seconds();
    CHECK(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
    for (uint32_t n = 0; n < 2 * RECORDS; n++)
        get(txn, nth(n ^ 0x155));
    mdb_txn_abort(txn);
    tell("gets in one transaction", 2 * RECORDS, since);
    since = seconds();
    for (uint32_t n = 0; n < 2 * RECORDS; n++) {
        CHECK(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
        get(txn, nth(n ^ 0x2aa));
        mdb_txn_abort(txn);
    }
    tell("begin, get, abort", 2 * RECORDS, since);
    CHECK(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
    since = seconds();
    for (uint32_t n = 0; n < 2 * RECORDS; n++) {
        mdb_txn_reset(txn);
        CHECK(mdb_txn_renew(txn));
        get(txn, nth(n ^ 0x3cc));
    }
    tell("reset, renew, get", 2 * RECORDS, since);
    mdb_txn_abort(txn);
}

static void scans(void) {
    MDB_txn *txn;
    MDB_cursor *cursor;
    MDB_val key, data;
    CHECK(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
    CHECK(mdb_cursor_open(txn, dbi, &cursor));
    double since = seconds();
    for (int scan = 0; scan < SCANS; scan++) {
        uint32_t count = 0;
        size_t bytes = 0;
        for (int code = mdb_cursor_get(cursor, &key, &data, MDB_FIRST); code == 0;
             code = mdb_cursor_get(cursor, &key, &data, MDB_NEXT)) {
            count++;
            bytes += key.mv_size + data.mv_size;
        }
        if (count != RECORDS || bytes != (size_t)RECORDS * (24 + VALUE_BYTES)) {
            fprintf(stderr, "not all is there\n");
            exit(1);
        }
    }
    tell("cursor through all, records", (double)SCANS * RECORDS, since);
    since = seconds();
    for (uint32_t n = 0; n < RECORDS; n++) {
        key.mv_size = sizeof keys[0];
        key.mv_data = keys[nth(n)];
        CHECK(mdb_cursor_get(cursor, &key, &data, MDB_SET_RANGE));
    }
    tell("cursor to a key", RECORDS, since);
    mdb_cursor_close(cursor);
    mdb_txn_abort(txn);
}

static void commits(void) {
    MDB_txn *txn;
    double since = seconds();
    for (uint32_t n = 0; n < COMMITS; n++) {
        CHECK(mdb_txn_begin(env, NULL, 0, &txn));
        put(txn, nth(n * 7));
        CHECK(mdb_txn_commit(txn));
    }
    tell("durable commits of one put", COMMITS, since);
    since = seconds();
    for (uint32_t n = 0; n < BATCHES; n++) {
        CHECK(mdb_txn_begin(env, NULL, 0, &txn));
        for (uint32_t k = 0; k < BATCH; k++)
            put(txn, nth(n * BATCH + k));
        CHECK(mdb_txn_commit(txn));
    }
    tell("durable commits of 1,000 puts, puts", (double)BATCHES * BATCH, since);
}

/* Commits that nobody waits for, by so many processes at once, each of which opens and closes the environment. */
static void relaxed_commits(const char *path, int processes) {
    char name[64];
    double since = seconds();
    for (int process = 0; process < processes; process++) {
        if (fork() != 0)
            continue;
        MDB_txn *txn;
        CHECK(mdb_env_create(&env));
        CHECK(mdb_env_set_mapsize(env, (size_t)1 << 30));
        CHECK(mdb_env_open(env, path, MDB_NOSYNC, 0600));
        for (uint32_t n = 0; n < RELAXED / (uint32_t)processes; n++) {
            CHECK(mdb_txn_begin(env, NULL, 0, &txn));
            CHECK(mdb_dbi_open(txn, NULL, 0, &dbi));
            put(txn, nth(n * 7 + (uint32_t)process));
            CHECK(mdb_txn_commit(txn));
        }
        mdb_env_close(env);
        _exit(0);
    }
    for (int process = 0, status; process < processes; process++)
        if (wait(&status) < 0 || status != 0) {
            fprintf(stderr, "a process failed\n");
            exit(1);
        }
    snprintf(name, sizeof name, "MDB_NOSYNC: commits of one put, processes: %d", processes);
    tell(name, RELAXED, since);
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    memset(value, 'v', sizeof value);
    for (uint32_t n = 0; n < RECORDS; n++)
        for (int part = 0; part < 3; part++)
            keys[n][part] = mixed((uint64_t)n * 3 + part);
    CHECK(mdb_env_create(&env));
    CHECK(mdb_env_set_mapsize(env, (size_t)1 << 30));
    CHECK(mdb_env_open(env, argv[1], 0, 0600));
    puts_in_one();
    gets();
    scans();
    commits();
    mdb_env_close(env);
    relaxed_commits(argv[1], 1);
    relaxed_commits(argv[1], 4);
    return 0;
}
