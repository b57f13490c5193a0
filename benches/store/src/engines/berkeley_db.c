/* What the benchmark needs of Berkeley DB, whose interface is structures of functions, as plain functions. Each answers 0 or the library's
 * error; DB_NOTFOUND is 1 here, DB_LOCK_DEADLOCK -1. */

#include <db.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_FOUND = 1, AGAIN = -1, LOCKS = 2000000 };

struct store {
    DB_ENV *env;
    DB *db;
};

static int answer(int error) {
    return error == DB_NOTFOUND ? NOT_FOUND : error == DB_LOCK_DEADLOCK ? AGAIN : error;
}

int bdb_open(const char *folder, uint64_t cache_bytes, struct store **opened) {
    struct store *store = calloc(1, sizeof *store);
    int error;
    if (store == NULL) return DB_RUNRECOVERY;
    *opened = store;
    if ((error = db_env_create(&store->env, 0)) != 0) return error;
    uint32_t whole = (uint32_t)(cache_bytes >> 30), rest = (uint32_t)(cache_bytes & 0x3fffffff);
    store->env->set_cachesize(store->env, whole, rest, 1);
    store->env->set_lk_detect(store->env, DB_LOCK_DEFAULT);
    /* A transaction holds a lock on each page it has changed. */
    store->env->set_lk_max_locks(store->env, LOCKS);
    store->env->set_lk_max_objects(store->env, LOCKS);
    store->env->set_lg_bsize(store->env, 8 << 20);
    store->env->set_lg_max(store->env, 64 << 20);
    store->env->log_set_config(store->env, DB_LOG_AUTO_REMOVE, 1);
    uint32_t parts = DB_INIT_MPOOL | DB_INIT_TXN | DB_INIT_LOG | DB_INIT_LOCK;
    error = store->env->open(store->env, folder, DB_CREATE | DB_PRIVATE | DB_THREAD | parts, 0600);
    if (error != 0) return error;
    if ((error = db_create(&store->db, store->env, 0)) != 0) return error;
    uint32_t flags = DB_CREATE | DB_AUTO_COMMIT | DB_MULTIVERSION | DB_THREAD;
    return store->db->open(store->db, NULL, "records", NULL, DB_BTREE, flags, 0600);
}

int bdb_close(struct store *store) {
    int error = store->db->close(store->db, 0);
    int second = store->env->close(store->env, 0);
    free(store);
    return error != 0 ? error : second;
}

const char *bdb_error(int error) {
    return db_strerror(error);
}

int bdb_begin(struct store *store, int snapshot, DB_TXN **txn) {
    return store->env->txn_begin(store->env, NULL, txn, snapshot ? DB_TXN_SNAPSHOT : 0);
}

int bdb_commit(DB_TXN *txn, int durable) {
    return txn->commit(txn, durable ? DB_TXN_SYNC : DB_TXN_NOSYNC);
}

int bdb_abort(DB_TXN *txn) {
    return txn->abort(txn);
}

int bdb_put(struct store *store, DB_TXN *txn, void *key, uint32_t key_bytes, void *value, uint32_t value_bytes) {
    DBT k = {.data = key, .size = key_bytes}, v = {.data = value, .size = value_bytes};
    return answer(store->db->put(store->db, txn, &k, &v, 0));
}

int bdb_delete(struct store *store, DB_TXN *txn, void *key, uint32_t key_bytes) {
    DBT k = {.data = key, .size = key_bytes};
    return answer(store->db->del(store->db, txn, &k, 0));
}

/* The value is copied into the buffer. */
int bdb_get(struct store *store, DB_TXN *txn, void *key, uint32_t key_bytes, void *buffer, uint32_t room, uint32_t *bytes) {
    DBT k = {.data = key, .size = key_bytes};
    DBT v = {.data = buffer, .ulen = room, .flags = DB_DBT_USERMEM};
    int error = store->db->get(store->db, txn, &k, &v, 0);
    *bytes = v.size;
    return answer(error);
}

int bdb_cursor(struct store *store, DB_TXN *txn, DBC **cursor) {
    return store->db->cursor(store->db, txn, cursor, 0);
}

int bdb_cursor_close(DBC *cursor) {
    return cursor->close(cursor);
}

/* Goes to the first key from `from` on, or, without one, to the next; key and value are copied. */
int bdb_cursor_get(DBC *cursor, const void *from, uint32_t from_bytes, void *key, uint32_t key_room, uint32_t *key_bytes,
                   void *value, uint32_t room, uint32_t *bytes) {
    if (from != NULL) memcpy(key, from, from_bytes);
    DBT k = {.data = key, .size = from_bytes, .ulen = key_room, .flags = DB_DBT_USERMEM};
    DBT v = {.data = value, .ulen = room, .flags = DB_DBT_USERMEM};
    int error = cursor->get(cursor, &k, &v, from != NULL ? DB_SET_RANGE : DB_NEXT);
    *key_bytes = k.size;
    *bytes = v.size;
    return answer(error);
}

int bdb_checkpoint(struct store *store) {
    return store->env->txn_checkpoint(store->env, 0, 0, DB_FORCE);
}

int bdb_compact(struct store *store) {
    return store->db->compact(store->db, NULL, NULL, NULL, NULL, DB_FREE_SPACE, NULL);
}
