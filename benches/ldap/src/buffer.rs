//! The least that sending a result can cost: a server that has it in a buffer and only writes it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rustix::time::{ClockId, clock_gettime};
use sapwood_client::{Connection, Options};
use sapwood_ldap::message::{Response, ResponseMessage, Scope};

use crate::SUFFIX;
use crate::server::{ADMIN_DN, ADMIN_PASSWORD, Server};
use crate::verify::search;

/// What one write takes, in bytes: it stays in the processor's caches.
const WRITE_BYTES: usize = 256 << 10;
/// At least so much is sent, in bytes, so that the clock tells it.
const SENT_BYTES_MIN: u64 = 1 << 30;

/// Microseconds of CPU for each entry of a whole-tree search of a server, were it sent from a buffer.
pub(crate) async fn entry_cpu_us(server: &Server) -> Result<f64> {
    let (entries, bytes) = result_size(server).await?;
    let times = SENT_BYTES_MIN.div_ceil(bytes.max(1));
    let cpu = send(bytes * times)?;
    Ok(cpu.as_secs_f64() * 1e6 / (entries * times) as f64)
}

/// Entries of the whole tree, and the bytes of the messages that bring them.
async fn result_size(server: &Server) -> Result<(u64, u64)> {
    let mut connection = Connection::open(&server.url, &Options::default()).await?;
    connection.bind(ADMIN_DN, ADMIN_PASSWORD.as_bytes()).await?;
    connection.send(&search(SUFFIX, Scope::Subtree)).await?;
    let (mut entries, mut bytes) = (0, 0);
    loop {
        let message = connection.receive().await?;
        bytes += message.len() as u64;
        match ResponseMessage::decode(message)?.op {
            Response::SearchEntry(_) => entries += 1,
            _ => return Ok((entries, bytes)),
        }
    }
}

/// Sends bytes over loopback to somebody who reads them; the sender's CPU.
fn send(bytes: u64) -> Result<Duration> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let sender = thread::spawn(move || -> Result<Duration> {
        let (mut socket, _) = listener.accept()?;
        let buffer = vec![0x30; WRITE_BYTES];
        let before = cpu();
        let mut left = bytes;
        while left > 0 {
            let part = left.min(WRITE_BYTES as u64);
            socket.write_all(&buffer[..part as usize])?;
            left -= part;
        }
        Ok(cpu() - before)
    });
    let mut socket = TcpStream::connect(address)?;
    let mut space = vec![0; WRITE_BYTES];
    while socket.read(&mut space).context("reading what is sent")? > 0 {}
    sender.join().map_err(|_| anyhow!("the sender panicked"))?
}

/// What the thread has used.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
