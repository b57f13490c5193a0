//! The client's side of a bulk update (LBURP, RFC 4373): packs additions into update requests.

use sapwood_ldap::controls::Controls;
use sapwood_ldap::extended::{
    END_LBURP, EndLburp, LBURP_INCREMENTAL, LBURP_UPDATE, LburpUpdate, OperationResults,
    START_LBURP, StartLburp, UpdateOperationsBuf, max_operations, next_sequence_number,
};
use sapwood_ldap::filter::Filter;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{
    ExtendedRequest, ExtendedResponse, Message, Request, Response, ResponseMessage, Scope,
    SearchRequest,
};
use sapwood_ldap::result::ResultCode;

use super::Entry;
use crate::connection::Connection;
use crate::error::{Error, OperationError};

/// The most operations in one request. With longer requests the server would wait for their end.
const OPERATIONS_MAX: usize = 64;
/// A request is sent when it has this many bytes.
const REQUEST_BYTES: usize = 64 << 10;

/// The update stream of a connection.
#[derive(Debug)]
pub(super) struct UpdateStream {
    /// The number of the next request.
    sequence_number: u32,
    /// The most operations in one request.
    operations_max: usize,
    /// The next request, encoded.
    operations: UpdateOperationsBuf,
    /// Its entries.
    pending: Vec<Entry>,
    value: Vec<u8>,
}

/// Whether the server's root DSE says that it takes bulk updates of the incremental style. The connection may have
/// nothing in flight.
///
/// # Errors
/// When the connection fails or the server's answer is no answer to a search.
pub async fn speaks_lburp(connection: &mut Connection) -> Result<bool, Error> {
    let attributes: OctetStringsBuf = ["supportedExtension", "supportedFeatures"]
        .into_iter()
        .collect();
    let search = SearchRequest {
        attributes: attributes.view(),
        ..SearchRequest::new("", Scope::Base, Filter::OBJECT_CLASS_PRESENT)
    };
    send(connection, 1, Request::Search(search)).await?;
    let needed = [START_LBURP, LBURP_UPDATE, END_LBURP, LBURP_INCREMENTAL];
    let mut is_there = [false; 4];
    loop {
        let message = ResponseMessage::decode(connection.receive().await?)?;
        match message.op {
            Response::SearchEntry(entry) => {
                let values = entry.attributes.iter().flat_map(|own| own.values.iter());
                for value in values {
                    let same = |oid: &&str| oid.as_bytes() == value;
                    if let Some(at) = needed.iter().position(same) {
                        is_there[at] = true;
                    }
                }
            }
            // A root DSE that may not be read says nothing.
            Response::SearchDone(_) => return Ok(is_there == [true; 4]),
            Response::SearchReference(_) | Response::Intermediate(_) => {}
            _ => return Err(unexpected(&message)),
        }
    }
}

impl UpdateStream {
    /// Starts a bulk update, which may have up to `queue` additions in flight. The connection may have nothing else in
    /// flight.
    pub(super) async fn start(
        connection: &mut Connection,
        id: u32,
        queue: usize,
    ) -> Result<Self, Error> {
        let mut value = Vec::new();
        let start = StartLburp {
            update_style: LBURP_INCREMENTAL,
        };
        start.encode(&mut value);
        let response = extended(connection, id, START_LBURP, &value).await?;
        let operations_max = match response {
            Some(value) => max_operations(&value).map_err(|_| Error::UnexpectedResponse)?,
            None => u32::MAX,
        };
        let mut stream = UpdateStream {
            sequence_number: 1,
            // Smaller requests than the queue, so that the server works on some while others are on their way.
            operations_max: (queue / 4)
                .clamp(1, OPERATIONS_MAX)
                .min(operations_max as usize),
            operations: UpdateOperationsBuf::default(),
            pending: Vec::new(),
            value: Vec::new(),
        };
        if operations_max == 0 {
            stream.end(connection, id + 1).await?;
            let reason = "the server takes no operations in a bulk update";
            return Err(Error::Unsupported(reason));
        }
        Ok(stream)
    }

    /// How many entries wait for the next request.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Adds an entry to the next request. Returns whether the request is full.
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        self.operations.push(&entry.request(), Controls::EMPTY);
        self.pending.push(entry);
        self.pending.len() >= self.operations_max || self.operations.bytes() >= REQUEST_BYTES
    }

    /// Appends the next request to `out` and returns its entries.
    pub(super) fn put_request(&mut self, id: u32, out: &mut Vec<u8>) -> Vec<Entry> {
        self.value.clear();
        let update = LburpUpdate {
            sequence_number: self.sequence_number,
            operations: self.operations.view(),
        };
        update.encode(&mut self.value);
        self.sequence_number = next_sequence_number(self.sequence_number);
        self.operations.clear();
        let op = Request::Extended(ExtendedRequest {
            name: LBURP_UPDATE,
            value: Some(&self.value),
        });
        put(out, id, op);
        std::mem::take(&mut self.pending)
    }

    /// Ends the bulk update. All its requests must have been answered.
    pub(super) async fn end(&mut self, connection: &mut Connection, id: u32) -> Result<(), Error> {
        self.value.clear();
        let end = EndLburp {
            sequence_number: self.sequence_number,
        };
        end.encode(&mut self.value);
        let response = extended(connection, id, END_LBURP, &self.value).await;
        response.map(drop)
    }
}

/// The operations of an update request that failed: their indexes in the list, in ascending order, and their errors.
pub(super) fn failed(
    response: &ExtendedResponse<'_>,
    operations: usize,
) -> Result<Vec<(usize, OperationError)>, Error> {
    let result = &response.result;
    match (result.code, response.value) {
        (ResultCode::Success, _) => Ok(Vec::new()),
        (ResultCode::UnknownError, Some(value)) => {
            let results = OperationResults::decode(value).map_err(|_| Error::UnexpectedResponse)?;
            let failed = results.iter().map(|(number, result)| {
                // Numbers begin at 1.
                let at = number as usize - 1;
                (at, OperationError::new(&result))
            });
            let mut failed: Vec<_> = failed.collect();
            failed.sort_by_key(|(at, _)| *at);
            match failed.iter().all(|(at, _)| *at < operations) {
                true => Ok(failed),
                false => Err(Error::UnexpectedResponse),
            }
        }
        // The request was refused as a whole.
        _ => {
            let error = OperationError::new(result);
            Ok((0..operations).map(|at| (at, error.clone())).collect())
        }
    }
}

/// Performs an extended operation and returns the value of its response. Nothing else may be in flight.
async fn extended(
    connection: &mut Connection,
    id: u32,
    name: &str,
    value: &[u8],
) -> Result<Option<Vec<u8>>, Error> {
    let value = Some(value);
    send(
        connection,
        id,
        Request::Extended(ExtendedRequest { name, value }),
    )
    .await?;
    let message = ResponseMessage::decode(connection.receive().await?)?;
    match &message.op {
        Response::Extended(response) if message.id == id => match response.result.code {
            ResultCode::Success => Ok(response.value.map(<[u8]>::to_vec)),
            _ => Err(OperationError::new(&response.result).into()),
        },
        _ => Err(unexpected(&message)),
    }
}

async fn send(connection: &mut Connection, id: u32, op: Request<'_>) -> Result<(), Error> {
    let mut request = Vec::new();
    put(&mut request, id, op);
    connection.send(&request).await
}

fn put(out: &mut Vec<u8>, id: u32, op: Request<'_>) {
    let controls = Controls::EMPTY;
    Message { id, op, controls }.encode(out);
}

/// The error that a message is which answers no request: the end of the session, if it is a notification.
pub(super) fn unexpected(message: &ResponseMessage<'_>) -> Error {
    match message.op.result() {
        Some(result) if message.id == 0 => Error::Disconnected(OperationError::new(result)),
        _ => Error::UnexpectedResponse,
    }
}
