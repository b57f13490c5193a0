//! The byte stream of a connection: TCP, TLS over TCP, or a local socket.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use rustix::io::ioctl_fionread;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use crate::handshake_memory::HandshakeMemory;
use crate::tls::{Acceptor, Established};

pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<UnderTls>>),
    Local(UnixStream),
    /// Between TCP and TLS; reads and writes fail.
    Gone,
}

/// A stream that is between two threads, and belongs to the runtime of neither.
pub(crate) enum Detached {
    Tcp(std::net::TcpStream),
    Local(std::os::unix::net::UnixStream),
}

impl AsFd for Detached {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Local(stream) => stream.as_fd(),
        }
    }
}

impl Detached {
    /// Gives it to this thread's runtime.
    pub(crate) fn attach(self) -> io::Result<Stream> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
            Self::Local(stream) => UnixStream::from_std(stream).map(Stream::Local),
        }
    }

    /// Sends some last bytes, as far as that takes no waiting, and closes it.
    pub(crate) fn end_with(self, bytes: &[u8]) {
        fn end(mut stream: impl Read + Write, bytes: &[u8], shutdown: impl Fn()) {
            if stream.write(bytes).is_ok() {
                shutdown();
                // What is unread would have the peer lose what it was sent.
                let _ = stream.read(&mut [0; 4096]);
            }
        }
        match self {
            Self::Tcp(stream) => end(&stream, bytes, || drop(stream.shutdown(Shutdown::Write))),
            Self::Local(stream) => end(&stream, bytes, || drop(stream.shutdown(Shutdown::Write))),
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

    /// Whether anything has arrived that was not read. The runtime may know of it only later, when its thread was busy.
    pub(crate) fn has_unread(&self) -> bool {
        let bytes = match self {
            Self::Tcp(stream) => ioctl_fionread(stream),
            Self::Tls(stream) => ioctl_fionread(&stream.get_ref().0.stream),
            Self::Local(stream) => ioctl_fionread(stream),
            Self::Gone => Ok(0),
        };
        bytes.is_ok_and(|bytes| bytes > 0)
    }

    /// Appends at most `most` bytes of what has arrived to `buffer`; 0 bytes is the end.
    pub(crate) fn poll_read_some(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        fn read<S: AsyncRead + Unpin>(
            stream: &mut S,
            cx: &mut Context<'_>,
            buffer: &mut Vec<u8>,
            most: usize,
        ) -> Poll<io::Result<usize>> {
            pin!(stream.take(most as u64).read_buf(buffer)).poll(cx)
        }
        match self {
            Self::Tcp(stream) => read(stream, cx, buffer, most),
            Self::Tls(stream) => read(stream.as_mut(), cx, buffer, most),
            Self::Local(stream) => read(stream, cx, buffer, most),
            Self::Gone => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
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

    /// Shakes hands for TLS. Until something has come, nothing is kept for it.
    pub(crate) async fn start_tls(
        &mut self,
        acceptor: Acceptor,
        memory: HandshakeMemory,
    ) -> io::Result<Established> {
        let Self::Tcp(stream) = std::mem::replace(self, Self::Gone) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        if stream.peek(&mut [0]).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let stream = UnderTls {
            stream,
            handshake: Some(Box::new(memory)),
        };
        let mut stream = acceptor.tls.accept(stream).await?;
        stream.get_mut().0.handshake = None;
        let established = acceptor.established(stream.get_ref().1);
        *self = Self::Tls(Box::new(stream));
        Ok(established)
    }
}

/// What TLS reads from and writes to.
pub(crate) struct UnderTls {
    stream: TcpStream,
    /// The memory of the handshake under way.
    handshake: Option<Box<HandshakeMemory>>,
}

impl AsyncRead for UnderTls {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let stream = Pin::new(&mut this.stream);
        let Some(handshake) = &mut this.handshake else {
            return stream.poll_read(cx, buffer);
        };
        let has_unread = || ioctl_fionread(&*stream).is_ok_and(|bytes| bytes > 0);
        let room = ready!(handshake.poll_room(has_unread, cx))?;
        let mut some = ReadBuf::new(buffer.initialize_unfilled_to(room.min(buffer.remaining())));
        ready!(stream.poll_read(cx, &mut some))?;
        let count = some.filled().len();
        buffer.advance(count);
        handshake.came(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UnderTls {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
