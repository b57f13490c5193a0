/* The workloads of the benchmark on Berkeley DB and LMDB, through their own libraries, as a program of its own.
 *
 * peers ENGINE PHASE FOLDER FIRST COUNT TOTAL CACHE_BYTES
 *
 * It says "ready", waits for a line, runs, and prints one line of results: what src/outcome.rs reads. The keys are those of
 * src/keys.rs. */

#include <db.h>
#include <lmdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

enum { KEY_BYTES = 128, VALUE_BYTES = 8, PATH_BYTES = 4096 };

static void check(int error, const char *what) {
    if (error == 0) return;
    fprintf(stderr, "%s: %s\n", what, error < -30700 || error > 0 ? db_strerror(error) : mdb_strerror(error));
    exit(1);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t spread(uint64_t number) {
    uint64_t z = number + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void make_key(char *key, uint64_t number, int in_order) {
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)(in_order ? number : spread(number)));
    memcpy(key, digits, 16);
    memset(key + 16, 'x', KEY_BYTES - 16);
}

static DB_ENV *bdb_env;
static DB *bdb;
static MDB_env *mdb_environment;
static MDB_dbi mdb_database;

/* The log as its users set it: opened for synchronous writes, or files of 64 MiB that are written before they are used. */
static void set_log(int dsync, int zero) {
    if (dsync) check(bdb_env->log_set_config(bdb_env, DB_LOG_DSYNC, 1), "DB_LOG_DSYNC");
    if (zero) {
        check(bdb_env->log_set_config(bdb_env, DB_LOG_ZERO, 1), "DB_LOG_ZERO");
        check(bdb_env->set_lg_max(bdb_env, 64u << 20), "set_lg_max");
    }
}

static void open_bdb(const char *folder, const char *engine, uint64_t cache) {
    char path[PATH_BYTES];
    if (strcmp(engine, "berkeley-db") != 0) {
        check(db_env_create(&bdb_env, 0), "db_env_create");
        set_log(strstr(engine, "dsync") != NULL, strstr(engine, "zero") != NULL);
        check(bdb_env->set_cachesize(bdb_env, (uint32_t)(cache >> 30), (uint32_t)(cache & 0x3fffffff), 1), "set_cachesize");
        check(bdb_env->set_lk_detect(bdb_env, DB_LOCK_DEFAULT), "set_lk_detect");
        uint32_t flags = DB_CREATE | DB_INIT_MPOOL | DB_INIT_TXN | DB_INIT_LOG | DB_INIT_LOCK;
        check(bdb_env->open(bdb_env, folder, flags, 0600), "DB_ENV->open");
        check(db_create(&bdb, bdb_env, 0), "db_create");
        check(bdb->open(bdb, NULL, "tree", NULL, DB_BTREE, DB_CREATE | DB_AUTO_COMMIT, 0600), "DB->open");
    } else {
        snprintf(path, sizeof path, "%s/tree", folder);
        check(db_create(&bdb, NULL, 0), "db_create");
        check(bdb->set_cachesize(bdb, (uint32_t)(cache >> 30), (uint32_t)(cache & 0x3fffffff), 1), "set_cachesize");
        check(bdb->open(bdb, NULL, path, NULL, DB_BTREE, DB_CREATE, 0600), "DB->open");
    }
}

static void open_mdb(const char *folder) {
    MDB_txn *txn;
    check(mdb_env_create(&mdb_environment), "mdb_env_create");
    check(mdb_env_set_mapsize(mdb_environment, (size_t)4 << 30), "mdb_env_set_mapsize");
    check(mdb_env_open(mdb_environment, folder, 0, 0600), "mdb_env_open");
    check(mdb_txn_begin(mdb_environment, NULL, 0, &txn), "mdb_txn_begin");
    check(mdb_dbi_open(txn, NULL, MDB_CREATE, &mdb_database), "mdb_dbi_open");
    check(mdb_txn_commit(txn), "mdb_txn_commit");
}

static void insert(int mdb, char *key, uint64_t number) {
    char value[VALUE_BYTES];
    memcpy(value, &number, sizeof value);
    if (mdb) {
        MDB_txn *txn;
        MDB_val k = {KEY_BYTES, key}, v = {VALUE_BYTES, value};
        check(mdb_txn_begin(mdb_environment, NULL, 0, &txn), "mdb_txn_begin");
        check(mdb_put(txn, mdb_database, &k, &v, 0), "mdb_put");
        check(mdb_txn_commit(txn), "mdb_txn_commit");
        return;
    }
    for (;;) {
        DB_TXN *txn = NULL;
        DBT k = {.data = key, .size = KEY_BYTES}, v = {.data = value, .size = VALUE_BYTES};
        if (bdb_env != NULL) check(bdb_env->txn_begin(bdb_env, NULL, &txn, 0), "txn_begin");
        int error = bdb->put(bdb, txn, &k, &v, 0);
        if (error == DB_LOCK_DEADLOCK) {
            check(txn->abort(txn), "abort");
            continue;
        }
        check(error, "put");
        if (txn != NULL) check(txn->commit(txn, 0), "commit");
        return;
    }
}

static int search(int mdb, char *key) {
    if (mdb) {
        MDB_txn *txn;
        MDB_val k = {KEY_BYTES, key}, v;
        check(mdb_txn_begin(mdb_environment, NULL, MDB_RDONLY, &txn), "mdb_txn_begin");
        int found = mdb_get(txn, mdb_database, &k, &v) == 0;
        mdb_txn_abort(txn);
        return found;
    }
    char value[VALUE_BYTES];
    DBT k = {.data = key, .size = KEY_BYTES};
    DBT v = {.data = value, .ulen = VALUE_BYTES, .flags = DB_DBT_USERMEM};
    return bdb->get(bdb, NULL, &k, &v, 0) == 0;
}

static uint64_t scan(int mdb) {
    uint64_t count = 0;
    if (mdb) {
        MDB_txn *txn;
        MDB_cursor *cursor;
        MDB_val k, v;
        check(mdb_txn_begin(mdb_environment, NULL, MDB_RDONLY, &txn), "mdb_txn_begin");
        check(mdb_cursor_open(txn, mdb_database, &cursor), "mdb_cursor_open");
        while (mdb_cursor_get(cursor, &k, &v, MDB_NEXT) == 0) count++;
        mdb_cursor_close(cursor);
        mdb_txn_abort(txn);
        return count;
    }
    /* In bulk, as its manual recommends for reading everything. */
    static char buffer[256 << 10];
    DBC *cursor;
    DBT k = {0}, v = {.data = buffer, .ulen = sizeof buffer, .flags = DB_DBT_USERMEM};
    check(bdb->cursor(bdb, NULL, &cursor, 0), "cursor");
    while (cursor->get(cursor, &k, &v, DB_NEXT | DB_MULTIPLE_KEY) == 0) {
        void *place, *key, *value;
        size_t key_bytes, value_bytes;
        for (DB_MULTIPLE_INIT(place, &v);;) {
            DB_MULTIPLE_KEY_NEXT(place, &v, key, key_bytes, value, value_bytes);
            if (place == NULL) break;
            (void)key, (void)key_bytes, (void)value, (void)value_bytes;
            count++;
        }
    }
    check(cursor->close(cursor), "close");
    return count;
}

static uint64_t log_bytes(void) {
    DB_LOG_STAT *stat;
    if (bdb_env == NULL) return 0;
    check(bdb_env->log_stat(bdb_env, &stat, 0), "log_stat");
    uint64_t bytes = ((uint64_t)stat->st_w_mbytes << 20) + stat->st_w_bytes;
    free(stat);
    return bytes;
}

static uint64_t buckets[64 * 16], slowest;

/* The times of operations, sixteen buckets to each power of two. */
static void add_time(uint64_t nanoseconds) {
    int octave = nanoseconds < 16 ? 0 : 63 - __builtin_clzll(nanoseconds);
    uint64_t within = octave ? nanoseconds >> (octave - 4) & 15 : nanoseconds;
    buckets[octave * 16 + within]++;
    if (nanoseconds > slowest) slowest = nanoseconds;
}

static uint64_t cpu_us(const struct rusage *usage) {
    return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000u
        + (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

/* Bytes read from the disk so far; 0 where the system does not count them. */
static uint64_t read_bytes(void) {
    unsigned long long bytes = 0;
    char line[128];
    FILE *io = fopen("/proc/self/io", "r");
    if (io == NULL) return 0;
    while (fgets(line, sizeof line, io) != NULL && sscanf(line, "read_bytes: %llu", &bytes) != 1) continue;
    fclose(io);
    return bytes;
}

int main(int count_of_arguments, char **arguments) {
    if (count_of_arguments != 8) {
        fprintf(stderr, "peers ENGINE PHASE FOLDER FIRST COUNT TOTAL CACHE_BYTES\n");
        return 2;
    }
    const char *engine = arguments[1], *phase = arguments[2], *folder = arguments[3];
    uint64_t first = strtoull(arguments[4], NULL, 10), count = strtoull(arguments[5], NULL, 10);
    uint64_t total = strtoull(arguments[6], NULL, 10), cache = strtoull(arguments[7], NULL, 10);
    int mdb = strcmp(engine, "lmdb-durable") == 0, in_order = strstr(phase, "in-order") != NULL;
    if (mdb) open_mdb(folder);
    else open_bdb(folder, engine, cache);
    puts("ready");
    fflush(stdout);
    char line[16];
    if (fgets(line, sizeof line, stdin) == NULL) return 1;

    struct rusage before, after;
    uint64_t log_before = log_bytes(), read_before = read_bytes(), done = 0;
    getrusage(RUSAGE_SELF, &before);
    uint64_t start = now(), last = start;
    if (strcmp(phase, "scan") == 0) {
        done = scan(mdb);
    } else if (strcmp(phase, "create") != 0) {
        char key[KEY_BYTES];
        int searching = strncmp(phase, "search", 6) == 0;
        for (uint64_t number = first; number < first + count; number++) {
            if (searching) {
                make_key(key, spread(~number) % total, in_order);
                done += (uint64_t)search(mdb, key);
            } else {
                make_key(key, number, in_order);
                insert(mdb, key, number);
                done++;
            }
            uint64_t time = now();
            add_time(time - last);
            last = time;
        }
    }
    uint64_t elapsed = now() - start;
    getrusage(RUSAGE_SELF, &after);
    printf("%llu %llu %llu %ld %ld %llu %llu %llu", (unsigned long long)done, (unsigned long long)elapsed,
           (unsigned long long)(cpu_us(&after) - cpu_us(&before)), after.ru_majflt - before.ru_majflt,
           after.ru_minflt - before.ru_minflt, (unsigned long long)(read_bytes() - read_before),
           (unsigned long long)(log_bytes() - log_before),
           (unsigned long long)slowest);
    for (int i = 0; i < 64 * 16; i++) {
        if (buckets[i] > 0) printf(" %d:%llu", i, (unsigned long long)buckets[i]);
    }
    puts("");
    fflush(stdout);
    if (mdb) {
        mdb_env_close(mdb_environment);
    } else {
        check(bdb->close(bdb, 0), "close");
        if (bdb_env != NULL) check(bdb_env->close(bdb_env, 0), "close");
    }
    return 0;
}
