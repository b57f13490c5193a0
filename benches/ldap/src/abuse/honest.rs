//! The honest client: reads, searches, updates, binds and new connections, at fixed times.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sapwood_client::{Client, Error, Options, Trust};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::{ChangeKind, ChangesBuf};
use sapwood_ldap::message::{Scope, SearchRequest};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::{ENTRIES, PASSWORD};
use crate::SUFFIX;

/// Requests a second.
pub(super) const RATE: u32 = 200;
/// A request that takes longer counts as refused.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the filter of a search that is longer than others.
const LONG_BYTES: usize = 20_000;
/// The honest user's password in a form that is checked at once, so that the time of a bind is not that of a hash.
pub(super) const STORED: &str = "{SSHA}W+NUDztE+FdkeCQdpXkiuR2346xiZW5jaHB3ZA==";
/// Another password, which its updates add and take away.
const OTHER: &str = "{SSHA}V4ltGyWm1s/e+st9KUsusWW+2xNhbm90aGVyMQ==";

/// Where the honest client connects to.
pub(super) struct Honest {
    pub(super) ldap: String,
    pub(super) ldaps: String,
    pub(super) certificate: PathBuf,
    pub(super) changes: Changed,
}

/// What the honest user changes of its own entry.
#[derive(Debug, Clone, Copy)]
pub(super) enum Changed {
    /// Its password, which is all that a user may change by default
    Password,
    /// Its description: under a policy it has but one password
    Description,
}

/// How long requests took, and what was refused.
#[derive(Debug, Default)]
pub(super) struct Times {
    sorted: Vec<Duration>,
    kinds: BTreeMap<&'static str, Vec<Duration>>,
    pub(super) refused: u64,
    reasons: BTreeMap<String, u64>,
}

/// The time that such a part of all took at most.
fn at(sorted: &[Duration], part: f64) -> Duration {
    let last = sorted.len().saturating_sub(1);
    let index = (last as f64 * part).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}

impl Times {
    pub(super) fn p50(&self) -> Duration {
        at(&self.sorted, 0.5)
    }

    pub(super) fn p99(&self) -> Duration {
        at(&self.sorted, 0.99)
    }

    pub(super) fn max(&self) -> Duration {
        at(&self.sorted, 1.0)
    }

    /// How long each kind of request took: a line each.
    pub(super) fn kinds(&self) -> impl Iterator<Item = String> {
        self.kinds.iter().map(|(kind, sorted)| {
            let ms = |part| at(sorted, part).as_secs_f64() * 1e3;
            let (p50, p99, max) = (ms(0.5), ms(0.99), ms(1.0));
            let count = sorted.len();
            format!("{kind}: {count} times, p50 {p50:.1} ms, p99 {p99:.1}, at most {max:.1}")
        })
    }

    /// Why requests were refused, and how many.
    pub(super) fn reasons(&self) -> impl Iterator<Item = String> {
        self.reasons
            .iter()
            .map(|(reason, count)| format!("{count} × {reason}"))
    }
}

/// The connections that stay.
struct Connections {
    work: Client,
    binds: Client,
    hashed: Client,
    options: Options,
    ldap: String,
    ldaps: String,
    changes: Changed,
}

impl Honest {
    /// Sends for so long, and waits for the last answer.
    pub(super) async fn run(&self, duration: Duration) -> Result<Times> {
        let local = LocalSet::new();
        local.run_until(self.send(duration)).await
    }

    async fn send(&self, duration: Duration) -> Result<Times> {
        let trust = Trust::authorities(&self.certificate)?;
        let options = Options {
            trust,
            ..Options::default()
        };
        let dn = format!("cn=honest,{SUFFIX}");
        let connect = async || {
            let client = Client::connect(&self.ldap, &options).await?;
            client.bind(&dn, PASSWORD.as_bytes()).await?;
            Ok::<Client, Error>(client)
        };
        let connections = Rc::new(Connections {
            work: connect().await.context("the honest client's connection")?,
            binds: connect().await.context("the honest client's connection")?,
            hashed: connect().await.context("the honest client's connection")?,
            options: options.clone(),
            ldap: self.ldap.clone(),
            ldaps: self.ldaps.clone(),
            changes: self.changes,
        });
        let times = Rc::new(RefCell::new(Times::default()));
        let mut under_way = Vec::new();
        let start = Instant::now();
        let count = u32::try_from(duration.as_millis())? * RATE / 1000;
        ensure!(count > 0, "some time to measure");
        for number in 0..count {
            let due = start + Duration::from_secs(1) * number / RATE;
            sleep_until(due).await;
            let (connections, times) = (Rc::clone(&connections), Rc::clone(&times));
            under_way.push(tokio::task::spawn_local(async move {
                let (name, done) = match timeout(PATIENCE, connections.request(number)).await {
                    Ok((name, done)) => (name, done.map_err(|error| error.to_string())),
                    Err(_) => ("without an answer", Err("no answer".to_owned())),
                };
                let mut times = times.borrow_mut();
                times.sorted.push(due.elapsed());
                times.kinds.entry(name).or_default().push(due.elapsed());
                if let Err(reason) = done {
                    times.refused += 1;
                    *times
                        .reasons
                        .entry(format!("{name}: {reason}"))
                        .or_default() += 1;
                }
            }));
        }
        for request in under_way {
            request.await?;
        }
        let mut times = times.take();
        times.sorted.sort_unstable();
        times
            .kinds
            .values_mut()
            .for_each(|times| times.sort_unstable());
        Ok(times)
    }
}

impl Connections {
    /// One of the requests, by its number.
    async fn request(&self, number: u32) -> (&'static str, Result<(), Error>) {
        let entry = u64::from(number) * 7919 % (ENTRIES - 1) + 1;
        let person = format!("uid=u{entry:08},{SUFFIX}");
        // One in a second is of the user whose password takes its time.
        if number % RATE == 17 {
            let dn = format!("cn=slow,{SUFFIX}");
            let bound = self.hashed.bind(&dn, PASSWORD.as_bytes()).await;
            return ("hashed bind", bound);
        }
        match number % 40 {
            0 => ("connection", self.connection(&self.ldap).await),
            20 => ("TLS connection", self.connection(&self.ldaps).await),
            5 | 25 => {
                let dn = format!("cn=honest,{SUFFIX}");
                ("bind", self.binds.bind(&dn, PASSWORD.as_bytes()).await)
            }
            10 | 30 => {
                let filter = format!("(|(objectClass=*)(cn={}))", "x".repeat(LONG_BYTES));
                (
                    "long search",
                    search(&self.work, &person, Scope::Base, &filter).await,
                )
            }
            3 | 13 | 23 | 33 => ("modify", self.modify().await),
            number if number % 4 == 1 => {
                let filter = format!("(uid=u{entry:08})");
                (
                    "equality search",
                    search(&self.work, SUFFIX, Scope::Subtree, &filter).await,
                )
            }
            _ => (
                "base search",
                search(&self.work, &person, Scope::Base, "(objectClass=*)").await,
            ),
        }
    }

    /// Connects, reads the root DSE and leaves.
    async fn connection(&self, url: &str) -> Result<(), Error> {
        let client = Client::connect(url, &self.options).await?;
        search(&client, "", Scope::Base, "(objectClass=*)").await?;
        client.unbind();
        Ok(())
    }

    /// Adds and takes away a value of its own.
    async fn modify(&self) -> Result<(), Error> {
        let (attribute, value): (&[u8], &str) = match self.changes {
            Changed::Password => (b"userPassword", OTHER),
            Changed::Description => (b"description", "for a moment"),
        };
        let mut changes = ChangesBuf::default();
        changes.push(ChangeKind::Add, attribute, [value.as_bytes()]);
        changes.push(ChangeKind::Delete, attribute, [value.as_bytes()]);
        let dn = format!("cn=honest,{SUFFIX}");
        self.work.modify(&dn, changes.view()).await
    }
}

async fn search(client: &Client, base: &str, scope: Scope, filter: &str) -> Result<(), Error> {
    let filter = filter_text::parse(filter).map_err(|_| Error::UnexpectedResponse)?;
    let request = SearchRequest::new(base, scope, filter.as_filter());
    let mut results = client.search(request, Controls::EMPTY)?;
    let mut entries = 0;
    while results.next().await?.is_some() {
        entries += 1;
    }
    match entries {
        1 => Ok(()),
        _ => Err(Error::UnexpectedResponse),
    }
}
