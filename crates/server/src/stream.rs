//! The byte stream of a connection: TCP, TLS over TCP, or a local socket.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Local(UnixStream),
    /// Between TCP and TLS; reads and writes fail.
    Gone,
}

/// A stream that is between two threads, and belongs to the runtime of neither.
pub(crate) enum Detached {
    Tcp(std::net::TcpStream),
    Local(std::os::unix::net::UnixStream),
}

impl Detached {
    /// Gives it to this thread's runtime.
    pub(crate) fn attach(self) -> io::Result<Stream> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
            Self::Local(stream) => UnixStream::from_std(stream).map(Stream::Local),
        }
    }
}

impl Stream {
    /// Takes it from this thread's runtime, before anything was read or written.
    pub(crate) fn detach(self) -> io::Result<Detached> {
        match self {
            Self::Tcp(stream) => stream.into_std().map(Detached::Tcp),
            Self::Local(stream) => stream.into_std().map(Detached::Local),
            Self::Tls(_) | Self::Gone => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Appends what has arrived to `buffer`, up to its capacity; 0 bytes is the end.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        fn read<S: AsyncRead + Unpin>(
            stream: &mut S,
            cx: &mut Context<'_>,
            buffer: &mut Vec<u8>,
        ) -> Poll<io::Result<usize>> {
            pin!(stream.read_buf(buffer)).poll(cx)
        }
        match self {
            Self::Tcp(stream) => read(stream, cx, buffer),
            Self::Tls(stream) => read(stream.as_mut(), cx, buffer),
            Self::Local(stream) => read(stream, cx, buffer),
            Self::Gone => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Writes some of `bytes`.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Local(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Gone => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Hands what TLS still keeps to the kernel.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Local(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Gone => Poll::Ready(Ok(())),
        }
    }

    /// Shakes hands for TLS.
    pub(crate) async fn start_tls(&mut self, acceptor: TlsAcceptor) -> io::Result<()> {
        let Self::Tcp(stream) = std::mem::replace(self, Self::Gone) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        *self = Self::Tls(Box::new(acceptor.accept(stream).await?));
        Ok(())
    }
}
