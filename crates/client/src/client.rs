//! A client that many tasks may use at once: each operation is a future, all share one connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use sapwood_ldap::controls::Controls;
use sapwood_ldap::extended::NOTICE_OF_DISCONNECTION;
use sapwood_ldap::filter::Assertion;
use sapwood_ldap::limits::MESSAGE_ID_MAX;
use sapwood_ldap::list::{Attributes, Changes};
use sapwood_ldap::message::{
    AddRequest, Authentication, BindRequest, CompareRequest, ExtendedRequest, Message,
    ModifyDnRequest, ModifyRequest, Request, Response, ResponseMessage, SearchRequest,
};
use sapwood_ldap::result::ResultCode;
use tokio::sync::mpsc;

use crate::connection::{Connection, Options};
use crate::error::{Error, OperationError};

/// Requests are encoded up to this many bytes before the next write. More wait in the queue.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// A connected client. Clones share the connection, which ends when the last clone is dropped.
///
/// Requests are sent without waiting for those before them. Each operation gets its own responses. Responses stay in
/// memory until they are taken: bound a large search by its size limit or by pages.
#[derive(Debug, Clone)]
pub struct Client {
    next_id: Arc<AtomicU32>,
    commands: mpsc::UnboundedSender<Command>,
    ended: Arc<OnceLock<Error>>,
}

/// What a client asks the connection's task to do.
#[derive(Debug)]
enum Command {
    /// Send a request whose responses go to `replies`.
    Request {
        id: u32,
        message: Vec<u8>,
        replies: mpsc::UnboundedSender<Reply>,
    },
    /// Send a request that has no response, and forget the operation it names.
    Abandon { message: Vec<u8>, abandoned: u32 },
    /// End the session.
    Unbind,
}

/// One response message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    message: Vec<u8>,
}

impl Reply {
    /// The decoded message.
    ///
    /// # Errors
    /// When it is not LDAP.
    pub fn message(&self) -> Result<ResponseMessage<'_>, Error> {
        Ok(ResponseMessage::decode(&self.message)?)
    }

    /// The result code, if the reply ends the operation with success.
    fn success(&self) -> Result<ResultCode, Error> {
        match self.message()?.op.result() {
            Some(result) if result.code.is_success() => Ok(result.code),
            Some(result) => Err(OperationError::new(result).into()),
            None => Err(Error::UnexpectedResponse),
        }
    }
}

impl Client {
    /// Connects to the server of an `ldap`, `ldaps` or `ldapi` URL. Call it within a tokio runtime, which then drives
    /// the connection.
    ///
    /// # Errors
    /// When the URL, the network or TLS fails.
    pub async fn connect(url: &str, options: &Options) -> Result<Self, Error> {
        Ok(Self::over(Connection::open(url, options).await?))
    }

    /// Takes over a connection. It may have nothing in flight. Call it within a tokio runtime.
    pub fn over(connection: Connection) -> Self {
        let (commands, queue) = mpsc::unbounded_channel();
        let ended = Arc::new(OnceLock::new());
        let driver = Driver {
            connection,
            queue,
            pending: HashMap::new(),
        };
        tokio::spawn(driver.run(Arc::clone(&ended)));
        Client {
            next_id: Arc::new(AtomicU32::new(1)),
            commands,
            ended,
        }
    }

    /// Authenticates with a name and a password. An empty password asks for an anonymous session.
    pub async fn bind(&self, name: &str, password: &[u8]) -> Result<(), Error> {
        let bind = BindRequest {
            version: 3,
            name,
            authentication: Authentication::Simple(password),
        };
        self.request(Request::Bind(bind), Controls::EMPTY)
            .await?
            .success()
            .map(drop)
    }

    /// Authenticates by what the transport knows of the client, as on `ldapi` (SASL EXTERNAL, RFC 4422 appendix A).
    pub async fn bind_external(&self) -> Result<(), Error> {
        let authentication = Authentication::Sasl {
            mechanism: "EXTERNAL",
            credentials: None,
        };
        let bind = BindRequest {
            version: 3,
            name: "",
            authentication,
        };
        self.request(Request::Bind(bind), Controls::EMPTY)
            .await?
            .success()
            .map(drop)
    }

    /// Starts a search and returns the stream of its results.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn search(
        &self,
        search: SearchRequest<'_>,
        controls: Controls<'_>,
    ) -> Result<SearchResults, Error> {
        let (id, replies) = self.start(Request::Search(search), controls)?;
        Ok(SearchResults {
            client: self.clone(),
            id,
            replies,
            done: false,
        })
    }

    /// Adds an entry.
    pub async fn add(&self, dn: &str, attributes: Attributes<'_>) -> Result<(), Error> {
        let add = AddRequest { dn, attributes };
        self.request(Request::Add(add), Controls::EMPTY)
            .await?
            .success()
            .map(drop)
    }

    /// Changes an entry.
    pub async fn modify(&self, dn: &str, changes: Changes<'_>) -> Result<(), Error> {
        let modify = ModifyRequest { dn, changes };
        self.request(Request::Modify(modify), Controls::EMPTY)
            .await?
            .success()
            .map(drop)
    }

    /// Deletes an entry.
    pub async fn delete(&self, dn: &str) -> Result<(), Error> {
        self.request(Request::Delete(dn), Controls::EMPTY)
            .await?
            .success()
            .map(drop)
    }

    /// Renames or moves an entry.
    pub async fn modify_dn(&self, rename: ModifyDnRequest<'_>) -> Result<(), Error> {
        self.request(Request::ModifyDn(rename), Controls::EMPTY)
            .await?
            .success()
            .map(drop)
    }

    /// Whether the entry has the value.
    pub async fn compare(&self, dn: &str, attribute: &str, value: &[u8]) -> Result<bool, Error> {
        let compare = CompareRequest {
            dn,
            assertion: Assertion {
                attribute: attribute.as_bytes(),
                value,
            },
        };
        match self
            .request(Request::Compare(compare), Controls::EMPTY)
            .await?
            .success()?
        {
            ResultCode::CompareTrue => Ok(true),
            ResultCode::CompareFalse => Ok(false),
            _ => Err(Error::UnexpectedResponse),
        }
    }

    /// Performs an extended operation. Returns the value of the response, if it has one.
    pub async fn extended(
        &self,
        name: &str,
        value: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let reply = self
            .request(
                Request::Extended(ExtendedRequest { name, value }),
                Controls::EMPTY,
            )
            .await?;
        reply.success()?;
        match reply.message()?.op {
            Response::Extended(response) => Ok(response.value.map(<[u8]>::to_vec)),
            _ => Err(Error::UnexpectedResponse),
        }
    }

    /// Sends a request that has one response. Returns the response, whatever its result.
    ///
    /// # Errors
    /// When the connection has ended, or the request is an unbind or an abandon.
    pub async fn request(&self, op: Request<'_>, controls: Controls<'_>) -> Result<Reply, Error> {
        let (_, mut replies) = self.start(op, controls)?;
        replies.recv().await.ok_or_else(|| self.end())
    }

    /// Ends the session. Operations that are not answered yet fail.
    pub fn unbind(self) {
        // A connection that has ended needs no unbind.
        let _ = self.commands.send(Command::Unbind);
    }

    fn start(
        &self,
        op: Request<'_>,
        controls: Controls<'_>,
    ) -> Result<(u32, mpsc::UnboundedReceiver<Reply>), Error> {
        if matches!(op, Request::Unbind | Request::Abandon(_)) {
            return Err(Error::Unsupported(
                "unbind and abandon have no response to wait for",
            ));
        }
        let id = self.take_id();
        let mut message = Vec::new();
        Message { id, op, controls }.encode(&mut message);
        let (replies, receiver) = mpsc::unbounded_channel();
        self.commands
            .send(Command::Request {
                id,
                message,
                replies,
            })
            .map_err(|_| self.end())?;
        Ok((id, receiver))
    }

    fn abandon(&self, id: u32) {
        let mut message = Vec::new();
        Message {
            id: self.take_id(),
            op: Request::Abandon(id),
            controls: Controls::EMPTY,
        }
        .encode(&mut message);
        // A connection that has ended has nothing to abandon.
        let _ = self.commands.send(Command::Abandon {
            message,
            abandoned: id,
        });
    }

    /// The next message ID: 1 to [`MESSAGE_ID_MAX`], then 1 again.
    fn take_id(&self) -> u32 {
        self.next_id.fetch_add(1, Ordering::Relaxed) % MESSAGE_ID_MAX + 1
    }

    /// Whether the connection has ended: no request is sent any more.
    pub fn has_ended(&self) -> bool {
        self.commands.is_closed()
    }

    /// Why the connection has ended.
    fn end(&self) -> Error {
        self.ended
            .get()
            .cloned()
            .unwrap_or_else(|| Error::Closed("its task was stopped".to_owned()))
    }
}

/// The results of a search. Dropping them before the end abandons the search.
#[derive(Debug)]
pub struct SearchResults {
    client: Client,
    id: u32,
    replies: mpsc::UnboundedReceiver<Reply>,
    done: bool,
}

impl SearchResults {
    /// The next entry, reference or intermediate response. `None` when the search has ended with success.
    ///
    /// # Errors
    /// When the search has ended with another result, or the connection has ended.
    pub async fn next(&mut self) -> Result<Option<Reply>, Error> {
        let reply = self.next_reply().await?;
        match reply.message()?.op.result() {
            None => Ok(Some(reply)),
            Some(_) => reply.success().map(|_| None),
        }
    }

    /// The next message of the search, its end included. The end may carry controls, or say that a limit was reached
    /// after the entries before it.
    ///
    /// # Errors
    /// After the end of the search, or when the connection has ended.
    pub async fn next_reply(&mut self) -> Result<Reply, Error> {
        if self.done {
            return Err(Error::UnexpectedResponse);
        }
        let reply = self.replies.recv().await;
        self.done = reply
            .as_ref()
            .is_none_or(|reply| !matches!(reply.message(), Ok(m) if m.op.result().is_none()));
        reply.ok_or_else(|| self.client.end())
    }
}

impl Drop for SearchResults {
    fn drop(&mut self) {
        if !self.done {
            self.client.abandon(self.id);
        }
    }
}

/// Owns the connection. Sends the requests of the clients and dispatches the responses.
struct Driver {
    connection: Connection,
    queue: mpsc::UnboundedReceiver<Command>,
    pending: HashMap<u32, mpsc::UnboundedSender<Reply>>,
}

impl Driver {
    async fn run(mut self, ended: Arc<OnceLock<Error>>) {
        let error = match self.serve().await {
            Ok(()) => Error::Closed("this side has unbound".to_owned()),
            Err(error) => error,
        };
        // The reason is set before the channels close: a task that finds its channel closed reads it.
        let _ = ended.set(error);
        drop(self);
    }

    async fn serve(&mut self) -> Result<(), Error> {
        loop {
            tokio::select! {
                command = self.queue.recv(), if self.connection.output().len() < OUTPUT_BYTES_MAX => {
                    let mut command = command.unwrap_or(Command::Unbind);
                    loop {
                        if !self.execute(command) {
                            return self.unbind().await;
                        }
                        match self.queue.try_recv() {
                            Ok(next) if self.connection.output().len() < OUTPUT_BYTES_MAX => command = next,
                            Ok(last) => {
                                if !self.execute(last) {
                                    return self.unbind().await;
                                }
                                break;
                            }
                            Err(_) => break,
                        }
                    }
                }
                progress = self.connection.make_progress() => {
                    progress?;
                    self.dispatch()?;
                }
            }
        }
    }

    /// Returns `false` when the session is to end.
    fn execute(&mut self, command: Command) -> bool {
        match command {
            Command::Request {
                id,
                message,
                replies,
            } => {
                // The ID is still in use after two thousand million others. Dropping `replies` fails the new operation.
                if self.pending.contains_key(&id) {
                    return true;
                }
                self.connection.output().extend_from_slice(&message);
                self.pending.insert(id, replies);
            }
            Command::Abandon { message, abandoned } => {
                if self.pending.remove(&abandoned).is_some() {
                    self.connection.output().extend_from_slice(&message);
                }
            }
            Command::Unbind => return false,
        }
        true
    }

    async fn unbind(&mut self) -> Result<(), Error> {
        let mut unbind = Vec::new();
        Message {
            id: MESSAGE_ID_MAX,
            op: Request::Unbind,
            controls: Controls::EMPTY,
        }
        .encode(&mut unbind);
        self.connection.send(&unbind).await?;
        self.connection.shutdown().await
    }

    fn dispatch(&mut self) -> Result<(), Error> {
        while let Some(bytes) = self.connection.received()? {
            let message = ResponseMessage::decode(bytes)?;
            if let (0, Response::Extended(notice)) = (message.id, &message.op)
                && notice.name == Some(NOTICE_OF_DISCONNECTION)
            {
                return Err(Error::Disconnected(OperationError::new(&notice.result)));
            }
            let last = message.op.result().is_some();
            // Responses to abandoned operations, and unknown notifications, are ignored (RFC 4511 §4.11, §4.4).
            if let Some(replies) = self.pending.get(&message.id) {
                let id = message.id;
                // The operation may have been dropped.
                let _ = replies.send(Reply {
                    message: bytes.to_vec(),
                });
                if last {
                    self.pending.remove(&id);
                }
            }
        }
        Ok(())
    }
}
