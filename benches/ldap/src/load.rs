//! The client's side: requests made up as they are sent, every response checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sapwood_client::generate::Generator;
use sapwood_client::{Connection, Options};
use sapwood_ldap::ber::{self, Reader};
use sapwood_ldap::control::Controls;
use sapwood_ldap::filter::{Filter, put_equality_match};
use sapwood_ldap::list::{ChangeKind, ChangesBuf, OctetStrings};
use sapwood_ldap::message::{
    Authentication, BindRequest, DerefAliases, INTEGER_MAX, Message, ModifyRequest, Request,
    Response, ResponseMessage, Scope, SearchRequest,
};
use sapwood_ldap::result::ResultCode;

use crate::SUFFIX;
use crate::rows::{Row, Work};
use crate::server::{ADMIN_DN, ADMIN_PASSWORD, Server};

/// How many entries are compared with what was generated.
const VERIFIED: u64 = 500;

/// A server is at rest when it uses less than a hundredth of a processor for so long.
const REST: Duration = Duration::from_millis(300);
/// Work that a server leaves for later is waited for at most so long.
const REST_MAX: Duration = Duration::from_secs(10);

/// What has to be asked for, and how long.
pub(crate) struct Load {
    targets: Arc<Targets>,
    seed: u64,
    duration: Duration,
}

/// The people of the directory.
struct Targets {
    people: Vec<Person>,
    entries: u64,
}

struct Person {
    dn: String,
    uid: String,
}

/// The outcome of one round of one row on one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    operations: u64,
    seconds: f64,
    cpu: Duration,
}

impl Sample {
    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// Microseconds of the server's processor time per operation.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.operations as f64
    }
}

impl Load {
    pub(crate) fn new(generator: &Generator, seed: u64, seconds: f64) -> Self {
        let person = |index| Person {
            dn: generator.dn(index),
            uid: generator.uid(index),
        };
        let people = generator.people().map(person).collect();
        let targets = Arc::new(Targets {
            people,
            entries: generator.entries(),
        });
        Load {
            targets,
            seed,
            duration: Duration::from_secs_f64(seconds),
        }
    }

    /// Runs one row. Work that the server puts off until after its last answer is part of what it costs.
    pub(crate) async fn run(&self, row: &Row, server: &Server) -> Result<Sample> {
        let mut lanes = Vec::new();
        for number in 0..row.connections {
            lanes.push(Lane {
                connection: connect(server).await?,
                work: row.work,
                queue: row.queue,
                targets: Arc::clone(&self.targets),
                random: Random(self.seed ^ ((number as u64 + 1) << 32)),
                id: 0,
                tally: Tally::default(),
            });
        }
        rest(server).await?;
        let cpu = server.cpu()?;
        let start = Instant::now();
        let end = start + self.duration;
        let tasks: Vec<_> = lanes
            .into_iter()
            .map(|lane| tokio::spawn(lane.run(end)))
            .collect();
        let mut operations = 0;
        for task in tasks {
            operations += task.await??;
        }
        let seconds = start.elapsed().as_secs_f64();
        rest(server).await?;
        ensure!(operations > 0, "nothing was answered");
        Ok(Sample {
            operations,
            seconds,
            cpu: server.cpu()?.saturating_sub(cpu),
        })
    }

    /// Reads entries all over the tree and compares them with what was generated; how many.
    pub(crate) async fn verify(&self, server: &Server, generator: &Generator) -> Result<u64> {
        let mut connection = connect(server).await?;
        let step = (generator.entries() / VERIFIED).max(1) as usize;
        let mut seen = 0;
        for index in (0..generator.entries()).step_by(step) {
            let entry = generator.entry(index);
            let mut request = Vec::new();
            put_search(
                &mut request,
                2,
                &entry.dn,
                Scope::Base,
                Filter::OBJECT_CLASS_PRESENT,
            );
            connection.send(&request).await?;
            let mut expected: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
            for (description, value) in &entry.values {
                expected
                    .entry(description.to_ascii_lowercase())
                    .or_default()
                    .push(value.as_bytes().to_vec());
            }
            let mut found: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
            let reply = ResponseMessage::decode(connection.receive().await?)?;
            let Response::SearchEntry(answer) = reply.op else {
                bail!("{}: {:?} in place of the entry", entry.dn, reply.op);
            };
            for attribute in answer.attributes {
                let description =
                    String::from_utf8_lossy(attribute.description).to_ascii_lowercase();
                found
                    .entry(description)
                    .or_default()
                    .extend(attribute.values.iter().map(<[u8]>::to_vec));
            }
            // RFC 4511 leaves the order of values open.
            expected
                .values_mut()
                .chain(found.values_mut())
                .for_each(|values| values.sort());
            ensure!(
                found == expected,
                "{}: {found:?} in place of {expected:?}",
                entry.dn
            );
            let done = ResponseMessage::decode(connection.receive().await?)?;
            ensure!(
                matches!(done.op, Response::SearchDone(result) if result.code == ResultCode::Success)
            );
            seen += 1;
        }
        Ok(seen)
    }
}

/// A connection bound as the administrator.
async fn connect(server: &Server) -> Result<Connection> {
    let mut connection = Connection::open(&server.url, &Options::default()).await?;
    let authentication = Authentication::Simple(ADMIN_PASSWORD.as_bytes());
    let bind = Request::Bind(BindRequest {
        version: 3,
        name: ADMIN_DN,
        authentication,
    });
    let mut request = Vec::new();
    Message {
        id: 1,
        op: bind,
        controls: Controls::EMPTY,
    }
    .encode(&mut request);
    connection.send(&request).await?;
    let response = ResponseMessage::decode(connection.receive().await?)?;
    let result = response.op.result().context("no answer to the bind")?;
    ensure!(
        result.code == ResultCode::Success,
        "bind: {} {}",
        result.code,
        result.diagnostic
    );
    Ok(connection)
}

/// Waits until the server has nothing to do.
async fn rest(server: &Server) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < REST_MAX {
        let before = server.cpu()?;
        tokio::time::sleep(REST).await;
        // The kernel counts in hundredths of a second: one of them may be a rounding.
        if server.cpu()? - before <= Duration::from_millis(10) {
            break;
        }
    }
    Ok(())
}

fn put_search(out: &mut Vec<u8>, id: u32, base: &str, scope: Scope, filter: Filter<'_>) {
    let search = SearchRequest {
        base,
        scope,
        deref_aliases: DerefAliases::Never,
        size_limit: 0,
        time_limit: 0,
        types_only: false,
        filter,
        attributes: OctetStrings::EMPTY,
    };
    Message {
        id,
        op: Request::Search(search),
        controls: Controls::EMPTY,
    }
    .encode(out);
}

/// One connection with its share of the load.
struct Lane {
    connection: Connection,
    work: Work,
    queue: usize,
    targets: Arc<Targets>,
    random: Random,
    id: u32,
    tally: Tally,
}

/// What was asked and answered on a connection.
#[derive(Default)]
struct Tally {
    under_way: usize,
    /// Requests that were answered with success.
    answered: u64,
    /// Entries that came.
    entries: u64,
}

impl Lane {
    /// Keeps `queue` requests under way until the time is over, then waits for the last answers; how many operations
    /// were done.
    async fn run(mut self, end: Instant) -> Result<u64> {
        let mut burst = Vec::new();
        loop {
            burst.clear();
            if Instant::now() < end {
                while self.tally.under_way < self.queue {
                    self.put_request(&mut burst)?;
                }
            }
            if self.tally.under_way == 0 {
                break;
            }
            if !burst.is_empty() {
                self.connection.send(&burst).await?;
            }
            // What has come is worked through before more is sent.
            let before = self.tally.under_way;
            while self.tally.under_way == before {
                self.tally.count(self.connection.receive().await?)?;
                while let Some(message) = self.connection.received()? {
                    self.tally.count(message)?;
                }
            }
        }
        let Tally {
            answered, entries, ..
        } = self.tally;
        let expected = match self.work {
            Work::Scan => answered * self.targets.entries,
            Work::Base | Work::Equality => answered,
            Work::Modify => 0,
        };
        ensure!(
            entries == expected,
            "{entries} entries came in place of {expected}"
        );
        Ok(if self.work == Work::Scan {
            entries
        } else {
            answered
        })
    }

    fn put_request(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.id = self.id % INTEGER_MAX + 1;
        self.tally.under_way += 1;
        let targets = Arc::clone(&self.targets);
        let person = &targets.people[self.random.below(targets.people.len())];
        match self.work {
            Work::Scan => put_search(
                out,
                self.id,
                SUFFIX,
                Scope::Subtree,
                Filter::OBJECT_CLASS_PRESENT,
            ),
            Work::Base => put_search(
                out,
                self.id,
                &person.dn,
                Scope::Base,
                Filter::OBJECT_CLASS_PRESENT,
            ),
            Work::Equality => {
                let mut filter = Vec::with_capacity(64);
                put_equality_match(&mut filter, b"uid", person.uid.as_bytes());
                put_search(
                    out,
                    self.id,
                    SUFFIX,
                    Scope::Subtree,
                    Filter::from_ber(&filter)?,
                );
            }
            Work::Modify => {
                let number = format!(
                    "+49 {} {}",
                    30 + self.random.below(900),
                    100_000 + self.random.below(9_900_000)
                );
                let mut changes = ChangesBuf::default();
                changes.push(ChangeKind::Replace, b"telephoneNumber", [number.as_bytes()]);
                let op = Request::Modify(ModifyRequest {
                    dn: &person.dn,
                    changes: changes.view(),
                });
                Message {
                    id: self.id,
                    op,
                    controls: Controls::EMPTY,
                }
                .encode(out);
            }
        }
        Ok(())
    }
}

impl Tally {
    /// Entries are only counted, so that this side stays cheap beside the server; results are read and must be good.
    fn count(&mut self, message: &[u8]) -> Result<()> {
        const SEARCH_RESULT_ENTRY: u8 = 0x64;
        let mut fields = Reader::new(Reader::new(message).expect(ber::SEQUENCE, "LDAPMessage")?);
        fields.integer("messageID")?;
        if fields.peek() == Some(SEARCH_RESULT_ENTRY) {
            self.entries += 1;
            return Ok(());
        }
        let message = ResponseMessage::decode(message)?;
        let result = message
            .op
            .result()
            .with_context(|| format!("unexpected: {:?}", message.op))?;
        ensure!(
            result.code == ResultCode::Success,
            "{} {}",
            result.code,
            result.diagnostic
        );
        self.answered += 1;
        self.under_way -= 1;
        Ok(())
    }
}

/// SplitMix64: evenly spread, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(mixed ^ (mixed >> 31)) * end as u128) >> 64) as usize
    }
}
