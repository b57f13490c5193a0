//! Builds the indexes that modifies of `cn=config` begin, on a thread of its own. The modify is answered when it is
//! durable; searches use the index when it is complete. Changes of the schema that all entries have to be looked at for
//! are finished here, too. What a server that ended before has left to do is done.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use sapwood_directory::Directory;
use sapwood_directory::engine::Engine;

use crate::committed::Committed;

/// The thread. Dropping it ends it; what it is building is built from the start the next time.
#[derive(Debug)]
pub(crate) struct IndexBuilder {
    wake: SyncSender<()>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl IndexBuilder {
    /// Begins to build indexes of a directory.
    pub(crate) fn start<E: Engine>(
        directory: Directory<E>,
        committed: Committed,
    ) -> io::Result<IndexBuilder> {
        // One message says all there is to say.
        let (wake, woken) = mpsc::sync_channel(1);
        directory.set_index_builder(wake.clone());
        let stopping = Arc::<AtomicBool>::default();
        let is_stopping = Arc::clone(&stopping);
        let thread = thread::Builder::new()
            .name("indexes".into())
            .spawn(move || build(&directory, &committed, &woken, &is_stopping))?;
        Ok(IndexBuilder {
            wake,
            stopping,
            thread: Some(thread),
        })
    }
}

impl Drop for IndexBuilder {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // If there is a message already, the thread looks, too.
        let _ = self.wake.try_send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn build<E: Engine>(
    directory: &Directory<E>,
    committed: &Committed,
    woken: &Receiver<()>,
    stopping: &AtomicBool,
) {
    let goes_on = |_| !stopping.load(Ordering::Acquire);
    loop {
        if let Err(error) = directory.build_indexes(goes_on) {
            tracing::error!(
                "indexes are not built: {error}. This is tried again at the next start"
            );
        }
        match directory.finish_schema_change(goes_on) {
            Ok(None) => {}
            Ok(Some(why)) => tracing::warn!("a change of the schema was given up: {why}"),
            Err(error) => tracing::error!(
                "a change of the schema waits: {error}. This is tried again at the next start"
            ),
        }
        // Answers may wait for it.
        committed.announce();
        if woken.recv().is_err() || !goes_on(0) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use sapwood_directory::engine::Embedded;
    use sapwood_ldap::list::ChangeKind;
    use sapwood_testkit::directories::{config, modify, options, person, seed, succeed};

    use super::*;

    /// Begins an index.
    fn begin(directory: &Directory, spec: &str) {
        let change = (ChangeKind::Add, "olcDbIndex", &[spec][..]);
        succeed(directory, modify("olcDatabase={1}mdb,cn=config", &[change]));
    }

    /// Waits until all indexes are complete.
    fn wait(directory: &Directory) {
        while !directory
            .indexes()
            .unwrap()
            .iter()
            .all(|index| index.is_complete)
        {
            thread::yield_now();
        }
    }

    #[test]
    fn indexes_are_built_that_were_begun_before_and_afterwards() {
        let engine = Embedded::in_memory().unwrap();
        let directory = Directory::create_on(engine, &config(), options()).unwrap();
        seed(&directory);
        succeed(&directory, person("anne"));
        begin(&directory, "sn eq");
        let are_complete = |directory: &Directory| {
            directory
                .indexes()
                .unwrap()
                .iter()
                .all(|index| index.is_complete)
        };
        assert!(!are_complete(&directory));
        let builder = IndexBuilder::start(directory.clone(), Committed::new()).unwrap();
        wait(&directory);
        for spec in ["sn sub", "mail eq", "uid pres"] {
            begin(&directory, spec);
        }
        wait(&directory);
        drop(builder);
        // Nobody builds any more.
        begin(&directory, "title eq");
        assert!(!are_complete(&directory));
        assert_eq!(
            directory.check(|_| {}).unwrap().problems,
            Vec::<String>::new()
        );
    }
}
