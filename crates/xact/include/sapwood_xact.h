/* Memory-mapped transactions: loads and stores in a mapped file, made atomic, isolated and durable, for several threads and
 * processes at once. Link with libsapwood_xact.a, -lpthread -ldl -lm.
 *
 * Functions that can fail return an XACT_ code; what went wrong is told by xact_message. A space may be used by all threads of a
 * process, a transaction by the thread that began it. A child process opens the space itself. */
#ifndef SAPWOOD_XACT_H
#define SAPWOOD_XACT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XACT_OK 0
/* Another transaction got in the way. The transaction has been begun again: run it once more. */
#define XACT_CONFLICT 1
/* See xact_message. */
#define XACT_ERROR 2

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

/* Opens the space in a folder, or makes one of so many bytes (more than are reserved), which count only for a new space. */
int xact_open(const char *folder, int mode, uint64_t bytes, xact_space **space);
/* The mode of a space, with XACT_EVENTUAL if that was added, and its size. */
int xact_mode(const xact_space *space);
uint64_t xact_bytes(const xact_space *space);
/* Closes it, after all its transactions have ended. */
void xact_close(xact_space *space);

/* Begins a transaction that reads, or reads and writes. While one that writes runs in this thread, what begins on the same space, also
 * if its folder was opened twice, is a part of it: it sees what that one has written, its commit is only its end, and when it is aborted the one around it can no
 * longer be committed. */
int xact_begin(xact_space *space, int access, xact_transaction **transaction);
/* Commits: what was written is on the disk when this returns XACT_OK, unless the space was made with XACT_EVENTUAL. The
 * transaction is gone then, and after XACT_ERROR; after XACT_CONFLICT it has been begun again. */
int xact_commit(xact_transaction *transaction);
/* Gives a transaction up. */
void xact_abort(xact_transaction *transaction);

/* Where the space is in memory while the transaction runs; NULL in explicit mode. */
void *xact_map(const xact_transaction *transaction);
/* Says that bytes will be read or written: before they are handed to a system call, and to spare faults. */
int xact_set_page_access(xact_transaction *transaction, uint64_t offset, uint64_t bytes, int access);
/* Bytes to read, or to write to, in any mode; NULL on an error. Valid until the next call on the transaction but xact_read. */
const void *xact_read(xact_transaction *transaction, uint64_t offset, size_t bytes);
void *xact_write(xact_transaction *transaction, uint64_t offset, size_t bytes);

/* Takes and gives back areas of the space, and keeps the offset from which everything is found. */
int xact_allocate(xact_transaction *transaction, uint64_t bytes, uint64_t *offset);
int xact_free(xact_transaction *transaction, uint64_t offset, uint64_t bytes);
int xact_root(xact_transaction *transaction, uint64_t *offset);
int xact_set_root(xact_transaction *transaction, uint64_t offset);

/* What went wrong last in this thread. Valid until the next call that fails. */
const char *xact_message(void);

#ifdef __cplusplus
}
#endif
#endif
