//! Adds many entries over one connection without waiting for each.

mod lburp;

use std::collections::{HashMap, VecDeque};

use sapwood_ldap::control::Controls;
use sapwood_ldap::dn::Dn;
use sapwood_ldap::list::Attributes;
use sapwood_ldap::message::{
    AddRequest, MESSAGE_ID_MAX, Message, Request, Response, ResponseMessage,
};
use sapwood_ldap::result::ResultCode;

use self::lburp::UpdateStream;
use crate::connection::Connection;
use crate::error::{Error, OperationError};

pub use self::lburp::speaks_lburp;

/// Requests are gathered up to this many bytes before they are written.
const BURST_BYTES: usize = 64 << 10;
/// Entries that wait for the entry above them take at most so many bytes; more are refused as the server says.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Adds entries and keeps what became of them.
///
/// A server may work on several requests of a connection at the same time, and entries may come before those above
/// them: what is refused with noSuchObject is sent again when others have been added.
#[derive(Debug)]
pub struct Adder {
    connection: Connection,
    queue: usize,
    next_id: u32,
    /// The bulk update that the additions are part of.
    stream: Option<UpdateStream>,
    under_way: HashMap<u32, Sent>,
    /// How many entries these are.
    entries_under_way: usize,
    waiting: VecDeque<Entry>,
    waiting_bytes: usize,
    burst: Vec<u8>,
    added: u64,
    refused: Vec<Refused>,
}

/// An entry that is not there yet.
#[derive(Debug)]
struct Entry {
    place: (usize, u64),
    dn: String,
    attributes: Vec<u8>,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.dn.len() + self.attributes.len()
    }

    fn request(&self) -> Request<'_> {
        Request::Add(AddRequest {
            dn: &self.dn,
            attributes: Attributes::from_checked(&self.attributes),
        })
    }
}

/// What a request adds.
#[derive(Debug)]
enum Sent {
    Add(Entry),
    Update(Vec<Entry>),
}

/// An entry that was not added.
#[derive(Debug)]
pub struct Refused {
    /// What [`Adder::add`] was given with it.
    pub place: (usize, u64),
    /// Its name.
    pub dn: String,
    /// Its attributes, as BER.
    pub attributes: Vec<u8>,
    /// What the server says.
    pub error: OperationError,
}

impl Adder {
    /// Keeps up to `queue` additions under way, at least one. Each is a request of its own.
    pub fn new(connection: Connection, queue: usize) -> Self {
        Adder {
            connection,
            queue: queue.max(1),
            next_id: 1,
            stream: None,
            under_way: HashMap::new(),
            entries_under_way: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            burst: Vec::new(),
            added: 0,
            refused: Vec::new(),
        }
    }

    /// Makes what is added from now on part of a bulk update (LBURP, RFC 4373): a quarter of the queue, but at most 64
    /// entries or some 64 KiB, travel in one request. To be called before anything is added; [`end`](Self::end) ends
    /// the bulk update.
    ///
    /// # Errors
    /// When the server refuses it, which leaves the adder as it was, or when the connection fails.
    pub async fn start_lburp(&mut self) -> Result<(), Error> {
        let id = self.take_id();
        let started = UpdateStream::start(&mut self.connection, id, self.queue).await;
        // The end of one that was started in vain has the next one.
        self.take_id();
        self.stream = Some(started?);
        Ok(())
    }

    /// Adds an entry; `place` is for the caller to know it by. Waits only when the queue is full.
    ///
    /// # Errors
    /// When the connection fails. That an entry is refused is told by [`take_refused`](Self::take_refused).
    pub async fn add(
        &mut self,
        place: (usize, u64),
        dn: &str,
        attributes: Attributes<'_>,
    ) -> Result<(), Error> {
        self.put(Entry {
            place,
            dn: dn.to_owned(),
            attributes: attributes.as_ber().to_vec(),
        })
        .await
    }

    /// How many entries were added so far.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Entries that were refused since the last call.
    pub fn take_refused(&mut self) -> Vec<Refused> {
        std::mem::take(&mut self.refused)
    }

    /// Waits for all answers.
    pub async fn settle(&mut self) -> Result<(), Error> {
        self.flush().await?;
        while !self.under_way.is_empty() {
            self.receive().await?;
        }
        Ok(())
    }

    /// Whether entries wait for the one above them.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends the entries again that wait for the one above them. Worth it when others were added since, by whomever.
    pub async fn send_waiting(&mut self) -> Result<(), Error> {
        for _ in 0..self.waiting.len() {
            if let Some(entry) = self.waiting.pop_front() {
                self.waiting_bytes -= entry.bytes();
                self.put(entry).await?;
            }
        }
        Ok(())
    }

    /// Refuses the entries that still wait for the one above them, and ends the bulk update if one was started. To be
    /// called when all has [settled](Self::settle).
    pub async fn end(&mut self) -> Result<(), Error> {
        while let Some(entry) = self.waiting.pop_front() {
            self.waiting_bytes -= entry.bytes();
            let parent = Dn::parse(&entry.dn).ok().and_then(Dn::parent);
            let parent = parent.unwrap_or_default();
            let error = OperationError {
                code: ResultCode::NoSuchObject,
                matched_dn: String::new(),
                diagnostic: format!("there is no entry '{parent}', which would be above it"),
                referral: Vec::new(),
            };
            self.refuse(entry, error);
        }
        if let Some(mut stream) = self.stream.take() {
            let id = self.take_id();
            stream.end(&mut self.connection, id).await?;
        }
        Ok(())
    }

    fn take_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = id % MESSAGE_ID_MAX + 1;
        id
    }

    async fn put(&mut self, entry: Entry) -> Result<(), Error> {
        let gathered = self.stream.as_ref().map_or(0, UpdateStream::gathered);
        if self.entries_under_way + gathered >= self.queue {
            self.flush().await?;
            // A part of the queue at a time, so that the server gets bursts as well.
            while self.entries_under_way > self.queue / 2 {
                self.receive().await?;
            }
        }
        if let Some(stream) = &mut self.stream {
            if stream.push(entry) {
                self.put_update();
            }
            return self.flush_burst().await;
        }
        let id = self.take_id();
        let (op, controls) = (entry.request(), Controls::EMPTY);
        Message { id, op, controls }.encode(&mut self.burst);
        self.under_way.insert(id, Sent::Add(entry));
        self.entries_under_way += 1;
        self.flush_burst().await
    }

    /// Makes what was gathered a request of the bulk update. It is written with others: the server does what comes
    /// together as one.
    fn put_update(&mut self) {
        let id = self.take_id();
        if let Some(stream) = &mut self.stream {
            let entries = stream.put_request(id, &mut self.burst);
            self.entries_under_way += entries.len();
            self.under_way.insert(id, Sent::Update(entries));
        }
    }

    async fn flush_burst(&mut self) -> Result<(), Error> {
        match self.burst.len() >= BURST_BYTES {
            true => self.flush().await,
            false => Ok(()),
        }
    }

    async fn flush(&mut self) -> Result<(), Error> {
        if self.stream.as_ref().is_some_and(|own| own.gathered() > 0) {
            self.put_update();
        }
        if !self.burst.is_empty() {
            self.connection.send(&self.burst).await?;
            self.burst.clear();
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<(), Error> {
        let message = ResponseMessage::decode(self.connection.receive().await?)?;
        let Some(result) = message.op.result() else {
            return Err(Error::UnexpectedResponse);
        };
        match (self.under_way.remove(&message.id), &message.op) {
            (Some(Sent::Add(entry)), Response::Add(_)) => {
                let failed = result.code != ResultCode::Success;
                let error = failed.then(|| OperationError::new(result));
                self.answered(entry, error);
            }
            (Some(Sent::Update(entries)), Response::Extended(response)) => {
                let mut failed = lburp::failed(response, entries.len())?
                    .into_iter()
                    .peekable();
                for (at, entry) in entries.into_iter().enumerate() {
                    let mut error = None;
                    // An operation has one result.
                    while let Some((_, next)) = failed.next_if(|(number, _)| *number <= at) {
                        error = Some(next);
                    }
                    self.answered(entry, error);
                }
            }
            _ => return Err(lburp::unexpected(&message)),
        }
        Ok(())
    }

    fn answered(&mut self, entry: Entry, error: Option<OperationError>) {
        self.entries_under_way -= 1;
        match error {
            None => self.added += 1,
            Some(error)
                if error.code == ResultCode::NoSuchObject
                    && self.waiting_bytes + entry.bytes() <= WAITING_BYTES_MAX =>
            {
                self.waiting_bytes += entry.bytes();
                self.waiting.push_back(entry);
            }
            Some(error) => self.refuse(entry, error),
        }
    }

    fn refuse(&mut self, entry: Entry, error: OperationError) {
        self.refused.push(Refused {
            place: entry.place,
            dn: entry.dn,
            attributes: entry.attributes,
            error,
        });
    }
}
