//! A message that is accepted can be walked, and written again reads as the same message.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_ldap::message::{Frame, RequestMessage, ResponseMessage, frame};

#[path = "../../crates/ldap/tests/model/mod.rs"]
mod model;

use model::MessageModel;

fuzz_target!(|bytes: &[u8]| {
    let Ok(Frame::Complete(len)) = frame(bytes, 1 << 20) else {
        return;
    };
    let bytes = &bytes[..len];
    let mut again = Vec::new();
    if let Ok(message) = RequestMessage::decode(bytes) {
        message.encode(&mut again);
        let read = RequestMessage::decode(&again).expect("what was written can be read");
        assert_eq!(
            MessageModel::of_request(&read),
            MessageModel::of_request(&message)
        );
    } else if let Ok(message) = ResponseMessage::decode(bytes) {
        message.encode(&mut again);
        let read = ResponseMessage::decode(&again).expect("what was written can be read");
        assert_eq!(
            MessageModel::of_response(&read),
            MessageModel::of_response(&message)
        );
    }
});
