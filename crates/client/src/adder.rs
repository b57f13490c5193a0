//! Adds many entries over one connection, without waiting for each.

mod lburp;

use std::collections::{HashMap, VecDeque};

use sapwood_ldap::controls::Controls;
use sapwood_ldap::dn::Dn;
use sapwood_ldap::limits::MESSAGE_ID_MAX;
use sapwood_ldap::list::Attributes;
use sapwood_ldap::message::{AddRequest, Message, Request, Response, ResponseMessage};
use sapwood_ldap::result::ResultCode;

use self::lburp::UpdateStream;
use crate::connection::Connection;
use crate::error::{Error, OperationError};

pub use self::lburp::speaks_lburp;

/// Requests are written when they have this many bytes.
const OUTPUT_BYTES: usize = 64 << 10;
/// The most bytes of entries that wait for their parent. Entries beyond are refused with the server's answer.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Adds entries, and keeps those that are refused.
///
/// A server may work on several requests of a connection at the same time, and an entry may come before its parent. An
/// entry that is refused with noSuchObject therefore waits, and [`send_waiting`](Self::send_waiting) sends it again.
#[derive(Debug)]
pub struct Adder {
    connection: Connection,
    queue: usize,
    next_id: u32,
    /// The bulk update, if one was started.
    stream: Option<UpdateStream>,
    in_flight: HashMap<u32, Sent>,
    /// How many entries the requests in flight have together.
    entries_in_flight: usize,
    waiting: VecDeque<Entry>,
    waiting_bytes: usize,
    output: Vec<u8>,
    added: u64,
    refused: Vec<Refused>,
}

/// An entry that is not added yet.
#[derive(Debug)]
struct Entry {
    position: (usize, u64),
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

/// The entries of a request in flight.
#[derive(Debug)]
enum Sent {
    Add(Entry),
    Update(Vec<Entry>),
}

/// An entry that was not added.
#[derive(Debug)]
pub struct Refused {
    /// The position that [`Adder::add`] was given.
    pub position: (usize, u64),
    /// Its name.
    pub dn: String,
    /// Its attributes, as BER.
    pub attributes: Vec<u8>,
    /// The server's answer.
    pub error: OperationError,
}

impl Adder {
    /// Keeps up to `queue` additions in flight, at least one. Each is a request of its own.
    pub fn new(connection: Connection, queue: usize) -> Self {
        Adder {
            connection,
            queue: queue.max(1),
            next_id: 1,
            stream: None,
            in_flight: HashMap::new(),
            entries_in_flight: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            output: Vec::new(),
            added: 0,
            refused: Vec::new(),
        }
    }

    /// Starts a bulk update (LBURP, RFC 4373), of which all additions are part. One request holds a quarter of the
    /// queue, but at most 64 entries or some 64 KiB. Call it before anything is added. [`end`](Self::end) ends the bulk
    /// update.
    ///
    /// # Errors
    /// When the server refuses it, which leaves the adder as it was, or when the connection fails.
    pub async fn start_lburp(&mut self) -> Result<(), Error> {
        let id = self.take_id();
        let started = UpdateStream::start(&mut self.connection, id, self.queue).await;
        // A bulk update that is given up at once has used the next ID for its end.
        self.take_id();
        self.stream = Some(started?);
        Ok(())
    }

    /// Adds an entry. Waits only when the queue is full. `position` comes back with the entry if it is refused.
    ///
    /// # Errors
    /// When the connection fails. Refused entries come from [`take_refused`](Self::take_refused).
    pub async fn add(
        &mut self,
        position: (usize, u64),
        dn: &str,
        attributes: Attributes<'_>,
    ) -> Result<(), Error> {
        self.put(Entry {
            position,
            dn: dn.to_owned(),
            attributes: attributes.as_ber().to_vec(),
        })
        .await
    }

    /// How many entries the server has added so far.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// The entries that were refused since the last call.
    pub fn take_refused(&mut self) -> Vec<Refused> {
        std::mem::take(&mut self.refused)
    }

    /// Waits until every addition is answered.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn settle(&mut self) -> Result<(), Error> {
        self.flush().await?;
        while !self.in_flight.is_empty() {
            self.receive().await?;
        }
        Ok(())
    }

    /// Whether entries wait for their parent.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends the entries again that wait for their parent. It helps when other entries were added since.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn send_waiting(&mut self) -> Result<(), Error> {
        for _ in 0..self.waiting.len() {
            if let Some(entry) = self.waiting.pop_front() {
                self.waiting_bytes -= entry.bytes();
                self.put(entry).await?;
            }
        }
        Ok(())
    }

    /// Refuses the entries that still wait for their parent, and ends the bulk update if one was started. Call it when
    /// all additions have [settled](Self::settle).
    ///
    /// # Errors
    /// When the connection fails, or the server refuses to end the bulk update.
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
        let pending = self.stream.as_ref().map_or(0, UpdateStream::pending);
        if self.entries_in_flight + pending >= self.queue {
            self.flush().await?;
            // Half of the queue is emptied at once, so that the server gets bursts.
            while self.entries_in_flight > self.queue / 2 {
                self.receive().await?;
            }
        }
        if let Some(stream) = &mut self.stream {
            if stream.push(entry) {
                self.put_update();
            }
            return self.flush_output().await;
        }
        let id = self.take_id();
        let (op, controls) = (entry.request(), Controls::EMPTY);
        Message { id, op, controls }.encode(&mut self.output);
        self.in_flight.insert(id, Sent::Add(entry));
        self.entries_in_flight += 1;
        self.flush_output().await
    }

    /// Makes a request of the bulk update from the pending entries. It is written together with others, because the
    /// server applies what arrives together in one batch.
    fn put_update(&mut self) {
        let id = self.take_id();
        if let Some(stream) = &mut self.stream {
            let entries = stream.put_request(id, &mut self.output);
            self.entries_in_flight += entries.len();
            self.in_flight.insert(id, Sent::Update(entries));
        }
    }

    async fn flush_output(&mut self) -> Result<(), Error> {
        match self.output.len() >= OUTPUT_BYTES {
            true => self.flush().await,
            false => Ok(()),
        }
    }

    async fn flush(&mut self) -> Result<(), Error> {
        if self.stream.as_ref().is_some_and(|own| own.pending() > 0) {
            self.put_update();
        }
        if !self.output.is_empty() {
            self.connection.send(&self.output).await?;
            self.output.clear();
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<(), Error> {
        let message = ResponseMessage::decode(self.connection.receive().await?)?;
        let Some(result) = message.op.result() else {
            return Err(Error::UnexpectedResponse);
        };
        match (self.in_flight.remove(&message.id), &message.op) {
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
        self.entries_in_flight -= 1;
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
            position: entry.position,
            dn: entry.dn,
            attributes: entry.attributes,
            error,
        });
    }
}
