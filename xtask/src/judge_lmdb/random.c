/* Does random things with an environment and prints what came of each. Two libraries that print the same do the same.
 * usage: random SEED STEPS, in a folder that has an empty folder `testdb` */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lmdb.h"

#define CHECK(what) check((what), #what)
#define DATABASES 8
#define CURSORS 3
#define DEPTH_MAX 3

static const struct { const char *name; unsigned flags; } KINDS[DATABASES] = {
	{ "plain", 0 },
	{ "integer", MDB_INTEGERKEY },
	{ "reverse", MDB_REVERSEKEY },
	{ "sorted", MDB_DUPSORT },
	{ "fixed", MDB_DUPSORT | MDB_DUPFIXED },
	{ "integers", MDB_DUPSORT | MDB_DUPFIXED | MDB_INTEGERDUP },
	{ "backward", MDB_DUPSORT | MDB_REVERSEDUP },
	{ "own", MDB_DUPSORT },
};

static MDB_env *env;
static MDB_dbi dbis[DATABASES];
static MDB_txn *txns[DEPTH_MAX];
static int depth;
static MDB_cursor *cursors[CURSORS];
static int cursor_kinds[CURSORS];
static int step;

static uint64_t state;

static unsigned below(unsigned bound)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(state >> 33) % bound;
}

static void check(int rc, const char *what)
{
	if (rc) {
		printf("%d: %s: %d %s\n", step, what, rc, mdb_strerror(rc));
		exit(1);
	}
}

/* The order of the database `own`: longer ones first. */
static int longest_first(const MDB_val *a, const MDB_val *b)
{
	if (a->mv_size != b->mv_size)
		return a->mv_size < b->mv_size ? 1 : -1;
	return memcmp(a->mv_data, b->mv_data, a->mv_size);
}

static void show(const char *name, const MDB_val *val)
{
	const unsigned char *bytes = val->mv_data;
	size_t i, shown = val->mv_size < 24 ? val->mv_size : 24;
	unsigned sum = 0;

	printf(" %s=%zu:", name, val->mv_size);
	for (i = 0; i < shown; i++)
		printf("%02x", bytes[i]);
	for (i = 0; i < val->mv_size; i++)
		sum = sum * 31 + bytes[i];
	printf("/%x", sum);
}

static int has_duplicates(int kind)
{
	return (KINDS[kind].flags & MDB_DUPSORT) != 0;
}

static void make_key(int kind, MDB_val *key, unsigned char *room)
{
	unsigned number = below(60);

	if (KINDS[kind].flags & MDB_INTEGERKEY) {
		uint64_t word = number * 0x01010101;
		memcpy(room, &word, 8);
		key->mv_size = 8;
	} else {
		key->mv_size = sprintf((char *)room, "%u", number * 7919);
		if (number % 5 == 0) {
			memset(room + key->mv_size, 'k', 200);
			key->mv_size += 200;
		}
		if (below(200) == 0)
			key->mv_size = below(2) ? 0 : 512;
	}
	key->mv_data = room;
}

static void make_data(int kind, MDB_val *data, unsigned char *room)
{
	unsigned number = below(below(4) ? 12 : 400), flags = KINDS[kind].flags;

	memset(room, 0, 8);
	if (flags & MDB_DUPFIXED) {
		uint64_t word = number * 3;
		memcpy(room, &word, 8);
		if (!(flags & MDB_INTEGERDUP))
			sprintf((char *)room, "%07x", number);
		data->mv_size = 8;
	} else {
		data->mv_size = sprintf((char *)room, "v%u", number);
		if (has_duplicates(kind)) {
			if (number % 7 == 0) {
				memset(room + data->mv_size, 'd', 300);
				data->mv_size += 300;
			}
			if (below(300) == 0)
				data->mv_size = 512;
		} else if (number % 11 == 0) {
			memset(room + data->mv_size, 'x', 9000);
			data->mv_size += number * 20;
		}
	}
	data->mv_data = room;
}

static void result(int rc, MDB_val *key, MDB_val *data)
{
	printf(" -> %d", rc);
	if (rc == 0) {
		if (key)
			show("key", key);
		if (data)
			show("data", data);
	}
	printf("\n");
}

static void close_cursors(void)
{
	int i;

	for (i = 0; i < CURSORS; i++) {
		if (cursors[i])
			mdb_cursor_close(cursors[i]);
		cursors[i] = NULL;
	}
}

/* What LMDB's cursors do after another one, or the transaction, has changed their database, and where they stand after a
 * failure, depends on pages. */
static void forget_cursors(int kind, int but)
{
	int i;

	for (i = 0; i < CURSORS; i++) {
		if (cursors[i] && cursor_kinds[i] == kind && i != but) {
			mdb_cursor_close(cursors[i]);
			cursors[i] = NULL;
		}
	}
}

static void forget_cursor(int which)
{
	mdb_cursor_close(cursors[which]);
	cursors[which] = NULL;
}

static MDB_cursor *some_cursor(int *which, int *kind)
{
	MDB_val key, data;

	*which = below(CURSORS);
	if (!cursors[*which]) {
		/* Two of them in the same database, mostly. */
		cursor_kinds[*which] = *which == 1 && cursors[0] ? cursor_kinds[0] : (int)below(DATABASES);
		CHECK(mdb_cursor_open(txns[depth - 1], dbis[cursor_kinds[*which]], &cursors[*which]));
		/* MDB_PREV and its kin read what they should not if a cursor has never been anywhere. */
		(void)mdb_cursor_get(cursors[*which], &key, &data, MDB_FIRST);
	}
	*kind = cursor_kinds[*which];
	return cursors[*which];
}

static const unsigned PUT_FLAGS[] = { 0, 0, 0, MDB_NOOVERWRITE, MDB_NODUPDATA, MDB_APPEND, MDB_APPENDDUP };

static void put(void)
{
	static unsigned char key_room[512], data_room[20000];
	int kind = below(DATABASES), rc;
	unsigned flags = PUT_FLAGS[below(7)];
	MDB_val key, data;

	make_key(kind, &key, key_room);
	make_data(kind, &data, data_room);
	if (!has_duplicates(kind) && below(10) == 0)
		flags = (flags & MDB_NOOVERWRITE) | MDB_RESERVE;
	printf("%d: put %s %x", step, KINDS[kind].name, flags);
	show("key", &key);
	show("data", &data);
	forget_cursors(kind, -1);
	rc = mdb_put(txns[depth - 1], dbis[kind], &key, &data, flags);
	if (rc == 0 && flags & MDB_RESERVE)
		memcpy(data.mv_data, data_room, data.mv_size);
	if (rc == MDB_KEYEXIST && flags & MDB_NOOVERWRITE) {
		printf(" there:");
		show("data", &data);
	}
	result(rc, NULL, NULL);
}

static void get(void)
{
	static unsigned char room[512];
	int kind = below(DATABASES);
	MDB_val key, data;

	make_key(kind, &key, room);
	printf("%d: get %s", step, KINDS[kind].name);
	show("key", &key);
	result(mdb_get(txns[depth - 1], dbis[kind], &key, &data), NULL, &data);
}

static void del(void)
{
	static unsigned char key_room[512], data_room[20000];
	int kind = below(DATABASES), whole = below(3) == 0;
	MDB_val key, data;

	make_key(kind, &key, key_room);
	make_data(kind, &data, data_room);
	printf("%d: del %s", step, KINDS[kind].name);
	show("key", &key);
	if (!whole)
		show("data", &data);
	forget_cursors(kind, -1);
	result(mdb_del(txns[depth - 1], dbis[kind], &key, whole ? NULL : &data), NULL, NULL);
}

static const MDB_cursor_op OPS[] = {
	MDB_FIRST, MDB_FIRST_DUP, MDB_GET_BOTH, MDB_GET_BOTH_RANGE, MDB_GET_CURRENT, MDB_LAST, MDB_LAST_DUP, MDB_NEXT,
	MDB_NEXT_DUP, MDB_NEXT_NODUP, MDB_PREV, MDB_PREV_DUP, MDB_PREV_NODUP, MDB_SET, MDB_SET_KEY, MDB_SET_RANGE,
};

static void move(void)
{
	static unsigned char key_room[512], data_room[20000];
	int which, kind, rc;
	MDB_cursor *cursor = some_cursor(&which, &kind);
	MDB_cursor_op op = OPS[below(sizeof(OPS) / sizeof(OPS[0]))];
	MDB_val key, data;

	make_key(kind, &key, key_room);
	make_data(kind, &data, data_room);
	printf("%d: cursor %d %s get %d", step, which, KINDS[kind].name, op);
	show("key", &key);
	show("data", &data);
	rc = mdb_cursor_get(cursor, &key, &data, op);
	/* The first two need not show the key, which is the same. */
	result(rc, op == MDB_FIRST_DUP || op == MDB_LAST_DUP ? NULL : &key, &data);
	if (rc && op != MDB_NEXT && op != MDB_PREV)
		forget_cursor(which);
}

/* Goes one way for a while, which shows where it stands. */
static void walk(void)
{
	int which, kind, rc = 0, i, steps = below(12);
	MDB_cursor *cursor = some_cursor(&which, &kind);
	MDB_cursor_op op = below(2) ? MDB_NEXT : MDB_PREV;
	MDB_val key, data;

	for (i = 0; i <= steps && rc == 0; i++) {
		printf("%d: cursor %d %s get %d", step, which, KINDS[kind].name, op);
		rc = mdb_cursor_get(cursor, &key, &data, op);
		result(rc, &key, &data);
	}
}

static void cursor_put(void)
{
	static unsigned char key_room[512], data_room[20000];
	int which, kind, rc;
	MDB_cursor *cursor = some_cursor(&which, &kind);
	unsigned flags = PUT_FLAGS[below(7)];
	MDB_val key, data, current;

	make_key(kind, &key, key_room);
	make_data(kind, &data, data_room);
	/* A duplicate would have to sort into the same place. */
	if (!has_duplicates(kind) && below(3) == 0 && mdb_cursor_get(cursor, &current, NULL, MDB_GET_CURRENT) == 0) {
		/* The key has to be that of the record. */
		memcpy(key_room, current.mv_data, current.mv_size);
		key.mv_size = current.mv_size;
		flags = MDB_CURRENT;
	}
	printf("%d: cursor %d %s put %x", step, which, KINDS[kind].name, flags);
	show("key", &key);
	show("data", &data);
	forget_cursors(kind, which);
	rc = mdb_cursor_put(cursor, &key, &data, flags);
	if (rc == MDB_KEYEXIST && flags & MDB_NOOVERWRITE) {
		printf(" there:");
		show("data", &data);
	}
	result(rc, NULL, NULL);
	if (rc == 0) {
		printf("%d: stands", step);
		result(mdb_cursor_get(cursor, &key, &data, MDB_GET_CURRENT), &key, &data);
	} else
		forget_cursor(which);
}

static void cursor_del(void)
{
	int which, kind;
	MDB_cursor *cursor = some_cursor(&which, &kind);
	unsigned flags = below(5) ? 0 : MDB_NODUPDATA;
	MDB_val key, data;

	if (mdb_cursor_get(cursor, &key, &data, MDB_GET_CURRENT))
		return;
	printf("%d: cursor %d %s del %x", step, which, KINDS[kind].name, flags);
	forget_cursors(kind, which);
	result(mdb_cursor_del(cursor, flags), NULL, NULL);
	if (below(2)) {
		printf("%d: and after it", step);
		/* Behind the end of a page, LMDB may pass over values of the next key. */
		result(mdb_cursor_get(cursor, &key, &data, MDB_NEXT), &key, NULL);
	}
	forget_cursor(which);
}

static void count(void)
{
	int which, kind, rc;
	MDB_cursor *cursor = some_cursor(&which, &kind);
	MDB_val key, data;
	size_t count = 0;

	if (mdb_cursor_get(cursor, &key, &data, MDB_GET_CURRENT))
		return;
	rc = mdb_cursor_count(cursor, &count);
	printf("%d: cursor %d %s count %zu", step, which, KINDS[kind].name, rc ? 0 : count);
	result(rc, NULL, NULL);
}

/* All of a database, in order and backwards, and the fixed ones page by page. */
static void list(int kind)
{
	MDB_cursor *cursor;
	MDB_val key, data;
	MDB_stat stat;
	unsigned all = 0, records = 0, pieces = 0;
	int rc, i;

	CHECK(mdb_stat(txns[depth - 1], dbis[kind], &stat));
	CHECK(mdb_cursor_open(txns[depth - 1], dbis[kind], &cursor));
	for (i = 0; i < 2; i++) {
		all = records = 0;
		while ((rc = mdb_cursor_get(cursor, &key, &data, i ? MDB_PREV : MDB_NEXT)) == 0) {
			size_t at;
			for (at = 0; at < key.mv_size; at++)
				all = all * 31 + ((unsigned char *)key.mv_data)[at];
			for (at = 0; at < data.mv_size; at++)
				all = all * 31 + ((unsigned char *)data.mv_data)[at];
			records++;
		}
		printf("%d: list %s: %zu, %u records, %x, %d\n", step, KINDS[kind].name, stat.ms_entries, records, all, rc);
	}
	if (KINDS[kind].flags & MDB_DUPFIXED) {
		all = 0;
		rc = mdb_cursor_get(cursor, &key, &data, MDB_FIRST);
		while (rc == 0) {
			rc = mdb_cursor_get(cursor, &key, &data, MDB_GET_MULTIPLE);
			while (rc == 0) {
				size_t at;
				for (at = 0; at < data.mv_size; at++)
					all = all * 31 + ((unsigned char *)data.mv_data)[at];
				pieces += data.mv_size / 8;
				rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT_MULTIPLE);
			}
			rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT_NODUP);
		}
		printf("%d: list %s: %u in pieces, %x\n", step, KINDS[kind].name, pieces, all);
	}
	mdb_cursor_close(cursor);
}

static void begin(unsigned flags)
{
	close_cursors();
	CHECK(mdb_txn_begin(env, depth ? txns[depth - 1] : NULL, flags, &txns[depth]));
	depth++;
	printf("%d: begin %x, %d deep\n", step, flags, depth);
}

static void end(int commit)
{
	close_cursors();
	depth--;
	if (commit)
		CHECK(mdb_txn_commit(txns[depth]));
	else
		mdb_txn_abort(txns[depth]);
	printf("%d: %s, %d deep\n", step, commit ? "commit" : "abort", depth);
}

static void change(void)
{
	unsigned what = below(100);

	if (what < 30)
		put();
	else if (what < 38)
		del();
	else if (what < 45)
		get();
	else if (what < 60)
		move();
	else if (what < 68)
		walk();
	else if (what < 80)
		cursor_put();
	else if (what < 92)
		cursor_del();
	else if (what < 95)
		count();
	else if (what < 97)
		close_cursors();
	else if (what == 97 && depth < DEPTH_MAX)
		begin(0);
	else if (what == 98 && depth > 1)
		end(below(2));
	else if (below(8) == 0) {
		int kind = below(DATABASES);
		close_cursors();
		CHECK(mdb_drop(txns[depth - 1], dbis[kind], 0));
		printf("%d: drop %s\n", step, KINDS[kind].name);
	}
}

int main(int argc, char **argv)
{
	int i, round, steps, write;

	state = strtoull(argc > 1 ? argv[1] : "1", NULL, 10) * 2 + 1;
	steps = atoi(argc > 2 ? argv[2] : "10000");
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	CHECK(mdb_env_create(&env));
	CHECK(mdb_env_set_mapsize(env, 256 << 20));
	CHECK(mdb_env_set_maxdbs(env, DATABASES));
	CHECK(mdb_env_open(env, "testdb", MDB_NOSYNC, 0600));
	CHECK(mdb_txn_begin(env, NULL, 0, &txns[0]));
	for (i = 0; i < DATABASES; i++)
		CHECK(mdb_dbi_open(txns[0], KINDS[i].name, MDB_CREATE | KINDS[i].flags, &dbis[i]));
	CHECK(mdb_set_compare(txns[0], dbis[DATABASES - 1], longest_first));
	CHECK(mdb_set_dupsort(txns[0], dbis[DATABASES - 1], longest_first));
	CHECK(mdb_txn_commit(txns[0]));

	while (step < steps) {
		write = below(4) != 0;
		begin(write ? 0 : MDB_RDONLY);
		for (round = below(200); round > 0; round--, step++) {
			if (write)
				change();
			else if (below(4))
				move();
			else if (below(2))
				walk();
			else
				get();
		}
		for (i = 0; i < DATABASES; i++)
			list(i);
		while (depth > 0)
			end(below(4) != 0);
	}
	mdb_env_close(env);
	return 0;
}
