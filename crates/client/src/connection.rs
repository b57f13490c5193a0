//! One connection: it writes encoded messages and reads whole ones. [`Client`](crate::Client) and load drivers use it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::pki_types::ServerName;
use sapwood_ldap::controls::Controls;
use sapwood_ldap::extended::START_TLS;
use sapwood_ldap::message::{
    Authentication, BindRequest, ExtendedRequest, Frame, Message, Request, Response,
    ResponseMessage, frame,
};
use sapwood_ldap::result::ResultCode;
use sapwood_ldap::url::{LdapUrl, Scheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::error::{Error, OperationError};
use crate::tls::Trust;

/// Where `ldapi:///` goes when no path is given.
pub const LDAPI_PATH: &str = "/run/sapwood.sock";

/// The least free space of the input buffer for a read, in bytes.
const READ_BYTES: usize = 64 << 10;

/// How to connect.
#[derive(Debug, Clone)]
pub struct Options {
    /// The servers that are trusted with `ldaps` and StartTLS.
    pub trust: Trust,
    /// Whether to ask for TLS on an `ldap` connection before anything else.
    pub start_tls: bool,
    /// The largest message that is accepted from the server, in bytes.
    pub message_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            trust: Trust::Nobody,
            start_tls: false,
            message_bytes_max: 64 << 20,
        }
    }
}

/// A stream of bytes to a server.
trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A connection to a server. It sends encoded requests, any number at once, and returns one response at a time.
pub struct Connection {
    socket: Box<dyn Socket>,
    message_bytes_max: usize,
    /// The input buffer. `input[read..filled]` has come and is not returned yet; the rest is free.
    input: Vec<u8>,
    read: usize,
    filled: usize,
    /// The output buffer. `output[written..]` is not written yet.
    output: Vec<u8>,
    written: usize,
}

impl Connection {
    /// Connects to the server of an `ldap`, `ldaps` or `ldapi` URL.
    ///
    /// # Errors
    /// When the URL, the network or TLS fails, or the server refuses StartTLS.
    pub async fn open(url: &str, options: &Options) -> Result<Self, Error> {
        let url = LdapUrl::parse(url)?;
        let host = if url.host.is_empty() {
            "localhost"
        } else {
            &url.host
        };
        let socket: Box<dyn Socket> = match url.scheme {
            Scheme::Ldapi => {
                let path = if url.host.is_empty() {
                    LDAPI_PATH
                } else {
                    &url.host
                };
                Box::new(UnixStream::connect(path).await?)
            }
            Scheme::Ldap | Scheme::Ldaps => {
                let port = url
                    .port_or_default()
                    .ok_or(Error::Unsupported("the URL has no port"))?;
                let socket = TcpStream::connect((host, port)).await?;
                // The socket must not hold back small requests until more follow.
                socket.set_nodelay(true)?;
                Box::new(socket)
            }
        };
        let mut connection = Connection {
            socket,
            message_bytes_max: options.message_bytes_max,
            input: Vec::new(),
            read: 0,
            filled: 0,
            output: Vec::new(),
            written: 0,
        };
        match (url.scheme, options.start_tls) {
            (Scheme::Ldaps, false) => connection.wrap_in_tls(host, &options.trust).await,
            (Scheme::Ldap | Scheme::Ldapi, true) => {
                connection.ask_for_tls().await?;
                connection.wrap_in_tls(host, &options.trust).await
            }
            (Scheme::Ldaps, true) => Err(Error::Unsupported("StartTLS makes no sense with ldaps")),
            _ => Ok(connection),
        }
    }

    /// StartTLS (RFC 4511 §4.14).
    async fn ask_for_tls(&mut self) -> Result<(), Error> {
        let op = Request::Extended(ExtendedRequest {
            name: START_TLS,
            value: None,
        });
        let mut request = Vec::new();
        Message {
            id: 1,
            op,
            controls: Controls::EMPTY,
        }
        .encode(&mut request);
        self.send(&request).await?;
        let response = self.receive().await?;
        let Response::Extended(response) = ResponseMessage::decode(response)?.op else {
            return Err(Error::UnexpectedResponse);
        };
        if response.result.code != ResultCode::Success {
            return Err(OperationError::new(&response.result).into());
        }
        // After its response the server may send nothing in plain text. Such bytes may come from somebody else.
        if self.read < self.filled {
            return Err(Error::Tls(
                "the server sent more in plain text after it had agreed to TLS".to_owned(),
            ));
        }
        Ok(())
    }

    async fn wrap_in_tls(self, host: &str, trust: &Trust) -> Result<Self, Error> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| Error::Tls(format!("{host} cannot be in a certificate")))?;
        let connector = TlsConnector::from(trust.config()?);
        let socket = connector
            .connect(name, self.socket)
            .await
            .map_err(|error| Error::Tls(error.to_string()))?;
        Ok(Connection {
            socket: Box::new(socket),
            ..self
        })
    }

    /// Authenticates with a name and a password. Nothing else may be in flight.
    ///
    /// # Errors
    /// [`Error::Bind`] when the server refuses the bind; otherwise when the connection fails.
    pub async fn bind(&mut self, name: &str, password: &[u8]) -> Result<(), Error> {
        let mut request = Vec::new();
        Message {
            id: 1,
            op: Request::Bind(BindRequest {
                version: 3,
                name,
                authentication: Authentication::Simple(password),
            }),
            controls: Controls::EMPTY,
        }
        .encode(&mut request);
        self.send(&request).await?;
        let response = ResponseMessage::decode(self.receive().await?)?;
        match response.op.result() {
            Some(result) if result.code == ResultCode::Success => Ok(()),
            Some(result) => Err(Error::Bind {
                name: name.to_owned(),
                error: OperationError::new(result),
            }),
            None => Err(Error::UnexpectedResponse),
        }
    }

    /// Sends encoded messages. Keeps what the server sends meanwhile for [`receive`](Self::receive), so that a long
    /// burst cannot block both sides.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn send(&mut self, messages: &[u8]) -> Result<(), Error> {
        self.output.extend_from_slice(messages);
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(outcome) = self.poll_write(cx) {
                    return Poll::Ready(outcome);
                }
                // The socket is full. Reading lets the server continue to read.
                ready!(self.poll_read(cx))?;
            }
        })
        .await
    }

    /// Waits for the next message from the server.
    ///
    /// # Errors
    /// When the connection fails, or the message is not LDAP or too large.
    pub async fn receive(&mut self) -> Result<&[u8], Error> {
        let len = loop {
            match frame(self.unread(), self.message_bytes_max)? {
                Frame::Complete(len) => break len,
                Frame::Incomplete(_) => poll_fn(|cx| self.poll_read(cx)).await?,
            }
        };
        Ok(self.take(len))
    }

    /// The next message, if it has come already.
    ///
    /// # Errors
    /// When it is not LDAP or too large.
    pub fn received(&mut self) -> Result<Option<&[u8]>, Error> {
        match frame(self.unread(), self.message_bytes_max)? {
            Frame::Complete(len) => Ok(Some(self.take(len))),
            Frame::Incomplete(_) => Ok(None),
        }
    }

    fn unread(&self) -> &[u8] {
        self.input.get(self.read..self.filled).unwrap_or_default()
    }

    fn take(&mut self, len: usize) -> &[u8] {
        let start = self.read;
        self.read += len;
        self.input.get(start..self.read).unwrap_or_default()
    }

    /// The encoded messages that [`make_progress`](Self::make_progress) sends. Append to it.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Writes and reads as much as the socket takes and has. Ends when something was read, or when all of
    /// [`output`](Self::output) was written. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the network or TLS fails, or the server has closed the connection.
    pub async fn make_progress(&mut self) -> Result<(), Error> {
        poll_fn(|cx| {
            let unsent = self.written < self.output.len();
            let sent = self.poll_write(cx)?.is_ready();
            match self.poll_read(cx) {
                Poll::Pending if unsent && sent => Poll::Ready(Ok(())),
                read => read,
            }
        })
        .await
    }

    /// Ready when everything is written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while let Some(rest @ [_, ..]) = self.output.get(self.written..) {
            match ready!(Pin::new(&mut self.socket).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into())),
                bytes => self.written += bytes,
            }
        }
        self.output.clear();
        self.written = 0;
        // TLS may have buffered what it was given.
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        Poll::Ready(Ok(()))
    }

    /// Ready when something was read.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // The space of consumed messages is reused before the buffer grows.
        if self.read == self.filled {
            (self.read, self.filled) = (0, 0);
        } else if self.input.len() - self.filled < READ_BYTES && self.read > self.filled / 2 {
            self.input.copy_within(self.read..self.filled, 0);
            (self.read, self.filled) = (0, self.filled - self.read);
        }
        if self.input.len() - self.filled < READ_BYTES {
            self.input.resize(self.filled + 2 * READ_BYTES, 0);
        }
        let mut space = ReadBuf::new(self.input.get_mut(self.filled..).unwrap_or_default());
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut space))?;
        match space.filled().len() {
            0 => Poll::Ready(Err(Error::Closed("the server has closed it".to_owned()))),
            bytes => {
                self.filled += bytes;
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Closes the transport.
    pub(crate) async fn shutdown(&mut self) -> Result<(), Error> {
        Ok(poll_fn(|cx| Pin::new(&mut self.socket).poll_shutdown(cx)).await?)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
