//! Adds many entries over one connection without waiting for each.

use std::collections::{HashMap, VecDeque};

use sapwood_ldap::control::Controls;
use sapwood_ldap::list::Attributes;
use sapwood_ldap::message::{AddRequest, MESSAGE_ID_MAX, Message, Request, ResponseMessage};
use sapwood_ldap::result::ResultCode;

use crate::connection::Connection;
use crate::error::{Error, OperationError};

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
    under_way: HashMap<u32, Entry>,
    waiting: VecDeque<Entry>,
    waiting_bytes: usize,
    burst: Vec<u8>,
    /// Whether something was added since those that wait were last sent.
    has_added: bool,
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
    /// Keeps up to `queue` requests under way, at least one.
    pub fn new(connection: Connection, queue: usize) -> Self {
        Adder {
            connection,
            queue: queue.max(1),
            next_id: 1,
            under_way: HashMap::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            burst: Vec::new(),
            has_added: false,
            added: 0,
            refused: Vec::new(),
        }
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

    /// Waits for all answers; entries whose parents have come are sent again as long as that adds any.
    pub async fn finish(&mut self) -> Result<(), Error> {
        loop {
            self.flush().await?;
            while !self.under_way.is_empty() {
                self.receive().await?;
            }
            if self.waiting.is_empty() || !std::mem::take(&mut self.has_added) {
                break;
            }
            for _ in 0..self.waiting.len() {
                if let Some(entry) = self.waiting.pop_front() {
                    self.waiting_bytes -= entry.bytes();
                    self.put(entry).await?;
                }
            }
        }
        while let Some(entry) = self.waiting.pop_front() {
            self.waiting_bytes -= entry.bytes();
            let error = OperationError {
                code: ResultCode::NoSuchObject,
                matched_dn: String::new(),
                diagnostic: "there is no entry above it".to_owned(),
                referral: Vec::new(),
            };
            self.refuse(entry, error);
        }
        Ok(())
    }

    async fn put(&mut self, entry: Entry) -> Result<(), Error> {
        if self.under_way.len() >= self.queue {
            self.flush().await?;
            // A part of the queue at a time, so that the server gets bursts as well.
            while self.under_way.len() > self.queue / 2 {
                self.receive().await?;
            }
        }
        let id = self.next_id;
        self.next_id = id % MESSAGE_ID_MAX + 1;
        let add = AddRequest {
            dn: &entry.dn,
            attributes: Attributes::from_checked(&entry.attributes),
        };
        Message {
            id,
            op: Request::Add(add),
            controls: Controls::EMPTY,
        }
        .encode(&mut self.burst);
        self.under_way.insert(id, entry);
        if self.burst.len() >= BURST_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
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
        let (id, code, error) = (message.id, result.code, OperationError::new(result));
        let Some(entry) = self.under_way.remove(&id) else {
            return Err(match id {
                0 => Error::Disconnected(error),
                _ => Error::UnexpectedResponse,
            });
        };
        match code {
            ResultCode::Success => {
                self.added += 1;
                self.has_added = true;
            }
            ResultCode::NoSuchObject if self.waiting_bytes + entry.bytes() <= WAITING_BYTES_MAX => {
                self.waiting_bytes += entry.bytes();
                self.waiting.push_back(entry);
            }
            _ => self.refuse(entry, error),
        }
        Ok(())
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
