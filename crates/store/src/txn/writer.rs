//! The writer lock, and what the heir of a dead writer does.

use sapwood_wal::lock::Taken;

use crate::env::{Env, Inner};
use crate::error::Result;
use crate::log::append::AppendLock;
use crate::log::checkpoint;

/// Held by the one write transaction.
pub(super) struct WriterLock(Env);

impl WriterLock {
    pub(super) fn take(env: &Env) -> Result<Self> {
        let inner = env.inner();
        inner.check_may_write()?;
        let me = inner.membership.index();
        let lock = &inner.region.writer;
        let taken = lock.lock(me, |process| inner.is_alive(process));
        Self(env.clone()).inherit(taken)
    }

    pub(super) fn try_take(env: &Env) -> Result<Option<Self>> {
        let inner = env.inner();
        inner.check_may_write()?;
        let me = inner.membership.index();
        let lock = &inner.region.writer;
        match lock.try_lock(me, |process| inner.is_alive(process)) {
            Some(taken) => Self(env.clone()).inherit(taken).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn env(&self) -> &Env {
        &self.0
    }

    fn inherit(self, taken: Taken) -> Result<Self> {
        let inner = self.0.inner();
        inner.check_sound()?;
        if taken == Taken::Inherited {
            // The one that took the lock after a failure here would know of no heritage, and write over it.
            complete(inner).inspect_err(|_| inner.poison())?;
        }
        Ok(self)
    }
}

/// Completes what a dead writer left: a record that was appended whole is applied, made durable and shown; anything
/// less is cut off. It may have been a record without pages, which a checkpoint has to follow.
fn complete(inner: &Inner) -> Result<()> {
    drop(AppendLock::take(inner)?);
    inner.region.forget_unapplied();
    checkpoint::settle(inner)
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        let inner = self.0.inner();
        if !inner.membership.is_forked() {
            inner.region.writer.unlock();
        }
    }
}
