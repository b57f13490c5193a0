//! SASL mechanisms (RFC 4422): a file each, and a line in the table below. The root DSE is made from the table.

mod certificate;
mod external;
#[cfg(feature = "gssapi")]
mod gssapi;
pub(crate) mod lookup;
pub(crate) mod names;
mod plain;
mod scram;

use std::sync::Arc;

use sapwood_directory::schema::Schema;
use sapwood_directory::{Channel, Identity, Outcome, Requester};

use self::lookup::Entries;
use crate::config::Config;
use crate::password::Password;
use crate::peer::Peer;
use crate::settings::Settings;
use crate::tls::Established;
use crate::workers::Owner;

/// All of them.
pub(crate) static MECHANISMS: &[Mechanism] = &[
    external::MECHANISM,
    #[cfg(feature = "gssapi")]
    gssapi::MECHANISM,
    plain::MECHANISM,
    scram::SHA_256,
    scram::SHA_256_PLUS,
    scram::SHA_512,
    scram::SHA_512_PLUS,
];

/// A mechanism.
pub(crate) struct Mechanism {
    pub(crate) name: &'static str,
    /// Whether the configuration has what it needs.
    pub(crate) is_set_up: fn(&Config) -> bool,
    /// Whether it works on a connection: only there the root DSE has it.
    pub(crate) works_on: fn(Channel) -> bool,
    /// Begins an exchange.
    pub(crate) begin: fn() -> Box<dyn Exchange>,
}

/// A mechanism at work: one bind, of one request or several.
pub(crate) trait Exchange {
    /// Takes what the client says; `None` is different from empty.
    ///
    /// # Errors
    /// How the bind ends.
    fn step(&mut self, asked: &Asked<'_>, credentials: Option<&[u8]>) -> Result<Step, Outcome>;
}

/// Where a bind stands after a step.
pub(crate) enum Step {
    /// The client is known.
    Done(Client),
    /// The client has proved that it knows the password.
    Proved {
        client: Client,
        /// What it may know the server by.
        told: Vec<u8>,
        /// Who its name stands for, whether there is an entry or not.
        name: Owner,
    },
    /// The client is not who it says: told when other binds of this owner would fail.
    Failed {
        owner: Owner,
        /// As above.
        name: Owner,
    },
    /// The client is to answer this challenge.
    More(Vec<u8>),
    /// Others have to find something out first.
    Wait(Wait),
}

/// What a bind waits for.
pub(crate) enum Wait {
    /// Whether this is the password of the entry, or administrator, with this DN, whom the client is then.
    Password {
        dn: String,
        /// Who is charged for the password of a name that nobody can be bound by.
        nobody: Owner,
        password: Password,
        /// As in [`Client`].
        authzid: Option<String>,
    },
}

/// Who a client is.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) identity: Identity,
    /// As whom it wants to act, if that is somebody else.
    pub(crate) authzid: Option<String>,
}

/// What a mechanism may ask.
pub(crate) struct Asked<'s> {
    pub(crate) peer: Peer,
    pub(crate) channel: Channel,
    /// What TLS has established.
    pub(crate) tls: Option<&'s Established>,
    pub(crate) settings: &'s Settings,
    pub(crate) entries: &'s dyn Entries,
    pub(crate) schema: &'s Schema,
    /// The connection as long as nobody is bound.
    pub(crate) nobody: Arc<Requester>,
}

/// Reads a message as the mechanisms do whose messages have a form: for the fuzzer.
pub fn read_messages(message: &[u8]) {
    plain::read_message(message);
    scram::read_messages(message);
    #[cfg(feature = "gssapi")]
    gssapi::read_message(message);
}

/// The mechanism with a name.
pub(crate) fn find(name: &str) -> Option<&'static Mechanism> {
    MECHANISMS.iter().find(|mechanism| mechanism.name == name)
}
