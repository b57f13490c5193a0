//! A token is redeemed: for an account at the server that has made it, whose password is kept in a file here.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{self, Path};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use sapwood_client::{Connection, Options, Trust};
use sapwood_directory::{Agreement, AgreementPassword};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::extended::{REDEEM_INVITATION, RedeemInvitation};
use sapwood_ldap::message::{ExtendedRequest, Message, Request, ResponseMessage};
use sapwood_ldap::result::ResultCode;
use sapwood_server::invitations::Token;
use sapwood_server::password;
use tokio::time::timeout;

/// Bytes of a message of the other server: a part of its backup.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Seconds for an answer.
const ANSWER_SECONDS_MAX: u64 = 30;
const MESSAGE_ID: u32 = 2;
/// Bytes of the file with the password.
const PASSWORD_BYTES_MAX: u64 = 1024;

/// The account at the other server.
pub(super) struct Account {
    pub(super) dn: String,
    password: String,
    /// Whether it was made before, by a run that did not come to its end.
    may_exist: bool,
}

impl Account {
    /// The one whose password is kept in a file, or one whose password is kept from now on.
    pub(super) fn kept(path: &Path, token: &Token) -> Result<Account> {
        let dn = token.dn();
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut text = String::new();
        if let Ok(file) = File::open(path) {
            file.take(PASSWORD_BYTES_MAX).read_to_string(&mut text)?;
        }
        // Of another token it is of no use.
        let mut lines = text.lines();
        if let (Some(password), Some(of)) = (lines.next(), lines.next())
            && of == dn
        {
            let password = password.to_owned();
            return Ok(Account {
                dn,
                password,
                may_exist: true,
            });
        }
        let name = || path.display().to_string();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(name)?;
        let password = [password::generate(), password::generate()].map(|half| half.to_vec());
        let password = String::from_utf8(password.concat())?;
        let write = || {
            let new = path.with_extension("new");
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            writeln!(file, "{password}\n{dn}")?;
            file.sync_all()?;
            fs::rename(&new, path)?;
            File::open(folder)?.sync_all()
        };
        write().with_context(name)?;
        Ok(Account {
            dn,
            password,
            may_exist: false,
        })
    }
}

/// Gets the account, if it is not there yet, and binds as it.
pub(super) async fn redeem(token: &Token, account: &Account) -> Result<Connection> {
    let Account { dn, password, .. } = account;
    let mut connection = connect(token).await?;
    if account.may_exist {
        if in_time(connection.bind(dn, password.as_bytes()))
            .await
            .is_ok()
        {
            return Ok(connection);
        }
        connection = connect(token).await?;
    }
    let mut value = Vec::new();
    RedeemInvitation {
        name: &token.name,
        secret: &token.secret,
        password: password.as_bytes(),
    }
    .encode(&mut value);
    ask(&mut connection, REDEEM_INVITATION, Some(&value)).await?;
    let answer = in_time(async { Ok::<_, anyhow::Error>(connection.receive().await?.to_vec()) });
    succeeded(&ResponseMessage::decode(&answer.await?)?)?;
    in_time(connection.bind(dn, password.as_bytes())).await?;
    Ok(connection)
}

/// An agreement with the server of a token, whose password is in a file.
pub(super) fn agreement(token: &Token, password: &Path) -> Result<Agreement> {
    let password = path::absolute(password)?.into_os_string().into_string();
    let password = password.map_err(|name| anyhow!("{}: the name is not UTF-8", name.display()))?;
    let fingerprint = token.fingerprint.iter().map(|octet| format!("{octet:02x}"));
    Ok(Agreement {
        provider: token.url.clone(),
        bind_dn: token.dn(),
        password: AgreementPassword::File(password),
        persists: true,
        start_tls: token.url.starts_with("ldap:"),
        fingerprint: Some(fingerprint.collect()),
        ..Agreement::default()
    })
}

async fn connect(token: &Token) -> Result<Connection> {
    let options = Options {
        trust: Trust::Fingerprint(token.fingerprint),
        start_tls: token.url.starts_with("ldap:"),
        message_bytes_max: MESSAGE_BYTES_MAX,
    };
    let opened = in_time(Connection::open(&token.url, &options)).await;
    opened.map_err(|error| match error.downcast_ref() {
        Some(sapwood_client::Error::Tls(_)) => error
            .context("there is no server with the certificate whose fingerprint is in the token"),
        _ => error,
    })
}

/// What comes of something that should not take long.
async fn in_time<T, E>(done: impl Future<Output = Result<T, E>>) -> Result<T>
where
    anyhow::Error: From<E>,
{
    let limit = Duration::from_secs(ANSWER_SECONDS_MAX);
    let done = timeout(limit, done).await;
    Ok(done.map_err(|_| anyhow!("no answer within {ANSWER_SECONDS_MAX} s"))??)
}

pub(super) async fn ask(
    connection: &mut Connection,
    name: &str,
    value: Option<&[u8]>,
) -> Result<()> {
    let mut message = Vec::new();
    Message {
        id: MESSAGE_ID,
        op: Request::Extended(ExtendedRequest { name, value }),
        controls: Controls::EMPTY,
    }
    .encode(&mut message);
    in_time(connection.send(&message)).await
}

pub(super) fn succeeded(message: &ResponseMessage<'_>) -> Result<()> {
    match message.op.result() {
        Some(result) if result.code == ResultCode::Success => Ok(()),
        Some(result) => bail!("{}: {}", result.code, result.diagnostic),
        None => bail!("an answer that was not asked for"),
    }
}
