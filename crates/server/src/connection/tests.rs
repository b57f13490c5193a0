//! A connection that the test polls: it sees what happens in one turn.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use sapwood_ldap::message::Scope;
use sapwood_testkit::requests;

use super::*;
use crate::processors::Processors;
use crate::session::tests::example;

/// Bytes that were moved without waiting.
fn moved(mut one: impl FnMut() -> io::Result<usize>) -> usize {
    let mut sum = 0;
    loop {
        match one() {
            Ok(count) => sum += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return sum,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_connection_that_is_sent_requests_without_end_lets_others_have_their_turn() {
    const TURNS: usize = 50;
    let (service, _threads, _folder) = example("");
    let peer = Peer::Local { uid: 0, gid: 0 };
    let admission = service.connections.newcomer(&peer, 1).admit().unwrap();
    let seat = Processors::seats(1).next().unwrap();
    let (served, mut greedy) = UnixStream::pair().unwrap();
    for end in [&served, &greedy] {
        end.set_nonblocking(true).unwrap();
    }
    let mut answers = greedy.try_clone().unwrap();
    let search = |id| requests::search(id, "cn=none", Scope::Base, "(objectClass=*)");
    let requests: Vec<u8> = (1..=2000).flat_map(search).collect();
    let mut sent = 0;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let of_turns = runtime.block_on(async {
        let stream = tokio::net::UnixStream::from_std(served).unwrap();
        let mut serving = pin!(serve(
            Arc::new(service),
            admission,
            Stream::Local(stream),
            peer,
            Arc::default(),
            OpenSessions::new(seat),
        ));
        let mut of_turns = Vec::new();
        poll_fn(|cx| {
            assert!(serving.as_mut().poll(cx).is_pending());
            // What it wrote can be read now, and what it read has made room.
            let mut bytes = [0; 64 << 10];
            let written = moved(|| answers.read(&mut bytes));
            let read = moved(|| {
                let count = greedy.write(&requests[sent..])?;
                sent = (sent + count) % requests.len();
                Ok(count)
            });
            of_turns.push(written + read);
            cx.waker().wake_by_ref();
            if of_turns.len() == TURNS {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        of_turns
    });
    // The first fills the socket.
    let most = of_turns[1..].iter().max().unwrap();
    assert!(*most as u64 >= TURN_BYTES, "{of_turns:?}");
    assert!(
        *most as u64 <= TURN_BYTES + 3 * INPUT_BYTES as u64,
        "{of_turns:?}"
    );
}
