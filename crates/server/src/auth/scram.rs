//! SCRAM (RFC 5802) with SHA-256 (RFC 7677) and SHA-512, and the same bound to the TLS connection (`-PLUS`). The client
//! proves that it knows a password without sending it, and the server that it has the verifier. A name that nobody has
//! gets a salt like others, which is always the same, and fails as a wrong password does.

use base64ct::{Base64, Encoding};
use sapwood_directory::{Identity, Outcome};
use sapwood_ldap::result::ResultCode;

use super::names::{self, Claimed};
use super::{Asked, Client, Exchange, Mechanism, Step};
use crate::password::{SCRAM_SALT_BYTES, ScramHash, ScramVerifier, random};
use crate::tls::Bindings;
use crate::workers::Owner;

pub(super) const SHA_256: Mechanism = Mechanism {
    name: "SCRAM-SHA-256",
    is_set_up: |_| true,
    works_on: |_| true,
    begin: || Box::new(Scram::new(ScramHash::Sha256, false)),
};
pub(super) const SHA_512: Mechanism = Mechanism {
    name: "SCRAM-SHA-512",
    is_set_up: |_| true,
    works_on: |_| true,
    begin: || Box::new(Scram::new(ScramHash::Sha512, false)),
};
pub(super) const SHA_256_PLUS: Mechanism = Mechanism {
    name: "SCRAM-SHA-256-PLUS",
    is_set_up: |_| true,
    works_on: |channel| channel.is_under_tls,
    begin: || Box::new(Scram::new(ScramHash::Sha256, true)),
};
pub(super) const SHA_512_PLUS: Mechanism = Mechanism {
    name: "SCRAM-SHA-512-PLUS",
    is_set_up: |_| true,
    works_on: |channel| channel.is_under_tls,
    begin: || Box::new(Scram::new(ScramHash::Sha512, true)),
};

/// Bytes of a message of the client.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Bytes of the client's nonce.
const NONCE_BYTES_MAX: usize = 1 << 10;
/// Random bytes of the server's part of the nonce.
const NONCE_BYTES: usize = 18;

struct Scram {
    hash: ScramHash,
    is_plus: bool,
    began: Option<Began>,
}

/// An exchange whose client has to prove that it knows the password.
struct Began {
    /// What the client said before, as far as it is signed.
    client_first: String,
    /// The header that the client repeats with the channel binding.
    header: String,
    binding: Vec<u8>,
    server_first: String,
    nonce: String,
    dn: String,
    verifier: ScramVerifier,
    /// Who it is, if somebody has the name and such a verifier.
    identity: Option<Identity>,
    /// As whom it wants to act, if that is somebody else.
    authzid: Option<String>,
    owner: Owner,
    /// Who the name stands for, whether there is an entry or not.
    name: Owner,
}

impl Exchange for Scram {
    fn step(&mut self, asked: &Asked<'_>, credentials: Option<&[u8]>) -> Result<Step, Outcome> {
        let Some(message) = credentials else {
            return match self.began {
                // The client speaks first (RFC 4422 §3.2).
                None => Ok(Step::More(Vec::new())),
                Some(_) => Err(malformed("the client's proof is missing")),
            };
        };
        let message = std::str::from_utf8(message).ok();
        let message = message.filter(|message| message.len() <= MESSAGE_BYTES_MAX);
        let message = message.ok_or_else(|| malformed("it is too long, or not UTF-8"))?;
        match &self.began {
            None => self.begin(asked, message),
            Some(began) => began.finish(asked, message),
        }
    }
}

impl Scram {
    const fn new(hash: ScramHash, is_plus: bool) -> Self {
        Self {
            hash,
            is_plus,
            began: None,
        }
    }

    fn mechanism(&self) -> &'static Mechanism {
        match (self.hash, self.is_plus) {
            (ScramHash::Sha256, false) => &SHA_256,
            (ScramHash::Sha256, true) => &SHA_256_PLUS,
            (ScramHash::Sha512, false) => &SHA_512,
            (ScramHash::Sha512, true) => &SHA_512_PLUS,
        }
    }

    /// Answers the client's name and nonce with a salt.
    fn begin(&mut self, asked: &Asked<'_>, message: &str) -> Result<Step, Outcome> {
        let first = ClientFirst::read(message).map_err(malformed)?;
        let bindings = asked.tls.map(|tls| &tls.bindings);
        let binding = binding(first.binding, self.is_plus, bindings)?;
        let Claimed { dn, stand_in } =
            names::claimed(asked, &first.authcid, self.mechanism().name)?;
        let found = asked.verifier(&dn, self.hash)?;
        let owner = match &found {
            Some((identity, _)) => Owner::from(identity),
            None => Owner::nobody(&stand_in),
        };
        let (identity, verifier) = match found {
            Some((identity, verifier)) => (Some(identity), verifier),
            None => {
                let salt = asked.salt_of_nobody(&stand_in, self.hash);
                (None, ScramVerifier::of_nobody(self.hash, salt))
            }
        };
        let mut own = [0; NONCE_BYTES];
        random(&mut own);
        let nonce = format!("{}{}", first.nonce, Base64::encode_string(&own));
        let salt = Base64::encode_string(&verifier.salt);
        let server_first = format!("r={nonce},s={salt},i={}", verifier.iterations);
        let challenge = server_first.clone().into_bytes();
        self.began = Some(Began {
            client_first: first.bare.to_owned(),
            header: first.header.to_owned(),
            binding,
            server_first,
            nonce,
            dn,
            verifier,
            identity,
            authzid: names::other(asked.schema, &first.authzid, &first.authcid),
            owner,
            name: Owner::nobody(&stand_in),
        });
        Ok(Step::More(challenge))
    }
}

impl Began {
    /// Checks the client's proof.
    fn finish(&self, asked: &Asked<'_>, message: &str) -> Result<Step, Outcome> {
        let last = ClientFinal::read(message).map_err(malformed)?;
        let bound = [self.header.as_bytes(), &self.binding].concat();
        let is_bound = last.binding == bound && last.nonce == self.nonce;
        let exchange = [
            &self.client_first,
            self.server_first.as_str(),
            last.without_proof,
        ]
        .join(",");
        let is_proved = self.verifier.proves(exchange.as_bytes(), &last.proof);
        let failed = Ok(Step::Failed {
            owner: self.owner,
            name: self.name,
        });
        let Some(identity) = self.identity.as_ref().filter(|_| is_bound && is_proved) else {
            return failed;
        };
        // Meanwhile the password may have been changed, or the entry deleted.
        match asked.verifier(&self.dn, self.verifier.hash)? {
            Some((now, verifier)) if now == *identity && verifier == self.verifier => {}
            _ => return failed,
        }
        let signature = Base64::encode_string(&self.verifier.signature(exchange.as_bytes()));
        Ok(Step::Proved {
            client: Client {
                identity: identity.clone(),
                authzid: self.authzid.clone(),
            },
            told: format!("v={signature}").into_bytes(),
            name: self.name,
        })
    }
}

impl Asked<'_> {
    /// Who has a name, and the verifier of their password.
    fn verifier(
        &self,
        dn: &str,
        hash: ScramHash,
    ) -> Result<Option<(Identity, ScramVerifier)>, Outcome> {
        let Some(found) = names::credentials(self, dn)? else {
            return Ok(None);
        };
        let mut verifiers = found
            .verifiers
            .iter()
            .filter_map(|value| ScramVerifier::parse(value));
        let identity = Identity::User {
            entry: found.entry,
            dn: found.dn,
        };
        let verifier = verifiers.find(|verifier| verifier.hash == hash);
        Ok(verifier.map(|verifier| (identity, verifier)))
    }

    /// The salt of a name without a verifier, for which `stand_in` stands: however it is written, and whatever entries
    /// there are, it has the same one, also after a restart. It is made of what only the server knows.
    fn salt_of_nobody(&self, stand_in: &[u8], hash: ScramHash) -> Vec<u8> {
        let secret = hash.hmac(
            &self.settings.admin_password,
            b"salts of names that nobody has",
        );
        let mut salt = hash.hmac(&secret, stand_in);
        salt.truncate(SCRAM_SALT_BYTES);
        salt
    }
}

/// The data that binds an exchange to its connection (RFC 5802 §6).
fn binding(
    wanted: Binding<'_>,
    is_plus: bool,
    bindings: Option<&Bindings>,
) -> Result<Vec<u8>, Outcome> {
    let wrong = |reason: &str| Err(Outcome::new(ResultCode::InvalidCredentials, reason));
    match (wanted, is_plus, bindings) {
        (Binding::None, false, _) | (Binding::NotOffered, false, None) => Ok(Vec::new()),
        // Somebody between has taken -PLUS out of the list of mechanisms.
        (Binding::NotOffered, false, Some(_)) => wrong(
            "this server offers SCRAM with channel binding, which the client was not told: somebody may listen",
        ),
        (Binding::Type(_), false, _) => {
            wrong("channel binding is for the mechanisms that end with -PLUS")
        }
        (Binding::Type(name), true, Some(bindings)) => {
            let data = match name {
                "tls-exporter" => bindings.exporter.map(|data| data.to_vec()),
                "tls-server-end-point" => {
                    bindings.server_end_point.as_ref().map(|data| data.to_vec())
                }
                _ => None,
            };
            match data {
                Some(data) => Ok(data),
                None => wrong(
                    "this connection has no such channel binding: tls-exporter (of TLS 1.3) or tls-server-end-point",
                ),
            }
        }
        (_, true, _) => wrong("the mechanisms that end with -PLUS need TLS, and channel binding"),
    }
}

fn malformed(reason: &'static str) -> Outcome {
    let reason = format!("a message of SCRAM (RFC 5802 §7): {reason}");
    Outcome::new(ResultCode::ProtocolError, reason)
}

/// What a client says of channel binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binding<'m> {
    /// It has none.
    None,
    /// It would, but thinks that the server has none.
    NotOffered,
    /// It uses this one.
    Type(&'m str),
}

/// The first message of a client.
#[derive(Debug, PartialEq, Eq)]
struct ClientFirst<'m> {
    /// Binding and authorization identity, as they were written.
    header: &'m str,
    /// The rest.
    bare: &'m str,
    binding: Binding<'m>,
    authzid: String,
    authcid: String,
    nonce: &'m str,
}

impl<'m> ClientFirst<'m> {
    fn read(message: &'m str) -> Result<Self, &'static str> {
        let (flag, rest) = message.split_once(',').ok_or("it has no header")?;
        let (authzid, bare) = rest.split_once(',').ok_or("it has no header")?;
        let binding = match flag {
            "n" => Binding::None,
            "y" => Binding::NotOffered,
            _ => Binding::Type(
                flag.strip_prefix("p=")
                    .ok_or("its header does not begin with n, y or p=")?,
            ),
        };
        let authzid = match authzid {
            "" => String::new(),
            _ => name(
                authzid
                    .strip_prefix("a=")
                    .ok_or("its header has something else than a=")?,
            )?,
        };
        let mut attributes = bare.split(',');
        // One that begins with m= is an extension that must be known (RFC 5802 §5.1).
        let authcid = attributes
            .next()
            .and_then(|attribute| attribute.strip_prefix("n="));
        let authcid = name(authcid.ok_or("it does not begin with a name")?)?;
        let nonce = attributes
            .next()
            .and_then(|attribute| attribute.strip_prefix("r="));
        let nonce = nonce.ok_or("it has no nonce")?;
        let is_nonce = (1..=NONCE_BYTES_MAX).contains(&nonce.len())
            && nonce.bytes().all(|byte| byte.is_ascii_graphic());
        if authcid.is_empty() || !is_nonce {
            return Err("its name is empty, or its nonce is none");
        }
        Ok(Self {
            header: &message[..message.len() - bare.len()],
            bare,
            binding,
            authzid,
            authcid,
            nonce,
        })
    }
}

/// A name, in which commas and equals signs are `=2C` and `=3D`.
fn name(text: &str) -> Result<String, &'static str> {
    let mut name = String::with_capacity(text.len());
    let mut parts = text.split('=');
    name.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (character, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (None, Some(rest)) => ('=', rest),
            (None, None) => return Err("a name has '=' that is neither =2C nor =3D"),
        };
        name.push(character);
        name.push_str(rest);
    }
    Ok(name)
}

/// The last message of a client.
#[derive(Debug, PartialEq, Eq)]
struct ClientFinal<'m> {
    /// Header and channel binding.
    binding: Vec<u8>,
    nonce: &'m str,
    proof: Vec<u8>,
    without_proof: &'m str,
}

impl<'m> ClientFinal<'m> {
    fn read(message: &'m str) -> Result<Self, &'static str> {
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or("it has no proof")?;
        let mut attributes = without_proof.split(',');
        let binding = attributes
            .next()
            .and_then(|attribute| attribute.strip_prefix("c="));
        let binding = binding.and_then(|binding| Base64::decode_vec(binding).ok());
        let nonce = attributes
            .next()
            .and_then(|attribute| attribute.strip_prefix("r="));
        Ok(Self {
            binding: binding.ok_or("it does not begin with the channel binding")?,
            nonce: nonce.ok_or("it has no nonce")?,
            proof: Base64::decode_vec(proof).map_err(|_| "its proof is not base64")?,
            without_proof,
        })
    }
}

/// Reads messages of clients, for the fuzzer.
pub(super) fn read_messages(message: &[u8]) {
    if let Ok(message) = std::str::from_utf8(message) {
        let _ = ClientFirst::read(message);
        let _ = ClientFinal::read(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_messages_are_read() {
        let first =
            ClientFirst::read("p=tls-exporter,a=dn:cn=3Db,n=dn:cn=3Da=2Cdc=3Dx,r=abc,x=y").unwrap();
        assert_eq!(first.header, "p=tls-exporter,a=dn:cn=3Db,");
        assert_eq!(first.bare, "n=dn:cn=3Da=2Cdc=3Dx,r=abc,x=y");
        assert_eq!(first.binding, Binding::Type("tls-exporter"));
        assert_eq!(
            (first.authzid.as_str(), first.authcid.as_str()),
            ("dn:cn=b", "dn:cn=a,dc=x")
        );
        assert_eq!(first.nonce, "abc");
        assert_eq!(
            ClientFirst::read("y,,n=a,r=b").unwrap().binding,
            Binding::NotOffered
        );
        for wrong in [
            "",
            "n",
            "n,",
            "n,,",
            "x,,n=a,r=b",
            "n,b,n=a,r=b",
            "n,,m=x,n=a,r=b",
            "n,,n=,r=b",
            "n,,n=a",
            "n,,n=a,r=",
            "n,,n=a=2D,r=b",
            "n,,n=a=,r=b",
            "n,,n=a,r=b c",
        ] {
            assert!(ClientFirst::read(wrong).is_err(), "{wrong}");
        }
        let long = format!("n,,n=a,r={}", "x".repeat(NONCE_BYTES_MAX + 1));
        assert!(ClientFirst::read(&long).is_err());
    }

    #[test]
    fn last_messages_are_read() {
        let last = ClientFinal::read("c=biws,r=abc,x=y,p=AAEC").unwrap();
        assert_eq!(
            (last.binding.as_slice(), last.nonce),
            (b"n,,".as_slice(), "abc")
        );
        assert_eq!(
            (last.proof.as_slice(), last.without_proof),
            ([0, 1, 2].as_slice(), "c=biws,r=abc,x=y")
        );
        for wrong in [
            "",
            "c=biws,r=abc",
            "c=biws,p=AAEC",
            "r=abc,p=AAEC",
            "c=*,r=abc,p=AAEC",
            "c=biws,r=abc,p=*",
        ] {
            assert!(ClientFinal::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_client_that_was_not_told_of_channel_binding_is_refused() {
        let bindings = Bindings {
            exporter: Some([7; 32]),
            server_end_point: None,
        };
        let data = |wanted, is_plus, bindings| binding(wanted, is_plus, bindings).ok();
        let exporter = Binding::Type("tls-exporter");
        assert_eq!(data(Binding::None, false, Some(&bindings)), Some(vec![]));
        assert_eq!(data(Binding::NotOffered, false, None), Some(vec![]));
        assert_eq!(data(Binding::NotOffered, false, Some(&bindings)), None);
        assert_eq!(data(exporter, true, Some(&bindings)), Some(vec![7; 32]));
        assert_eq!(data(exporter, true, None), None);
        assert_eq!(data(exporter, false, Some(&bindings)), None);
        assert_eq!(
            data(Binding::Type("tls-server-end-point"), true, Some(&bindings)),
            None
        );
        assert_eq!(
            data(Binding::Type("tls-unique"), true, Some(&bindings)),
            None
        );
        assert_eq!(data(Binding::None, true, Some(&bindings)), None);
    }
}
