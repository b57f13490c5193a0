/* Memory-mapped transactions: loads and stores in a mapped file, made atomic, isolated and durable, for several
 * threads and processes at once. docs/xact/c.md leads through it.
 *
 * Functions that can fail return an XACT_ code; xact_text says what it means, and xact_message what went wrong this
 * time. A space may be used by all threads of a process, a transaction by the thread that began it. A child process
 * opens the space itself. */
#ifndef SAPWOOD_XACT_H
#define SAPWOOD_XACT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XACT_OK 0
/* Another transaction got in the way. xact_commit has begun the transaction again: run it once more. */
#define XACT_CONFLICT 1
#define XACT_IO 2         /* the operating system refused: a full or broken disk, no memory, no such folder */
#define XACT_FULL 3       /* no room left in the space */
#define XACT_BOUNDS 4     /* an access outside of the space, or to what the allocator keeps for itself */
#define XACT_DAMAGED 5    /* a file, a page or a structure is not what was written */
#define XACT_READ_ONLY 6  /* a write in a transaction that only reads */
#define XACT_GIVEN_UP 7   /* a transaction inside of this one was aborted */
#define XACT_PINNED 8     /* a long transaction of the process that is named keeps old versions from being given up */
#define XACT_STALLED 9    /* the process that is named has not gone on in time */
#define XACT_TOO_MANY 10  /* transactions, processes or named roots */
#define XACT_FORKED 11    /* the space was opened before this process was forked */
#define XACT_UNUSABLE 12  /* an earlier failure: all processes close the space and open it again */
#define XACT_OTHERWISE 13 /* the space has another mode, durability or layout than it is asked for */
#define XACT_VERSION 14   /* a file of another release */
#define XACT_INVALID 15   /* an argument that cannot be */
#define XACT_IN_USE 16    /* a space cannot grow so far while others have it open; something else has its addresses */
#define XACT_NOT_FOUND 17 /* no such key */

/* What a code means: a text that stays. */
const char *xact_text(int code);
/* What went wrong last in this thread. Valid until the next call that fails. */
const char *xact_message(void);

/* Modes. A space that was made in another one is not opened. */
#define XACT_EXPLICIT 0 /* xact_read and xact_write say what is used; serialisable */
#define XACT_TRACKED 1  /* loads and stores at xact_map; serialisable */
#define XACT_SNAPSHOT 2 /* loads and stores at xact_map; snapshot isolation */
/* Added to the mode: a commit survives the death of processes, but after a power cut the last ones may be missing. */
#define XACT_EVENTUAL 16
/* In place of all that: as the space was made, which xact_mode tells; if it is made now, explicit and durable. */
#define XACT_AS_MADE 8

/* How a transaction is begun, and what xact_set_page_access announces. */
#define XACT_READ 0
#define XACT_WRITE 1

typedef struct xact_space xact_space;
typedef struct xact_transaction xact_transaction;

/* The first bytes of a space are the allocator's. A store there is refused. */
#define XACT_RESERVED_BYTES 73728

/* Opens the space in a folder, or makes one of so many bytes (more than are reserved), which count only for a new
 * space. After an error *space is NULL. */
int xact_open(const char *folder, int mode, uint64_t bytes, xact_space **space);

/* The same with all options that there are. Each has a default, which the Rust documentation of Options tells. */
typedef struct xact_options xact_options;
#define XACT_OPTION_CREATE 0         /* 0: a space that is not there is not made */
#define XACT_OPTION_MODE 1           /* a mode, perhaps with XACT_EVENTUAL, or XACT_AS_MADE */
#define XACT_OPTION_BYTES 2          /* of a new space */
#define XACT_OPTION_GROW_TO 3        /* bytes that a smaller space is made to have */
#define XACT_OPTION_CHECKSUMS 4      /* 0: a new space has none */
#define XACT_OPTION_LOG_BYTES 5      /* of a new log */
#define XACT_OPTION_VERSIONS_BYTES 6 /* of memory for versions that are not in the file yet */
#define XACT_OPTION_SPILL_BYTES 7    /* of the disk for more of them */
#define XACT_OPTION_PATIENCE 8       /* milliseconds until XACT_PINNED and XACT_STALLED */
#define XACT_OPTION_BACKOFF 9        /* 0: who has lost does not wait for older ones before trying again */
#define XACT_OPTION_USERFAULT 10     /* 0: mode tracked protects pages even where userfaultfd is allowed */
#define XACT_OPTION_RESERVE_BYTES 11 /* up to which a new space can grow while it is in use */
#define XACT_OPTION_ADDRESS 12       /* where xact_map of a new space always is: a multiple of 4 GiB */
/* 0, XACT_EVENTUAL, or XACT_AS_MADE for either: in place of what XACT_OPTION_MODE, set before, has said of that. */
#define XACT_OPTION_DURABILITY 13
xact_options *xact_options_new(void);
int xact_options_set(xact_options *options, int option, uint64_t value);
/* What the program stores, and in which version of its form: a space that holds something else is not opened. */
int xact_options_layout(xact_options *options, const char *name, uint64_t version);
void xact_options_free(xact_options *options);
int xact_open_with(const char *folder, const xact_options *options, xact_space **space);

/* The mode of a space, with XACT_EVENTUAL if that was added, and its size. */
int xact_mode(const xact_space *space);
uint64_t xact_bytes(const xact_space *space);
/* Makes it so large unless it is larger, while others use it; XACT_IN_USE beyond what is reserved. */
int xact_grow_to(const xact_space *space, uint64_t bytes);
/* Brings what is committed into the file. Happens by itself, too. */
int xact_checkpoint(const xact_space *space);
/* Verifies all pages beside the one that uses the space. If one is damaged the result is XACT_DAMAGED, and the first
 * one begins at *damaged. */
int xact_check(const xact_space *space, uint64_t *pages, uint64_t *damaged);
/* Copies the space into a folder that is made, beside the one that uses it. The copy is a space of its own. */
int xact_back_up(const xact_space *space, const char *folder);
/* Closes it, after all its transactions have ended. */
void xact_close(xact_space *space);

/* Begins a transaction that reads, or reads and writes. While one that writes runs in this thread, what begins on
 * the same space, also if its folder was opened twice, is a part of it: it sees what that one has written, its
 * commit is only its end, and when it is aborted the one around it can no longer be committed. */
int xact_begin(xact_space *space, int access, xact_transaction **transaction);
/* Commits: what was written is on the disk when this returns XACT_OK, unless the space was made with XACT_EVENTUAL. The
 * transaction is gone then, and after any other code but XACT_CONFLICT, after which it has been begun again. */
int xact_commit(xact_transaction *transaction);
/* The same without waiting for the disk: it becomes durable with the next commit that waits, or is missing as a
 * whole. */
int xact_commit_relaxed(xact_transaction *transaction);
/* Gives a transaction up. */
void xact_abort(xact_transaction *transaction);

/* Where the space is in memory while the transaction runs; NULL in explicit mode. */
void *xact_map(const xact_transaction *transaction);
/* Says that bytes will be read or written: before they are handed to a system call, and to spare faults. */
int xact_set_page_access(xact_transaction *transaction, uint64_t offset, uint64_t bytes, int access);
/* Bytes to read, or to write to, in any mode; NULL on an error. Valid until the next call on the transaction but
 * xact_read. */
const void *xact_read(xact_transaction *transaction, uint64_t offset, size_t bytes);
void *xact_write(xact_transaction *transaction, uint64_t offset, size_t bytes);

/* Takes and gives back areas of the space, and keeps the offset from which everything is found. */
int xact_allocate(xact_transaction *transaction, uint64_t bytes, uint64_t *offset);
int xact_free(xact_transaction *transaction, uint64_t offset, uint64_t bytes);
int xact_root(xact_transaction *transaction, uint64_t *offset);
int xact_set_root(xact_transaction *transaction, uint64_t offset);
/* The same under names of at most XACT_NAME_BYTES_MAX bytes, 62 of them: 0 if there is none, and 0 removes it. */
int xact_named_root(xact_transaction *transaction, const char *name, uint64_t *offset);
int xact_set_named_root(xact_transaction *transaction, const char *name, uint64_t offset);
/* What the space is said to hold, see xact_options_layout: the name, with a 0 at its end, goes into so many bytes and
 * one more. It is empty, and the version 0, if the space does not say. */
#define XACT_NAME_BYTES_MAX 55
int xact_layout(xact_transaction *transaction, char *name, uint64_t *version);
/* Says that it holds something else from now on: by a program that brings it into another form, in one transaction. */
int xact_set_layout(xact_transaction *transaction, const char *name, uint64_t version);

/* Keys with values: structures that transactions in any mode share. A tree is named by its offset, as any area is.
 * Keys are in the order of their bytes, but those of a hash map, which is found with one look and cannot be walked.
 * What is found is valid until the next call on the transaction that writes. The longest keys are 480 bytes in a
 * B+tree of blocks of 4096 bytes (an eighth of a block), 500 in a cache-oblivious tree, and 458 in a hash map;
 * values have up to 64 MiB. */
#define XACT_BPLUS 0           /* a B+tree; block_bytes is a power of two from 2048 to 524288, or 0 for 4096 */
#define XACT_CACHE_OBLIVIOUS 1 /* a cache-oblivious B-tree; block_bytes counts for nothing, here and below */
#define XACT_HASH_MAP 2        /* a hash map */
int xact_tree_create(xact_transaction *transaction, int kind, size_t block_bytes, uint64_t *tree);
int xact_tree_get(xact_transaction *transaction, uint64_t tree, const void *key, size_t key_bytes, const void **value,
                  size_t *value_bytes);
int xact_tree_put(xact_transaction *transaction, uint64_t tree, const void *key, size_t key_bytes, const void *value,
                  size_t value_bytes);
int xact_tree_remove(xact_transaction *transaction, uint64_t tree, const void *key, size_t key_bytes);
/* The first key behind one, or the first of all behind NULL. */
int xact_tree_next(xact_transaction *transaction, uint64_t tree, const void *key, size_t key_bytes, const void **next,
                   size_t *next_bytes, const void **value, size_t *value_bytes);

#ifdef __cplusplus
}
#endif
#endif
